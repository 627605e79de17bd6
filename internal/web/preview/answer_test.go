package preview_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/web"
	"paddock/internal/web/preview"
)

func TestWhatAProgramAnswersMeansNothingBeyondItsOrigin(t *testing.T) {
	h := open(t, t.TempDir(), nil)
	id := h.session(t, ann)
	h.says(t, 8000, strings.ReplaceAll(`HTTP/1.1 200 OK
Content-Length: 2
Content-Type: text/plain
Set-Cookie: a=1; Domain=localhost; Path=/
Set-Cookie: b=2; path=/x; dOmAiN = .localhost ;HttpOnly
Set-Cookie: paddock-preview=evil; Path=/
Set-Cookie:  __Host-paddock-preview =evil; Secure
Set-Cookie: paddock-preview
Set-Cookie: =paddock-preview=evil
Strict-Transport-Security: max-age=1; includeSubDomains
Clear-Site-Data: "*"
Alt-Svc: h3=":9999"
NEL: {"report_to":"x","success_fraction":1}
Report-To: {"group":"x"}
Reporting-Endpoints: x="https://evil.example"
Service-Worker-Allowed: /
WWW-Authenticate: Basic realm="your paddock password"
X-Accel-Redirect: /etc/passwd
X-Sendfile: /etc/passwd
X-LIGHTTPD-send-file: /etc/passwd
X-Request-Id: forged
Cache-Control: public, s-maxage=99, max-age=5
Content-Security-Policy: default-src *
Keep-Alive: timeout=99
Own: kept

ok`, "\n", "\r\n"))
	c, _, at := h.enter(t, id, 8000)
	got := do(t, c, "GET", at, "")
	if got.status != 200 {
		t.Fatalf("got.status = %d, want 200: %s", got.status, got.body)
	}
	if got.body != "ok" {
		t.Fatalf(`got.body = %q, want "ok"`, got.body)
	}
	for name, want := range map[string]string{
		"Set-Cookie": "a=1; Path=/|b=2; path=/x;HttpOnly", "Strict-Transport-Security": "", "Clear-Site-Data": "", "Alt-Svc": "", "Nel": "", "Report-To": "",
		"Reporting-Endpoints": "", "Service-Worker-Allowed": "", "Www-Authenticate": "", "X-Accel-Redirect": "", "X-Sendfile": "", "X-Lighttpd-Send-File": "",
		"Keep-Alive": "", "X-Request-Id": "", "Own": "kept", "Cache-Control": "private, max-age=5",
		"Content-Security-Policy": "default-src *|frame-ancestors 'self'", "Origin-Agent-Cluster": "?1", "Cross-Origin-Resource-Policy": "same-origin",
		"Referrer-Policy": "same-origin", "X-Content-Type-Options": "", "Content-Type": "text/plain",
	} {
		all := strings.Join(got.header.Values(name), "|")
		if all != want && name != "X-Request-Id" {
			t.Errorf("%s is %q, want %q", name, all, want)
		}
		if strings.Contains(all, "forged") {
			t.Errorf(`%s is %q, want no "forged" in it`, name, all)
		}
	}
}

func TestAProgramsOwnAddressIsThePreviews(t *testing.T) {
	h := open(t, t.TempDir(), nil)
	h.program(t, 8000, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.WriteHeader(302)
	})
	c, _, at := h.enter(t, h.session(t, ann), 8000)
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for to, want := range map[string]string{
		"/next": "/next", "next?a=b": "next?a=b", "http://127.0.0.1:8000/x?y=1#z": "/x?y=1#z", "http://localhost:8000": "/", "http://0.0.0.0:8000//evil.example/": "/evil.example/",
		"http://[::1]:8000/%2F": "/%2F", "http://127.0.0.1:9000/x": "http://127.0.0.1:9000/x", "https://example.com/": "https://example.com/", "http://localhost:8000/\\evil": "/%5Cevil",
	} {
		if got := do(t, c, "GET", at+"/?to="+url.QueryEscape(to), ""); got.header.Get("Location") != want {
			t.Errorf("%s becomes %s", to, got.header.Get("Location"))
		}
	}
}

