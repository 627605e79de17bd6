package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"paddock/internal/fault"
)

// each runs a test as a program behind the proxy, and as one with a stream.
func each(t *testing.T, d *Proxy, test func(t *testing.T, c *http.Client)) {
	t.Helper()
	for name, c := range map[string]*http.Client{"proxy": program(t, d), "stream": stream(t, d)} {
		t.Run(name, func(t *testing.T) { test(t, c) })
	}
}

// begun gives an answer whose header has come.
func begun(t *testing.T, c *http.Client, url string) *http.Response {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// inHalves reads an answer whose second half comes when it is asked for.
func inHalves(t *testing.T, resp *http.Response, next chan<- struct{}, first, later string) {
	t.Helper()
	half := make([]byte, len(first))
	if _, err := io.ReadFull(resp.Body, half); err != nil {
		t.Errorf("the first half: got error %v, want none", err)
	} else if string(half) != first {
		t.Errorf("the first half: half = %q, want %q", string(half), first)
	}
	next <- struct{}{}
	if rest, err := io.ReadAll(resp.Body); err != nil {
		t.Errorf("the second half: got error %v, want none", err)
	} else if string(rest) != later {
		t.Errorf("the second half: rest = %q, want %q", string(rest), later)
	}
}

func TestAnswersComeAsTheyAreWritten(t *testing.T) {
	next := make(chan struct{})
	s := serves(t, false, func(w http.ResponseWriter, r *http.Request) { writes(w, r, next) })
	d, _ := opened(t, Config{}, "127.0.0.1:"+s.port()+"!private")
	each(t, d, func(t *testing.T, c *http.Client) {
		inHalves(t, begun(t, c, s.URL+"/events"), next, "data: 1\n", "\ndata: 2\n\n")
		inHalves(t, begun(t, c, s.URL+"/sized"), next, "first", "later")
		bothTalk(t, c, s.URL+"/talk")
		hasTrailer(t, c, s.URL+"/trailer")
		hasStatusAndHeader(t, c, s.URL)
		long := strings.Repeat("0123456789", 100_000)
		if a := send(t, c, "POST", s.URL+"/echo", io.MultiReader(strings.NewReader(long))); a.body != long {
			t.Errorf("a chunked body comes back as %d bytes, %v", len(a.body), a.err)
		}
		if a := send(t, c, "PUT", s.URL+"/echo", strings.NewReader(long), "Expect", "100-continue"); a.body != long {
			t.Errorf("a body that was waited for comes back as %d bytes, %v", len(a.body), a.err)
		}
	})
}

// writes answers in a way of each path; where an answer has a second half, it waits for next.
func writes(w http.ResponseWriter, r *http.Request, next <-chan struct{}) {
	switch r.URL.Path {
	case "/events":
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		<-next
		fmt.Fprint(w, "data: 2\n\n")
	case "/sized":
		w.Header().Set("Content-Length", "10")
		fmt.Fprint(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-next
		fmt.Fprint(w, "later")
	case "/talk":
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		for word := make([]byte, 4); ; {
			n, err := r.Body.Read(word)
			_, _ = w.Write(word[:n])
			_ = rc.Flush()
			if err != nil {
				return
			}
		}
	case "/trailer":
		w.Header().Set("Trailer", "X-Sum")
		fmt.Fprint(w, "body")
		_ = http.NewResponseController(w).Flush()
		w.Header().Set("X-Sum", "42")
		w.Header().Set(http.TrailerPrefix+"X-Late", "43")
	case "/none":
		w.WriteHeader(http.StatusNoContent)
	case "/same":
		w.Header().Set("Etag", `"x"`)
		w.WriteHeader(http.StatusNotModified)
	case "/hints":
		w.Header().Set("Link", "</a>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		fmt.Fprint(w, "late")
	case "/echo":
		_ = http.NewResponseController(w).EnableFullDuplex()
		_, _ = io.Copy(w, r.Body)
	default:
		w.Header().Set("Content-Length", "5")
		fmt.Fprint(w, "hello")
	}
}

// bothTalk checks that a program and a server answer each other within one request.
func bothTalk(t *testing.T, c *http.Client, at string) {
	t.Helper()
	says, program := io.Pipe()
	go func() { _, _ = io.WriteString(program, "ping") }()
	resp, err := c.Post(at, "text/plain", says)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"ping", "pong"} {
		got := make([]byte, 4)
		if _, err := io.ReadFull(resp.Body, got); err != nil {
			t.Errorf("both talk: got error %v, want none", err)
		} else if string(got) != word {
			t.Errorf("both talk: got %q, want %q", string(got), word)
		}
		if word == "ping" {
			_, _ = io.WriteString(program, "pong")
		}
	}
	program.Close()
	resp.Body.Close()
}

// hasTrailer checks that an answer's trailers come, also those that it did not announce.
func hasTrailer(t *testing.T, c *http.Client, at string) {
	t.Helper()
	resp := begun(t, c, at)
	switch body, err := io.ReadAll(resp.Body); {
	case err != nil:
		t.Errorf("with a trailer: %v", err)
	case string(body) != "body":
		t.Errorf(`with a trailer: body = %q, want "body"`, string(body))
	case resp.Trailer.Get("X-Sum") != "42":
		t.Errorf(`with a trailer: header X-Sum = %q, want "42"`, resp.Trailer.Get("X-Sum"))
	case resp.Trailer.Get("X-Late") != "43":
		t.Errorf(`with a trailer: header X-Late = %q, want "43"`, resp.Trailer.Get("X-Late"))
	}
	resp.Body.Close()
}

// hasStatusAndHeader checks answers that have no body, or come after a hint.
func hasStatusAndHeader(t *testing.T, c *http.Client, at string) {
	t.Helper()
	switch a := ask(t, c, "HEAD", at); {
	case a.status != 200:
		t.Errorf("HEAD: a.status = %v, want 200: %+v", a.status, a)
	case a.header.Get("Content-Length") != "5":
		t.Errorf(`HEAD: header Content-Length = %q, want "5"`, a.header.Get("Content-Length"))
	case a.body != "":
		t.Errorf(`HEAD: a.body = %q, want ""`, a.body)
	}
	if a := ask(t, c, "GET", at+"/none"); a.status != 204 {
		t.Errorf("204: a.status = %d, want 204: %+v", a.status, a)
	} else if a.body != "" {
		t.Errorf(`204: a.body = %q, want "": %+v`, a.body, a)
	}
	if a := ask(t, c, "GET", at+"/same"); a.status != 304 {
		t.Errorf("304: a.status = %d, want 304: %+v", a.status, a)
	} else if a.header.Get("Etag") != `"x"` {
		t.Errorf("304: header Etag = %q, want %q: %+v", a.header.Get("Etag"), `"x"`, a)
	}
	if a := ask(t, c, "GET", at+"/hints"); a.status != 200 {
		t.Errorf("103: a.status = %d, want 200: %+v", a.status, a)
	} else if a.body != "late" {
		t.Errorf(`103: a.body = %q, want "late": %+v`, a.body, a)
	}
}

// A program asks whether it may send, and is told before it does.
func TestABodyIsNotAskedForInVain(t *testing.T) {
	s := serves(t, false, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	at := "127.0.0.1:" + s.port()
	d, _ := opened(t, Config{}, at+"!private")
	proxy := proxied(t, d)
	conn := dial(t, proxy)
	fmt.Fprintf(conn, "POST http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n")
	if text := raw(t, conn, ""); !strings.HasPrefix(text, "HTTP/1.1 403") {
		t.Errorf("one that may not: %q", text)
	}
	conn = dial(t, proxy)
	defer conn.Close()
	fmt.Fprintf(conn, "POST http://%s/ HTTP/1.1\r\nHost: %s\r\nExpect: 100-continue\r\nContent-Length: 3\r\nConnection: close\r\n\r\n", at, at)
	lines := bufio.NewReader(conn)
	if line, err := lines.ReadString('\n'); err != nil {
		t.Errorf("one that may: got error %v, want none", err)
	} else if line != "HTTP/1.1 100 Continue\r\n" {
		t.Errorf("one that may: line = %q, want %q", line, "HTTP/1.1 100 Continue\r\n")
	}
	fmt.Fprint(conn, "abc")
	if rest, err := io.ReadAll(lines); err != nil {
		t.Errorf("got error %v, want none", err)
	} else if !strings.HasSuffix(string(rest), "\r\n\r\nabc") {
		t.Errorf("rest = %q, want it to end with %q", string(rest), "\r\n\r\nabc")
	}
}

func TestOldProgramsAreServed(t *testing.T) {
	s := serves(t, false, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush() // chunked
		fmt.Fprint(w, "hello")
	})
	d, _ := opened(t, Config{}, "127.0.0.1:"+s.port()+"!private")
	if text := raw(t, dial(t, proxied(t, d)), "GET "+s.URL+"/ HTTP/1.0\r\n\r\n"); !strings.HasPrefix(text, "HTTP/1.0 200") {
		t.Errorf(`by the proxy: text = %q, want it to begin with "HTTP/1.0 200"`, text)
	} else if !strings.HasSuffix(text, "\r\n\r\nhello") {
		t.Errorf("by the proxy: text = %q, want it to end with %q", text, "\r\n\r\nhello")
	}
	n, _ := strconv.Atoi(s.port())
	if text := raw(t, opens(t, d, "127.0.0.1", n, false), "GET / HTTP/1.0\r\n\r\n"); !strings.HasPrefix(text, "HTTP/1.0 200") {
		t.Errorf(`by a stream: text = %q, want it to begin with "HTTP/1.0 200"`, text)
	} else if !strings.HasSuffix(text, "\r\n\r\nhello") {
		t.Errorf("by a stream: text = %q, want it to end with %q", text, "\r\n\r\nhello")
	}
}

// A redirect is an answer like others: where it leads is the program's next request (32).
func TestARedirectIsTheProgramsNextRequest(t *testing.T) {
	inner := serves(t, false, nil)
	s := serves(t, false, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	d, _ := opened(t, Config{}, "127.0.0.1:"+s.port()+"!private")
	each(t, d, func(t *testing.T, c *http.Client) {
		for _, to := range []string{inner.URL + "/secret", "http://localhost:" + inner.port() + "/", "http://169.254.169.254/latest/meta-data/", "http://[::1]:" + inner.port(), "https://evil.example/", "http://2130706433:" + inner.port()} {
			a := ask(t, c, "GET", s.URL+"/?to="+to, "Authorization", "Bearer x")
			if a.status != 307 {
				t.Fatalf("a.status = %d, want 307: %+v", a.status, a)
			}
			if a.header.Get("Location") != to {
				t.Fatalf("header Location = %q, want %q: %+v", a.header.Get("Location"), to, a)
			}
			if strings.HasPrefix(to, "https:") {
				continue // without TLS in streams of tests
			}
			if a := ask(t, c, "GET", to, "Authorization", "Bearer x"); a.err == nil && a.status != 403 && a.status != 400 {
				t.Errorf("%s gives %+v", to, a)
			}
		}
		for _, to := range []string{"file:///etc/passwd", "gopher://127.0.0.1:70/"} {
			if a := ask(t, c, "GET", s.URL+"/?to="+to); a.status != 307 {
				t.Errorf("%s: %+v", to, a)
			}
		}
	})
	if seen := inner.asked(); len(seen) > 0 {
		t.Errorf("what is inside was asked %v", seen)
	}
}

func TestWhatFailsIsToldFromWhatIsRefused(t *testing.T) {
	s := serves(t, true, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	down := l.Addr().String()
	l.Close()
	odd, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer odd.Close()
	go func() {
		for {
			conn, err := odd.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1000))
			fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
			conn.Close()
		}
	}()
	d, got := opened(t, Config{Resolver: names{"wrong.example": "127.0.0.1"}}, down+"!private", odd.Addr().String()+"!private", "wrong.example:*!private", "none.example")
	c := program(t, d)
	for k, want := range []struct {
		url    string
		status int
		cause  string
	}{
		{"http://" + down, 502, "unreachable"},
		{"http://none.example", 502, "dns"},
		{"https://wrong.example:" + s.port(), 502, "tls"},
		{"http://" + odd.Addr().String(), 403, "protocol"},
	} {
		a := ask(t, c, "GET", want.url)
		if a.status != want.status {
			t.Errorf("%s: a.status = %d, want %d: %+v", want.url, a.status, want.status, a)
		} else if !strings.HasPrefix(a.header.Get(failedHeader)+a.header.Get(deniedHeader), want.cause+": ") {
			t.Errorf("%s: got %q, want it to begin with %q",
				want.url, a.header.Get(failedHeader)+a.header.Get(deniedHeader), want.cause+": ")
		}
		if r := got.wait(t, k+1)[k]; r.Cause != want.cause {
			t.Errorf("%s: r.Cause = %q, want %q: %+v", want.url, r.Cause, want.cause, r)
		} else if r.Status != want.status {
			t.Errorf("%s: r.Status = %d, want %d: %+v", want.url, r.Status, want.status, r)
		}
	}
	if list := d.Denials(); len(list) != 1 {
		t.Errorf("what failed counts as refused: len(list) = %d, want 1: %+v", len(list), list)
	} else if list[0].Cause != "protocol" {
		t.Errorf(`what failed counts as refused: list[0].Cause = %q, want "protocol"`, list[0].Cause)
	}
}

func TestHostsOfOurOwn(t *testing.T) {
	local := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL, " ", r.Host) })
	d, got := opened(t, Config{Local: map[string]http.Handler{"packages.paddock.internal": local}})
	c := program(t, d)
	for _, scheme := range []string{"http", "https"} {
		if a := ask(t, c, "GET", scheme+"://Packages.paddock.internal/pypi/simple/?a"); a.body != scheme+"://packages.paddock.internal/pypi/simple/?a packages.paddock.internal" {
			t.Errorf("%s: %+v", scheme, a)
		}
	}
	if a := ask(t, c, "GET", "http://packages.paddock.internal:8080/"); a.status != 403 {
		t.Errorf("at another port: %+v", a)
	}
	if a := ask(t, c, "GET", "http://other.paddock.internal/"); a.status != 403 {
		t.Errorf("another name: %+v", a)
	}
	switch {
	case !d.Knows("packages.paddock.internal"):
		t.Error(`what it knows is wrong: d.Knows("packages.paddock.internal") = false, want true`)
	case d.Reach("packages.paddock.internal", 443) != nil:
		t.Errorf(`what it knows is wrong: d.Reach("packages.paddock.internal", 443) = %v, want nil`,
			d.Reach("packages.paddock.internal", 443))
	case d.Reach("packages.paddock.internal", 22) == nil:
		t.Error(`what it knows is wrong: d.Reach("packages.paddock.internal", 22) is nil, want an error`)
	}
	switch r := got.wait(t, 1)[0]; {
	case r.Decision != Local:
		t.Errorf("the record: r.Decision = %v, want %v: %+v", r.Decision, Local, r)
	case r.Status != 200:
		t.Errorf("the record: r.Status = %v, want 200: %+v", r.Status, r)
	case r.Received == 0:
		t.Errorf("the record: r.Received = %v, want other than 0: %+v", r.Received, r)
	case d.Usage().Received != 0:
		t.Errorf("the record: d.Usage().Received = %v, want 0: %+v", d.Usage().Received, r)
	}
	if _, err := New(Config{Local: map[string]http.Handler{"a b": local, "c": nil}}); err == nil {
		t.Error("mistakes give no error, want one")
	} else if kind := fault.KindOf(err); kind != fault.Invalid && kind != fault.Internal {
		t.Errorf("mistakes give an error of the kind %q, want %q or %q: %v", kind, fault.Invalid, fault.Internal, err)
	}
}
