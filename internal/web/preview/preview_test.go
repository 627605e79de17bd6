package preview_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/session"
	"paddock/internal/web"
	"paddock/internal/web/preview"
)

// tell answers with what a program sees of a request.
func tell(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s %s host=%s\n", r.Method, r.RequestURI, r.Host)
	_ = r.Header.Write(w)
	_, _ = io.Copy(w, r.Body)
}

func TestALinkOpensWhatAProgramServes(t *testing.T) {
	h := open(t, t.TempDir(), nil)
	h.program(t, 8000, tell)
	id := h.session(t, ann)
	made, got := h.make(t, annToken, id, `{"port": 8000, "path": "/start?a=1", "ttl_seconds": 600}`)
	if got.status != 201 || made.Port != 8000 || made.Session != id || time.Until(made.Expires) > 10*time.Minute {
		t.Fatalf("it says %d %s", got.status, got.body)
	}
	if !strings.HasPrefix(made.URL, "http://"+made.ID+".localhost:"+h.port+"/.paddock/open/") {
		t.Errorf("the URL is %s", made.URL)
	}
	c := h.browser(t)
	var cookie string
	c.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		cookie = r.Response.Header.Get("Set-Cookie")
		if to := r.Response.Header.Get("Location"); to != "/start?a=1" {
			t.Errorf("it leads to %s", to)
		}
		return nil
	}
	got = do(t, c, "GET", made.URL, "")
	if !strings.Contains(got.body, "GET /start?a=1 host="+made.ID+".localhost:"+h.port) || strings.Contains(got.body, "Referer") {
		t.Errorf("the program says %d %s", got.status, got.body)
	}
	for _, want := range []string{"paddock-preview=", "Path=/", "Max-Age=", "HttpOnly", "SameSite=Lax"} {
		if !strings.Contains(cookie, want) || strings.Contains(cookie, "Domain") {
			t.Errorf("the cookie is %s", cookie)
		}
	}
	at := "http://" + made.ID + ".localhost:" + h.port
	got = do(t, c, "POST", at+"/a%2Fb?x=;&y=%zz", "body", "Authorization", "Bearer "+annToken, "Cookie", "own=1; paddock-preview=x; __Host-paddock-preview=y",
		"X-Forwarded-For", "1.2.3.4", "X-Forwarded-User", "root", "Forwarded", "for=1.2.3.4", "X-Real-Ip", "1.2.3.4", "Origin", at, "Te", "trailers")
	for _, want := range []string{"POST /a%2Fb?x=;&y=%zz host=", "\r\nbody", "X-Forwarded-For: 127.0.0.1\r\n", "X-Forwarded-Host: " + made.ID, "X-Forwarded-Proto: http\r\n", "Cookie: own=1\r\n"} {
		if !strings.Contains(got.body, want) {
			t.Errorf("there is no %q in %s", want, got.body)
		}
	}
	value, _, _ := strings.Cut(strings.TrimPrefix(cookie, "paddock-preview="), ";")
	for _, secret := range []string{value, strings.Split(made.URL, "/open/")[1], annToken, "paddock-preview", "Authorization", "1.2.3.4", "X-Forwarded-User"} {
		if strings.Contains(got.body, secret) {
			t.Errorf("the program sees %q in %s", secret, got.body)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if all := strings.Join(h.events, ","); all != "made ann 8000 ,opened ann 8000 " {
		t.Errorf("it tells of %q", all)
	}
}

func TestNothingReachesASessionWithoutWhatLetsIn(t *testing.T) {
	h := open(t, t.TempDir(), nil)
	var asked atomic.Int64
	h.program(t, 8000, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	h.program(t, 9000, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	id := h.session(t, ann)
	in, _, at := h.enter(t, id, 8000)
	other, _ := h.make(t, annToken, id, `{"port": 9000}`)
	theirs, _ := h.make(t, bobToken, h.session(t, bob), `{"port": 8000}`)
	u, _ := url.Parse(at)
	mine := in.Jar.Cookies(u)[0].Value
	signature := func(s preview.Shown) string { return strings.Split(s.URL, "/open/")[1] }
	address := func(s preview.Shown) string { return strings.Split(s.URL, "/.paddock/")[0] }
	stranger := h.browser(t)
	stranger.Jar = nil
	for name, test := range map[string]struct{ to, cookie string }{
		"no cookie":                       {at + "/", ""},
		"an empty one":                    {at + "/", "paddock-preview="},
		"the cookie of another port":      {address(other) + "/", "paddock-preview=" + mine},
		"the cookie of another owner":     {address(theirs) + "/", "paddock-preview=" + mine},
		"a link as a cookie":              {address(other) + "/", "paddock-preview=" + signature(other)},
		"a cookie that is cut":            {at + "/", "paddock-preview=" + mine[:42]},
		"a cookie with more":              {at + "/", "paddock-preview=" + mine + "A"},
		"a cookie under another name":     {at + "/", "Paddock-Preview=" + mine},
		"seventeen wrong ones before it":  {at + "/", strings.Repeat("paddock-preview=x; ", 17) + "paddock-preview=" + mine},
		"a cookie as a link":              {at + "/.paddock/open/" + mine, ""},
		"a link of another preview":       {at + "/.paddock/open/" + signature(other), ""},
		"a link of another owner's":       {at + "/.paddock/open/" + signature(theirs), ""},
		"no signature":                    {at + "/.paddock/open/", ""},
		"an id that is nobody's":          {"http://aaaaaaaaaaaaaaaaaaaaaaaaaa.localhost/", "paddock-preview=" + mine},
		"an id that is a path":            {"http://..%2f..%2fx.localhost/", "paddock-preview=" + mine},
		"a session of another in its id":  {"http://" + string(id) + ".localhost/", "paddock-preview=" + mine},
		"what belongs to paddock's pages": {at + "/.paddock/", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var headers []string
			if test.cookie != "" {
				headers = []string{"Cookie", test.cookie}
			}
			if strings.Contains(test.to, "%2f") {
				return // no client sends that
			}
			got := do(t, stranger, "GET", test.to, "", append(headers, "Accept", "text/html")...)
			if got.status != 403 || !strings.Contains(got.body, "This is paddock, not the program") || got.header.Get("Set-Cookie") != "" {
				t.Errorf("it says %d %s", got.status, got.body)
			}
		})
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("%d requests reached a program", n)
	}
	if got := do(t, stranger, "GET", at, "", "Cookie", "a=b; paddock-preview=wrong; paddock-preview="+mine); got.status != 200 {
		t.Errorf("with one wrong cookie beside it: %d %s", got.status, got.body)
	}
	if got := do(t, in, "GET", at+"/.paddock/anything", ""); got.status != 404 || asked.Load() != 1 {
		t.Errorf("what is paddock's own reaches a program: %d %s", got.status, got.body)
	}
	for _, method := range []string{"TRACE", "POST"} {
		if got := do(t, in, method, at+"/.paddock/open/x", ""); got.status < 400 {
			t.Errorf("%s a link: %d", method, got.status)
		}
	}
	if got := do(t, in, "TRACE", at, ""); got.status != 405 || asked.Load() != 1 {
		t.Errorf("TRACE: %d %s", got.status, got.body)
	}
}

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
	if got.status != 200 || got.body != "ok" {
		t.Fatalf("it says %d %s", got.status, got.body)
	}
	for name, want := range map[string]string{
		"Set-Cookie": "a=1; Path=/|b=2; path=/x;HttpOnly", "Strict-Transport-Security": "", "Clear-Site-Data": "", "Alt-Svc": "", "Nel": "", "Report-To": "",
		"Reporting-Endpoints": "", "Service-Worker-Allowed": "", "Www-Authenticate": "", "X-Accel-Redirect": "", "X-Sendfile": "", "X-Lighttpd-Send-File": "",
		"Keep-Alive": "", "X-Request-Id": "", "Own": "kept", "Cache-Control": "private, max-age=5",
		"Content-Security-Policy": "default-src *|frame-ancestors 'self'", "Origin-Agent-Cluster": "?1", "Cross-Origin-Resource-Policy": "same-origin",
		"Referrer-Policy": "same-origin", "X-Content-Type-Options": "", "Content-Type": "text/plain",
	} {
		if all := strings.Join(got.header.Values(name), "|"); all != want && name != "X-Request-Id" || strings.Contains(all, "forged") {
			t.Errorf("%s is %q, want %q", name, all, want)
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

// What a page may ask of a preview, by what browsers say of the page.
func TestPagesOfOtherOriginsReachNoPreview(t *testing.T) {
	h := open(t, t.TempDir(), nil)
	h.program(t, 8000, tell)
	id := h.session(t, ann)
	c, made, at := h.enter(t, id, 8000)
	_, _, sibling := h.enter(t, id, 8000)
	for _, test := range []struct {
		name, method string
		status       int
		headers      []string
	}{
		{"its own page", "POST", 200, []string{"Origin", at, "Sec-Fetch-Site", "same-origin"}},
		{"a person", "GET", 200, []string{"Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}},
		{"somebody who follows a link", "GET", 200, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}},
		{"a page of a sibling", "GET", 403, []string{"Origin", sibling}},
		{"paddock's own page", "POST", 403, []string{"Origin", h.base}},
		{"a page of another port", "GET", 403, []string{"Origin", "http://" + made.ID + ".localhost:1"}},
		{"a page over TLS", "GET", 403, []string{"Origin", strings.Replace(at, "http:", "https:", 1)}},
		{"a page of nobody", "POST", 403, []string{"Origin", "null"}},
		{"two origins", "GET", 403, []string{"Origin", at, "Origin", "http://evil.example"}},
		{"an image on a sibling's page", "GET", 403, []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"}},
		{"a frame on another page", "GET", 403, []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}},
		{"a form of another page", "POST", 403, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}},
		{"a WebSocket of a sibling's page", "GET", 403, []string{"Origin", sibling, "Connection", "Upgrade", "Upgrade", "websocket", "Sec-Websocket-Key", "x", "Sec-Websocket-Version", "13"}},
		{"a service worker of its own", "GET", 403, []string{"Service-Worker", "script", "Sec-Fetch-Site", "same-origin"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := do(t, c, test.method, at+"/", "", test.headers...); got.status != test.status {
				t.Errorf("it says %d %s", got.status, got.body)
			}
		})
	}
}

// A program that calls itself paddock does so at its own address only, and its page can
// do nothing at paddock's.
func TestNoProgramIsTakenForPaddock(t *testing.T) {
	h := open(t, t.TempDir(), nil)
	h.program(t, 8000, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "program ", r.URL.Path) })
	c, made, at := h.enter(t, h.session(t, ann), 8000)
	for _, path := range []string{"/mcp", "/healthz", "/metrics", "/v1/sessions/x/files/y", "/api/v1/approvals", "/api/v1/sessions/x/previews", "/.well-known/oauth-protected-resource"} {
		if got := do(t, c, "GET", at+path, "", "Authorization", "Bearer "+annToken); got.body != "program "+path {
			t.Errorf("at %s there is %d %s", path, got.status, got.body)
		}
	}
	for name, test := range map[string]struct {
		status  int
		headers []string
	}{
		"its origin":            {403, []string{"Origin", at}},
		"its origin, with JSON": {403, []string{"Origin", at, "Content-Type", "application/json", "Authorization", "Bearer " + annToken}},
		"its site":              {403, []string{"Sec-Fetch-Site", "same-site", "Authorization", "Bearer " + annToken}},
		"its cookie":            {401, nil},
	} {
		if got := do(t, c, "POST", h.base+"/mcp", "{}", append(test.headers, "Content-Type", "application/json")...); got.status != test.status || got.body == "MCP" {
			t.Errorf("%s: paddock says %d %s", name, got.status, got.body)
		}
	}
	u, _ := url.Parse(h.base)
	if cookies := c.Jar.Cookies(u); len(cookies) != 0 {
		t.Errorf("paddock is sent %v", cookies)
	}
	// Names that are none of ours, which somebody's DNS has lead here.
	for _, host := range []string{"evil.example", made.ID + ".evil.example", made.ID + ".localhost.evil.example", made.ID + ".localhost.:" + h.port, "x." + made.ID + ".localhost:" + h.port, ".localhost", made.ID + "localhost"} {
		u, _ := url.Parse(at)
		got := h.raw(t, "GET / HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\nCookie: paddock-preview="+c.Jar.Cookies(u)[0].Value+"\r\n\r\n")
		if strings.Contains(got, "program") || !strings.HasPrefix(got, "HTTP/1.1 403") {
			t.Errorf("as %s it says %s", host, got)
		}
	}
	if got := do(t, c, "GET", at, "", "Host", strings.ToUpper(made.ID)+".LOCALHOST:"+h.port); !strings.Contains(got.body, "program") {
		t.Errorf("in capitals: %d %s", got.status, got.body)
	}
}

// webSocket opens one, or what calls itself so.
func webSocket(t *testing.T, h *house, c *http.Client, at, upgrade string) (net.Conn, *bufio.Reader, *http.Response) {
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

// echoes upgrades whoever asks for it, and then gives back what it is sent.
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
	if res.StatusCode != 101 || res.Header.Get("Set-Cookie") != "a=b" || res.Header.Get("Clear-Site-Data") != "" {
		t.Fatalf("it says %v", res)
	}
	fmt.Fprint(conn, "hello\n")
	if got, err := r.ReadString('\n'); got != "hello\n" || err != nil {
		t.Errorf("it gives %q, %v", got, err)
	}
	if _, _, res := webSocket(t, h, c, at, "h2c"); res.StatusCode != 200 {
		t.Errorf("what is no WebSocket is %v", res.Status)
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
		if got, err := r.ReadString('\n'); got != "data: "+text+"\n" || err != nil {
			t.Fatalf("it gives %q, %v", got, err)
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

// Answers that no program should give.
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
		"a status that is no number":    "HTTP/1.1 2x0 x\r\n\r\n",
		"an upgrade that nobody asked":  "HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfree bytes",
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
			if got.status != 502 || !strings.Contains(got.body, "gave no answer that can be passed on") || strings.Contains(got.body, "free bytes") || got.header.Get("Set-Cookie") != "" {
				t.Errorf("it says %d %.300s", got.status, got.body)
			}
		})
	}
	h.says(t, 8000, "HTTP/1.1 103 x\r\nSet-Cookie: a=b; Domain=localhost\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nTrailer: Set-Cookie\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nSet-Cookie: a=b\r\n\r\nHTTP/1.1 200 OK\r\n\r\nof nobody")
	if got := do(t, c, "GET", at, ""); got.status != 200 || got.body != "ok" || len(got.header.Values("Set-Cookie"))+len(got.header.Values("Link"))+len(got.header.Values("Trailer")) != 0 {
		t.Errorf("it says %d %s %v", got.status, got.body, got.header)
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
	if n, err := io.Copy(io.Discard, res.Body); err == nil || n > most {
		t.Errorf("%d bytes come, %v", n, err)
	}
	if got := do(t, c, "GET", at, ""); got.status != 429 || !strings.Contains(got.body, "as many bytes as it may") {
		t.Errorf("then it says %d %s", got.status, got.body)
	}
	again, _, there := h.enter(t, id, 8000)
	if res, err := again.Get(there); err != nil || res.StatusCode != 200 {
		t.Errorf("another preview: %v, %v", res, err)
	} else {
		res.Body.Close()
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

func TestAPreviewEndsWithItsTimeItsSessionAndWhenItIsRevoked(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir, nil)
	h.program(t, 8000, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "program") })
	id := h.session(t, ann)
	closed := func(name string, c *http.Client, made preview.Shown, at string) {
		t.Helper()
		if got := do(t, c, "GET", at, ""); got.status != 403 {
			t.Errorf("%s it says %d %s", name, got.status, got.body)
		}
		if got := do(t, h.browser(t), "GET", made.URL, ""); got.status != 403 {
			t.Errorf("%s its link says %d %s", name, got.status, got.body)
		}
	}
	c, made, at := h.enter(t, id, 8000)
	one := h.base + "/api/v1/sessions/" + string(id) + "/previews/" + made.ID
	if got := do(t, http.DefaultClient, "DELETE", one, "", "Authorization", "Bearer "+bobToken); got.status != 404 {
		t.Errorf("somebody else revokes it: %d %s", got.status, got.body)
	}
	if got := do(t, c, "GET", at, ""); got.body != "program" {
		t.Fatalf("it says %d %s", got.status, got.body)
	}
	if got := do(t, http.DefaultClient, "DELETE", one, "", "Authorization", "Bearer "+annToken); got.status != 200 || !strings.Contains(got.body, made.ID) {
		t.Errorf("revoking says %d %s", got.status, got.body)
	}
	closed("revoked", c, made, at)

	c, made, at = h.enter(t, id, 8000)
	forks, err := h.sessions.Fork(t.Context(), ann, id, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := h.store.List(ann, forks[0].ID); err != nil || len(all) != 0 {
		t.Errorf("a fork has %v, %v", all, err)
	}
	if err := h.sessions.Destroy(t.Context(), ann, id); err != nil {
		t.Fatal(err)
	}
	closed("without its session", c, made, at)

	// A session of the same id is another one, also where the file was put back.
	name := session.ID("again")
	for range 2 {
		if _, err := h.sessions.Create(t.Context(), ann, name, session.Settings{}); err != nil {
			t.Fatal(err)
		}
		if err := h.sessions.Boot(t.Context(), ann, name); err != nil {
			t.Fatal(err)
		}
		if at2 := c; at2 != nil && made.Session == name {
			closed("with another session of its id", c, made, at)
			break
		}
		c, made, at = h.enter(t, name, 8000)
		file := filepath.Join(dir, "previews", made.ID+".json")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.sessions.Destroy(t.Context(), ann, name); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	// What a file says is nothing without its signature.
	id = h.session(t, ann)
	c, made, at = h.enter(t, id, 8000)
	file := filepath.Join(dir, "previews", made.ID+".json")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{`"port":8000`: `"port":22`, made.Expires.UTC().Format(time.RFC3339): made.Expires.Add(time.Hour).UTC().Format(time.RFC3339)} {
		if err := os.WriteFile(file, []byte(strings.Replace(string(text), from, to, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		closed("with another "+from, c, made, at)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := do(t, c, "GET", at, ""); got.body != "program" {
		t.Errorf("as it was it says %d %s", got.status, got.body)
	}
}

func TestAPreviewExpires(t *testing.T) {
	h := open(t, t.TempDir(), nil)
	h.program(t, 8000, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	id := h.session(t, ann)
	made, _ := h.make(t, annToken, id, `{"port": 8000, "ttl_seconds": 2}`)
	c := h.browser(t)
	res, err := c.Get(made.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("an answer without end ends well")
	}
	if got := do(t, c, "GET", strings.Split(made.URL, "/.paddock/")[0], ""); got.status != 403 {
		t.Errorf("then it says %d %s", got.status, got.body)
	}
	if all, err := h.store.List(ann, id); err != nil || len(all) != 0 {
		t.Errorf("there are %v, %v", all, err)
	}
}

func TestAPreviewOutlivesItsServer(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir, nil)
	id := h.session(t, ann)
	c, made, _ := h.enter(t, id, 8000)
	jar := c.Jar.(*cookiejar.Jar)
	h.stop()
	h = open(t, dir, nil)
	h.program(t, 8000, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "program") })
	if err := h.sessions.Boot(t.Context(), ann, id); err != nil {
		t.Fatal(err)
	}
	c = h.browser(t)
	c.Jar = jar // cookies know no ports
	if got := do(t, c, "GET", h.server.PreviewURL(made.ID), ""); got.body != "program" {
		t.Errorf("it says %d %s", got.status, got.body)
	}
}

func TestASessionThatSleepsIsWokenIfItsMachineWasSaved(t *testing.T) {
	h := open(t, t.TempDir(), nil)
	h.program(t, 8000, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "program") })
	id := h.session(t, ann)
	c, _, at := h.enter(t, id, 8000)
	state := func() session.State {
		i, err := h.sessions.Info(ann, id)
		if err != nil {
			t.Fatal(err)
		}
		return i.State
	}
	if err := h.sessions.Sleep(ann, id); err != nil {
		t.Fatal(err)
	}
	if got := do(t, c, "GET", at, ""); got.body != "program" || state() != session.Live {
		t.Errorf("asleep it says %d %s, and is %s", got.status, got.body, state())
	}
	if got := do(t, c, "GET", strings.Replace(at, "http://", "http://", 1)+"/", "", "Accept", "text/html"); got.status != 200 {
		t.Errorf("it says %d", got.status)
	}
	if err := h.sessions.Halt(t.Context(), ann, id); err != nil {
		t.Fatal(err)
	}
	if got := do(t, c, "GET", at, ""); got.status != 503 || !strings.Contains(got.body, "is stopped") {
		t.Errorf("stopped it says %d %s", got.status, got.body)
	}
	if err := h.sessions.Boot(t.Context(), ann, id); err != nil {
		t.Fatal(err)
	}
	h.backend.serves(8000, "")
	if got := do(t, c, "GET", at, "", "Accept", "text/html"); got.status != 502 || !strings.Contains(got.body, "listens at port 8000") || !strings.Contains(got.body, "start a program there") {
		t.Errorf("where nobody listens it says %d %s", got.status, got.body)
	}
	if _, err := h.sessions.Reset(t.Context(), ann, id); err != nil {
		t.Fatal(err)
	}
	if got := do(t, c, "GET", at, ""); got.status != 502 || !strings.Contains(got.body, "no machine of the session") || state() == session.Live {
		t.Errorf("without a machine it says %d %s, and is %s", got.status, got.body, state())
	}
}

func TestWhoMayMakeWhichPreviews(t *testing.T) {
	h := open(t, t.TempDir(), nil)
	id := h.session(t, ann)
	guest, err := h.sessions.Create(t.Context(), ann, "", session.Settings{Isolation: "wasm"})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		token  string
		id     session.ID
		ask    string
		status int
		says   string
	}{
		"another owner's":          {bobToken, id, `{"port":8000}`, 404, "there is no session"},
		"a token for files":        {filesToken, id, `{"port":8000}`, 403, "not good for previews"},
		"nobody's token":           {"wrong-token-0123456789", id, `{"port":8000}`, 401, ""},
		"a session in WebAssembly": {annToken, guest.ID, `{"port":8000}`, 501, "listen at no ports"},
		"no port":                  {annToken, id, `{}`, 400, "a port lies between"},
		"too large a port":         {annToken, id, `{"port":65536}`, 400, "not what is expected"},
		"another field":            {annToken, id, `{"port":1,"host":"x"}`, 400, "not what is expected"},
		"too long a time":          {annToken, id, `{"port":1,"ttl_seconds":86401}`, 400, "ttl_seconds"},
		"a time below nothing":     {annToken, id, `{"port":1,"ttl_seconds":-1}`, 400, "ttl_seconds"},
		"a path of another host":   {annToken, id, `{"port":1,"path":"//evil.example"}`, 400, "is not one of the preview's"},
		"a path with a backslash":  {annToken, id, `{"port":1,"path":"/\\evil.example"}`, 400, "is not one of the preview's"},
		"a path with a line":       {annToken, id, `{"port":1,"path":"/a\r\nSet-Cookie: a=b"}`, 400, "is not one of the preview's"},
		"a path that is paddock's": {annToken, id, `{"port":1,"path":"/.paddock/open/x"}`, 400, "is not one of the preview's"},
		"a session that never was": {annToken, "nothing", `{"port":1}`, 404, "there is no session"},
		"what is no session's id":  {annToken, "..%2Fx", `{"port":1}`, 400, "a session id has"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, got := h.make(t, test.token, test.id, test.ask); got.status != test.status || !strings.Contains(got.body, test.says) {
				t.Errorf("it says %d %s", got.status, got.body)
			}
		})
	}
	for range 3 {
		if _, got := h.make(t, annToken, id, `{"port":8000}`); got.status != 201 {
			t.Fatalf("it says %d %s", got.status, got.body)
		}
	}
	list := h.base + "/api/v1/sessions/" + string(id) + "/previews"
	if got := do(t, http.DefaultClient, "GET", list, "", "Authorization", "Bearer "+annToken); strings.Count(got.body, `"preview_id"`) != 3 || strings.Contains(got.body, "open/") {
		t.Errorf("there are %s", got.body)
	}
	if got := do(t, http.DefaultClient, "GET", list, "", "Authorization", "Bearer "+bobToken); got.status != 404 {
		t.Errorf("somebody else is told %d %s", got.status, got.body)
	}
	if got := do(t, http.DefaultClient, "PATCH", list, "", "Authorization", "Bearer "+annToken); got.status != 405 {
		t.Errorf("PATCH: %d %s", got.status, got.body)
	}
	for range 300 {
		if _, got := h.make(t, annToken, id, `{"port":8000}`); got.status == 429 {
			return
		}
	}
	t.Error("there is no end to previews")
}

func TestOverTLSTheCookieIsThisHostsAlone(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	h := open(t, t.TempDir(), func(c *web.Config, _ *preview.Config) {
		c.Port = port
		c.PublicURL, c.PreviewDomain, c.TrustedProxies = "https://paddock.example.com", "Preview.example.net", []string{"127.0.0.1"}
	})
	h.base = fmt.Sprint("http://127.0.0.1:", port)
	h.program(t, 8000, tell)
	id := h.session(t, ann)
	r := []string{"Authorization", "Bearer " + annToken, "X-Forwarded-Proto", "https", "X-Forwarded-Host", "paddock.example.com", "Content-Type", "application/json"}
	got := do(t, http.DefaultClient, "POST", h.base+"/api/v1/sessions/"+string(id)+"/previews", `{"port":8000}`, r...)
	at, _, _ := strings.Cut(strings.SplitN(got.body, `"url":"`, 2)[1], `"`)
	u, err := url.Parse(at)
	if err != nil || u.Scheme != "https" || !strings.HasSuffix(u.Host, ".preview.example.net") {
		t.Fatalf("the URL is %s, %v", at, err)
	}
	forwarded := []string{"X-Forwarded-Proto", "https", "X-Forwarded-Host", u.Host, "X-Forwarded-For", "192.0.2.7"}
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	got = do(t, c, "GET", h.base+u.Path, "", forwarded...)
	cookie := got.header.Get("Set-Cookie")
	if !strings.HasPrefix(cookie, "__Host-paddock-preview=") || !strings.Contains(cookie, "; Secure") || strings.Contains(cookie, "Domain") {
		t.Fatalf("it says %d, with the cookie %s", got.status, cookie)
	}
	value, _, _ := strings.Cut(cookie, ";")
	got = do(t, c, "GET", h.base+"/", "", append(forwarded, "Cookie", value)...)
	if !strings.Contains(got.body, "host="+u.Host) || !strings.Contains(got.body, "X-Forwarded-Proto: https") || !strings.Contains(got.body, "X-Forwarded-For: 192.0.2.7") {
		t.Errorf("the program sees %s", got.body)
	}
	if got := do(t, c, "GET", h.base+"/", "", "Host", strings.Split(u.Host, ".")[0]+".localhost", "Cookie", value); got.status != 403 {
		t.Errorf("at localhost it says %d %s", got.status, got.body)
	}
}

func TestADomainOfPreviewsIsForNothingElse(t *testing.T) {
	for _, domain := range []string{"paddock.example.com", "example.com", "localhost", "127.0.0.1", "a..example", "-a.example", "a.example:80", "*.example.com", "exa mple.com"} {
		_, err := web.New(web.Config{Dev: true, PublicURL: "https://paddock.example.com", PreviewDomain: domain})
		if f := fault.Of(err); fault.KindOf(err) != fault.Invalid || !strings.Contains(f.Hint, "preview_domain") {
			t.Errorf("%s: %v", domain, err)
		}
	}
	if _, err := web.New(web.Config{Dev: true, PublicURL: "https://paddock.example.com", PreviewDomain: "previews.example.com"}); err != nil {
		t.Error(err)
	}
}