func webSocket(t *testing.T, h *fixture, c *http.Client, at, upgrade string) (net.Conn, *bufio.Reader, *http.Response) {
	t.Helper()
	u, _ := url.Parse(at)
	conn, err := net.Dial("tcp", "127.0.0.1:"+h.port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(conn, "GET /socket HTTP/1.1\r\nHost: %s\r\nOrigin: %s\r\nConnection: Upgrade\r\nUpgrade: %s\r\nCookie: paddock-preview=%s\r\n\r\n", u.Host, at, upgrade, c.Jar.Cookies(u)[0].Value)
	r := bufio.NewReader(conn)
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	return conn, r, res
}

func echoes(w http.ResponseWriter, r *http.Request) {
	up := r.Header.Get("Upgrade")
	if up == "" {
		fmt.Fprint(w, "plain")
		return
	}
	conn, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nSet-Cookie: a=b; Domain=localhost\r\nClear-Site-Data: \"*\"\r\n\r\n", up)
	_, _ = io.Copy(conn, rw)
}

func TestAWebSocketIsPassedOnUntilItsPreviewEnds(t *testing.T) {
	h := open(t, t.TempDir(), nil)
	h.program(t, 8000, echoes)
	id := h.session(t, ann)
	c, _, at := h.enter(t, id, 8000)
	conn, r, res := webSocket(t, h, c, at, "websocket")
	switch {
	case res.StatusCode != 101:
		t.Fatalf("res.StatusCode = %v, want 101: %v", res.StatusCode, res)
	case res.Header.Get("Set-Cookie") != "a=b":
		t.Fatalf(`header Set-Cookie = %q, want "a=b"`, res.Header.Get("Set-Cookie"))
	case res.Header.Get("Clear-Site-Data") != "":
		t.Fatalf(`header Clear-Site-Data = %q, want ""`, res.Header.Get("Clear-Site-Data"))
	}
	fmt.Fprint(conn, "hello\n")
	if got, err := r.ReadString('\n'); err != nil {
		t.Errorf("got error %v, want none", err)
	} else if got != "hello\n" {
		t.Errorf("got %q, want %q", got, "hello\n")
	}
	if _, _, res := webSocket(t, h, c, at, "h2c"); res.StatusCode != 200 {
		t.Errorf("what is not a WebSocket is %v", res.Status)
	}
	if got := do(t, http.DefaultClient, "DELETE", h.base+"/api/v1/sessions/"+string(id)+"/previews", "", "Authorization", "Bearer "+annToken); got.status != 200 {
		t.Fatalf("revoking says %d %s", got.status, got.body)
	}
	if got, err := r.ReadString('\n'); err == nil {
		t.Errorf("it goes on with %q", got)
	}
}

func TestAServerThatEndsDoesNotWaitForWebSockets(t *testing.T) {
	h := open(t, t.TempDir(), nil)
	h.program(t, 8000, echoes)
	c, _, at := h.enter(t, h.session(t, ann), 8000)
	_, r, _ := webSocket(t, h, c, at, "websocket")
	h.stop()
	if _, err := r.ReadByte(); err == nil {
		t.Error("it goes on")
	}
}

func TestAStreamIsPassedOnAsItComes(t *testing.T) {
	h := open(t, t.TempDir(), nil)
	next := make(chan string)
	defer close(next)
	h.program(t, 8000, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for {
			select {
			case text := <-next:
				fmt.Fprintf(w, "data: %s\n\n", text)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	id := h.session(t, ann)
	c, _, at := h.enter(t, id, 8000)
	body := make(chan *http.Response, 1)
	go func() {
		res, err := c.Get(at)
		if err != nil {
			t.Error(err)
		}
		body <- res
	}()
	next <- "one"
	res := <-body
	if res == nil {
		t.FailNow()
	}
	defer res.Body.Close()
	r := bufio.NewReader(res.Body)
	for _, text := range []string{"one", "two"} {
		if text == "two" {
			next <- text
		}
		if got, err := r.ReadString('\n'); err != nil {
			t.Fatalf("got error %v, want none", err)
		} else if got != "data: "+text+"\n" {
			t.Fatalf("got %q, want %q", got, "data: "+text+"\n")
		}
		if _, err := r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.sessions.Sleep(ann, id); fault.KindOf(err) != fault.Conflict {
		t.Errorf("while somebody looks the session sleeps: %v", err)
	}
	h.mu.Lock()
	h.alive = fault.New(fault.Denied, "the token was revoked")
	h.mu.Unlock()
	if got, err := r.ReadString('\n'); err == nil {
		t.Errorf("it goes on with %q", got)
	}
	if got := do(t, c, "GET", at, ""); got.status != 403 {
		t.Errorf("after its owner's token: %d %s", got.status, got.body)
	}
}

func TestAHostileAnswerIsOneErrorAndNothingElse(t *testing.T) {
	h := open(t, t.TempDir(), func(_ *web.Config, c *preview.Config) { c.AnswerTimeout = 2 * time.Second })
	id := h.session(t, ann)
	c, _, at := h.enter(t, id, 8000)
	for name, answer := range map[string]string{
		"nothing":                       "",
		"noise":                         "\x00\xff\x00\xff\r\n\r\n",
		"no HTTP":                       "SSH-2.0-OpenSSH_9.9\r\n",
		"a status of zero":              "HTTP/1.1 000 x\r\n\r\n",
		"a status below one hundred":    "HTTP/1.1 099 x\r\n\r\n",
		"a status that is not a number": "HTTP/1.1 2x0 x\r\n\r\n",
		"an upgrade without a request":  "HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfree bytes",
		"endless headers":               "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: "+strings.Repeat("a", 1000)+"\r\n", 100) + "\r\n",
		"one header without an end":     "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", 200_000),
		"two lengths":                   "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"a length below nothing":        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"control bytes in a header":     "HTTP/1.1 200 OK\r\nA: a\x01b\r\n\r\n",
		"a line within a header's name": "HTTP/1.1 200 OK\r\nA\r: b\r\n\r\n",
		"early answers without end":     strings.Repeat("HTTP/1.1 103 x\r\nSet-Cookie: a=b; Domain=localhost\r\n\r\n", 5000),
	} {
		t.Run(name, func(t *testing.T) {
			h.says(t, 8000, answer)
			got := do(t, c, "GET", at, "", "Accept", "text/html")
			switch {
			case got.status != 502:
				t.Errorf("got.status = %v, want 502: %.300s", got.status, got.body)
			case !strings.Contains(got.body, "gave no answer that can be passed on"):
				t.Errorf(`got.body = %q, want "gave no answer that can be passed on" in it`, got.body)
			case strings.Contains(got.body, "free bytes"):
				t.Errorf(`got.body = %q, want no "free bytes" in it`, got.body)
			case got.header.Get("Set-Cookie") != "":
				t.Errorf(`header Set-Cookie = %q, want ""`, got.header.Get("Set-Cookie"))
			}
		})
	}
	h.says(t, 8000, "HTTP/1.1 103 x\r\nSet-Cookie: a=b; Domain=localhost\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nTrailer: Set-Cookie\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nSet-Cookie: a=b\r\n\r\nHTTP/1.1 200 OK\r\n\r\nof nobody")
	got := do(t, c, "GET", at, "")
	switch {
	case got.status != 200:
		t.Errorf("got.status = %v, want 200: %s, %v", got.status, got.body, got.header)
	case got.body != "ok":
		t.Errorf(`got.body = %q, want "ok"`, got.body)
	}
	for _, name := range []string{"Set-Cookie", "Link", "Trailer"} {
		if all := got.header.Values(name); len(all) != 0 {
			t.Errorf("header %s = %q, want none: %d %s", name, all, got.status, got.body)
		}
	}
	h.says(t, 8000, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokZZ\r\n")
	if got, err := c.Get(at); err == nil {
		if _, err := io.ReadAll(got.Body); err == nil {
			t.Error("an answer that is cut off looks whole")
		}
		got.Body.Close()
	}
	if got := do(t, http.DefaultClient, "GET", h.base+"/healthz", ""); got.status != 200 {
		t.Errorf("the server is %d %s", got.status, got.body)
	}
}

func TestAnAnswerWithoutEndIsBounded(t *testing.T) {
	const most = 3 << 20
	h := open(t, t.TempDir(), func(_ *web.Config, c *preview.Config) { c.MaxBytes = most })
	h.program(t, 8000, func(w http.ResponseWriter, r *http.Request) {
		for block := make([]byte, 64<<10); ; {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	})
	id := h.session(t, ann)
	c, _, at := h.enter(t, id, 8000)
	res, err := c.Get(at)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if n, err := io.Copy(io.Discard, res.Body); err == nil {
		t.Error("got no error, want one")
	} else if n > most {
		t.Errorf("n = %d, want at most %d", n, most)
	}
	if got := do(t, c, "GET", at, ""); got.status != 429 {
		t.Errorf("got.status = %d, want 429: %s", got.status, got.body)
	} else if !strings.Contains(got.body, "as many bytes as it may") {
		t.Errorf(`got.body = %q, want "as many bytes as it may" in it`, got.body)
	}
	again, _, there := h.enter(t, id, 8000)
	res, err = again.Get(there)
	if err != nil {
		t.Fatalf("another preview: got error %v, want none", err)
	}
	res.Body.Close()
	if res.StatusCode != 200 {
		t.Errorf("another preview: the status is %d, want 200", res.StatusCode)
	}
}

func TestRequestsBeyondTheirNumberWait(t *testing.T) {
	h := open(t, t.TempDir(), func(_ *web.Config, c *preview.Config) { c.AtOnce = 2 })
	arrived, leave := make(chan struct{}), make(chan struct{})
	var now, most atomic.Int64
	h.program(t, 8000, func(http.ResponseWriter, *http.Request) {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		arrived <- struct{}{}
		<-leave
		now.Add(-1)
	})
	c, _, at := h.enter(t, h.session(t, ann), 8000)
	done := make(chan int, 5)
	for range 5 {
		go func() {
			res, err := c.Get(at)
			if err != nil {
				done <- 0
				return
			}
			res.Body.Close()
			done <- res.StatusCode
		}()
	}
	for range 5 {
		<-arrived
		leave <- struct{}{}
	}
	for range 5 {
		if got := <-done; got != 200 {
			t.Errorf("one is answered %d", got)
		}
	}
	if n := most.Load(); n > 2 {
		t.Errorf("%d were at the program at once", n)
	}
}

func TestWhoeverLeavesIsNotConnectedAnyMore(t *testing.T) {
	h := open(t, t.TempDir(), nil)
	h.backend.serves(8000, silent)
	c, _, at := h.enter(t, h.session(t, ann), 8000)
	c.Timeout = 100 * time.Millisecond
	if res, err := c.Get(at); err == nil {
		res.Body.Close()
		t.Errorf("it says %s", res.Status)
	}
	select {
	case <-h.backend.givenUp:
	case <-time.After(time.Minute):
		t.Error("the machine is still waited for")
	}
}

func TestABodyIsTooLargeWhetherItsSizeIsToldOrNot(t *testing.T) {
	h := open(t, t.TempDir(), func(c *web.Config, _ *preview.Config) { c.MaxUploadBytes = 100 })
	h.program(t, 8000, tell)
	c, _, at := h.enter(t, h.session(t, ann), 8000)
	for name, body := range map[string]io.Reader{"told": strings.NewReader(strings.Repeat("a", 101)), "not told": struct{ io.Reader }{strings.NewReader(strings.Repeat("a", 101))}} {
		res, err := c.Post(at, "text/plain", body)
		if err != nil {
			t.Fatal(name, err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: it says %s", name, res.Status)
		}
	}
}
