package door

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/fault"
)

// each runs a test as a program behind the proxy, and as one with a stream.
func each(t *testing.T, d *Door, test func(t *testing.T, c *http.Client)) {
	t.Helper()
	for name, c := range map[string]*http.Client{"proxy": program(t, d), "stream": stream(t, d)} {
		t.Run(name, func(t *testing.T) { test(t, c) })
	}
}

func TestAnswersComeAsTheyAreWritten(t *testing.T) {
	next := make(chan struct{})
	s := serves(t, false, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/events":
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: 1\n\n")
			_ = http.NewResponseController(w).Flush()
			<-next
			fmt.Fprint(w, "data: 2\n\n")
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
	})
	d, _ := opened(t, Config{}, "127.0.0.1:"+s.port()+"!private")
	each(t, d, func(t *testing.T, c *http.Client) {
		resp, err := c.Get(s.URL + "/events")
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(resp.Body)
		if line, err := lines.ReadString('\n'); line != "data: 1\n" || err != nil {
			t.Errorf("the first event is %q, %v", line, err)
		}
		next <- struct{}{}
		if rest, err := io.ReadAll(lines); string(rest) != "\ndata: 2\n\n" || err != nil {
			t.Errorf("the second is %q, %v", rest, err)
		}
		resp.Body.Close()
		resp, err = c.Get(s.URL + "/trailer")
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); string(body) != "body" || err != nil || resp.Trailer.Get("X-Sum") != "42" || resp.Trailer.Get("X-Late") != "43" {
			t.Errorf("with a trailer: %q, %v, %v", body, resp.Trailer, err)
		}
		resp.Body.Close()
		if a := ask(t, c, "HEAD", s.URL); a.status != 200 || a.header.Get("Content-Length") != "5" || a.body != "" {
			t.Errorf("HEAD: %+v", a)
		}
		if a := ask(t, c, "GET", s.URL+"/none"); a.status != 204 || a.body != "" {
			t.Errorf("204: %+v", a)
		}
		if a := ask(t, c, "GET", s.URL+"/same"); a.status != 304 || a.header.Get("Etag") != `"x"` {
			t.Errorf("304: %+v", a)
		}
		if a := ask(t, c, "GET", s.URL+"/hints"); a.status != 200 || a.body != "late" {
			t.Errorf("103: %+v", a)
		}
		long := strings.Repeat("0123456789", 100_000)
		if a := send(t, c, "POST", s.URL+"/echo", io.MultiReader(strings.NewReader(long))); a.body != long {
			t.Errorf("a chunked body comes back as %d bytes, %v", len(a.body), a.err)
		}
		if a := send(t, c, "PUT", s.URL+"/echo", strings.NewReader(long), "Expect", "100-continue"); a.body != long {
			t.Errorf("a body that was waited for comes back as %d bytes, %v", len(a.body), a.err)
		}
	})
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
	if line, err := lines.ReadString('\n'); line != "HTTP/1.1 100 Continue\r\n" || err != nil {
		t.Errorf("one that may: %q, %v", line, err)
	}
	fmt.Fprint(conn, "abc")
	if rest, err := io.ReadAll(lines); !strings.HasSuffix(string(rest), "\r\n\r\nabc") || err != nil {
		t.Errorf("then %q, %v", rest, err)
	}
}

func TestOldProgramsAreServed(t *testing.T) {
	s := serves(t, false, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush() // chunked
		fmt.Fprint(w, "hello")
	})
	d, _ := opened(t, Config{}, "127.0.0.1:"+s.port()+"!private")
	if text := raw(t, dial(t, proxied(t, d)), "GET "+s.URL+"/ HTTP/1.0\r\n\r\n"); !strings.HasPrefix(text, "HTTP/1.0 200") || !strings.HasSuffix(text, "\r\n\r\nhello") {
		t.Errorf("by the proxy: %q", text)
	}
	n, _ := strconv.Atoi(s.port())
	if text := raw(t, opens(t, d, "127.0.0.1", n, false), "GET / HTTP/1.0\r\n\r\n"); !strings.HasPrefix(text, "HTTP/1.0 200") || !strings.HasSuffix(text, "\r\n\r\nhello") {
		t.Errorf("by a stream: %q", text)
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
			if a.status != 307 || a.header.Get("Location") != to {
				t.Fatalf("%s: %+v", to, a)
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

func TestBudgetsEndWhatHasNoEnd(t *testing.T) {
	s := serves(t, false, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			_, _ = io.Copy(io.Discard, r.Body)
			return
		}
		for chunk := make([]byte, 64<<10); ; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	for _, want := range []struct {
		method string
		b      Budgets
		used   func(Usage) int64
	}{
		{"GET", Budgets{Received: 1 << 20}, func(u Usage) int64 { return u.Received }},
		{"POST", Budgets{Sent: 1 << 20}, func(u Usage) int64 { return u.Sent }},
	} {
		d, got := opened(t, Config{Budgets: want.b}, "127.0.0.1:"+s.port()+"!private")
		c := program(t, d)
		var body io.Reader
		if want.method == "POST" {
			body = endless{}
		}
		a := send(t, c, want.method, s.URL, body)
		if a.err == nil && a.status != 403 || len(a.body) > 1<<20 {
			t.Errorf("%s without end: %d bytes, %+v", want.method, len(a.body), a.err)
		}
		if r := got.wait(t, 1)[0]; r.Decision != Exhausted || r.Cause != "budget" {
			t.Errorf("the record is %+v", r)
		}
		if n := want.used(d.Usage()); n < 1<<20 || n > 1<<20+128<<10 {
			t.Errorf("%s: %d bytes were counted", want.method, n)
		}
		a = ask(t, c, "GET", s.URL)
		if a.status != 403 || !strings.Contains(a.body, "has used up its network budget of 1048576 bytes") {
			t.Errorf("afterwards: %+v", a)
		}
		if a := ask(t, c, "GET", "https://127.0.0.1:"+s.port()); a.err == nil || !strings.Contains(a.err.Error(), "used up") {
			t.Errorf("CONNECT afterwards: %+v", a.err)
		}
		again, _ := opened(t, Config{Budgets: want.b, Used: d.Usage()}, "127.0.0.1:"+s.port()+"!private")
		if a := ask(t, program(t, again), "GET", s.URL); a.status != 403 {
			t.Errorf("in another process: %+v", a)
		}
	}
}

// endless is a body.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestRequestsAndConnectionsAreCounted(t *testing.T) {
	hold := make(chan struct{})
	s := serves(t, false, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			_ = http.NewResponseController(w).Flush()
			<-hold
		}
	})
	d, got := opened(t, Config{Budgets: Budgets{Requests: 3}}, "127.0.0.1:"+s.port()+"!private")
	c := program(t, d)
	for k, want := range []int{200, 403, 200, 403, 403} { // what is refused counts as well
		target := s.URL
		if want == 403 {
			target = "http://evil.example"
		}
		a := ask(t, c, "GET", target)
		if a.status != want || (k >= 3) != strings.Contains(a.body, "network budget of 3 requests") {
			t.Errorf("request %d: %+v", k, a)
		}
	}
	if r := got.wait(t, 5)[4]; r.Decision != Exhausted {
		t.Errorf("the record is %+v", r)
	}
	d, _ = opened(t, Config{Budgets: Budgets{Connections: 2}}, "127.0.0.1:"+s.port()+"!private")
	c = program(t, d)
	var held []*http.Response
	for range 2 {
		resp, err := c.Get(s.URL + "/hold")
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, resp)
	}
	if a := ask(t, c, "GET", s.URL); a.status != 503 || a.header.Get("Retry-After") == "" || !strings.Contains(a.body, "2 connections") {
		t.Errorf("the third: %+v", a)
	}
	close(hold)
	for _, resp := range held {
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	if a := ask(t, c, "GET", s.URL); a.status != 200 {
		t.Errorf("when one is free: %+v", a)
	}
}

// Headers and bodies that come byte by byte or not at all, and answers that nobody reads.
func TestWhoIsSlowIsNotWaitedFor(t *testing.T) {
	slow := func(t *testing.T, test func(t *testing.T, d *Door, program net.Conn, got *records)) {
		synctest.Test(t, func(t *testing.T) {
			block := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/read":
					_, err := io.Copy(io.Discard, r.Body)
					http.Error(w, fmt.Sprint(err), 500)
				case "/write":
					for chunk := make([]byte, 1<<20); ; {
						if _, err := w.Write(chunk); err != nil {
							return
						}
					}
				case "/drip":
					for r.Context().Err() == nil {
						fmt.Fprint(w, ".")
						_ = http.NewResponseController(w).Flush()
						time.Sleep(time.Minute)
					}
				default:
					<-r.Context().Done()
				}
			})
			got := &records{came: make(chan struct{}, 1)}
			d, err := New(Config{Local: map[string]http.Handler{"local.internal": block}, Record: got.add})
			if err != nil {
				t.Fatal(err)
			}
			a, b := net.Pipe()
			done := make(chan struct{})
			go func() { defer close(done); d.ServeOrigin(context.Background(), b, "local.internal", 80, false) }()
			test(t, d, a, got)
			a.Close()
			<-done
			d.Close()
		})
	}
	ends := func(t *testing.T, conn net.Conn, after time.Duration) string {
		t.Helper()
		begin := time.Now()
		text, _ := io.ReadAll(conn)
		if took := time.Since(begin); took != after {
			t.Errorf("it ends after %v with %.200q", took, text)
		}
		return string(text)
	}
	t.Run("no header", func(t *testing.T) {
		slow(t, func(t *testing.T, d *Door, conn net.Conn, _ *records) { ends(t, conn, 30*time.Second) })
	})
	t.Run("a header byte by byte", func(t *testing.T) {
		slow(t, func(t *testing.T, d *Door, conn net.Conn, _ *records) {
			var writing sync.WaitGroup
			defer writing.Wait()
			writing.Go(func() {
				for _, b := range []byte("GET / HTTP/1.1\r\nHost: local.internal\r\nA: " + strings.Repeat("a", 1000)) {
					if _, err := conn.Write([]byte{b}); err != nil {
						return
					}
					time.Sleep(time.Second)
				}
			})
			ends(t, conn, 30*time.Second)
		})
	})
	t.Run("no next request", func(t *testing.T) {
		slow(t, func(t *testing.T, d *Door, conn net.Conn, _ *records) {
			go func() { _, _ = io.WriteString(conn, "TRACE / HTTP/1.1\r\nHost: local.internal\r\n\r\n") }()
			if text := ends(t, conn, 2*time.Minute); !strings.HasPrefix(text, "HTTP/1.1 403") {
				t.Errorf("got %q", text)
			}
		})
	})
	t.Run("no body", func(t *testing.T) {
		slow(t, func(t *testing.T, d *Door, conn net.Conn, got *records) {
			go func() {
				_, _ = io.WriteString(conn, "POST /read HTTP/1.1\r\nHost: local.internal\r\nContent-Length: 10\r\n\r\nabc")
			}()
			ends(t, conn, 5*time.Minute)
			if r := got.wait(t, 1)[0]; r.Cause != "idle" || r.Duration != 5*time.Minute {
				t.Errorf("the record is %+v", r)
			}
		})
	})
	t.Run("no answer", func(t *testing.T) {
		slow(t, func(t *testing.T, d *Door, conn net.Conn, got *records) {
			go func() { _, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: local.internal\r\n\r\n") }()
			ends(t, conn, 5*time.Minute)
			if r := got.wait(t, 1)[0]; r.Cause != "idle" {
				t.Errorf("the record is %+v", r)
			}
		})
	})
	t.Run("nobody reads", func(t *testing.T) {
		slow(t, func(t *testing.T, d *Door, conn net.Conn, got *records) {
			begin := time.Now()
			_, _ = io.WriteString(conn, "GET /write HTTP/1.1\r\nHost: local.internal\r\n\r\n")
			r := got.wait(t, 1)[0]
			if took := time.Since(begin); r.Cause != "idle" || took != 5*time.Minute {
				t.Errorf("after %v the record is %+v", took, r)
			}
		})
	})
	t.Run("an answer that drips", func(t *testing.T) {
		slow(t, func(t *testing.T, d *Door, conn net.Conn, got *records) {
			go func() { _, _ = io.WriteString(conn, "GET /drip HTTP/1.1\r\nHost: local.internal\r\n\r\n") }()
			ends(t, conn, time.Hour)
		})
	})
}

func TestAChangedPolicyCutsWhatIsOpen(t *testing.T) {
	s := serves(t, false, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		if r.URL.Path == "/quiet" {
			<-r.Context().Done()
			return
		}
		for r.Context().Err() == nil {
			fmt.Fprint(w, "more\n")
		}
	})
	at := "127.0.0.1:" + s.port()
	for _, path := range []string{"/quiet", "/loud"} {
		d, got := opened(t, Config{}, at+"!private")
		for name, c := range map[string]*http.Client{"proxy": program(t, d), "stream": stream(t, d)} {
			d.SetPolicy(rules(t, at+"!private"))
			resp, err := c.Get(s.URL + path)
			if err != nil {
				t.Fatal(err)
			}
			d.SetPolicy(rules(t, at+"!private", "example.com")) // what is allowed as before goes on
			if path == "/loud" {
				if _, err := io.ReadFull(resp.Body, make([]byte, 1<<20)); err != nil {
					t.Errorf("%s: what is still allowed broke: %v", name, err)
				}
			}
			d.SetPolicy(rules(t, at+"/other!private"))
			if _, err := io.Copy(io.Discard, resp.Body); err == nil {
				t.Errorf("%s: an answer that is cut short has an end", name)
			}
			resp.Body.Close()
			if a := ask(t, c, "GET", s.URL+path); a.status != 403 {
				t.Errorf("%s: afterwards: %+v", name, a)
			}
		}
		for _, r := range got.wait(t, 4) {
			if r.Status == 200 && (r.Cause != "policy" || r.Decision != Denied) {
				t.Errorf("the record is %+v", r)
			}
		}
	}
	// Tunnels in which nothing is asked, yet or any more, are cut as well.
	d, _ := opened(t, Config{}, at+"!private")
	proxy := proxied(t, d)
	begun, used := tunnelTo(t, proxy, at), tunnelTo(t, proxy, at)
	fmt.Fprintf(used, "TRACE / HTTP/1.1\r\nHost: %s\r\n\r\n", at)
	if _, err := io.ReadFull(used, make([]byte, len("HTTP/1.1 403"))); err != nil {
		t.Fatal(err)
	}
	d.SetPolicy(rules(t, "example.com"))
	fmt.Fprintf(begun, "TRACE / HTTP/1.1\r\nHost: %s\r\n\r\n", at)
	for name, conn := range map[string]net.Conn{"begun": begun, "used": used} {
		if text, err := io.ReadAll(conn); strings.Contains(string(text), "HTTP/1.1 403") {
			t.Errorf("the tunnel that is %s gives %q, %v", name, text, err)
		}
	}
}

func TestCloseCutsEverything(t *testing.T) {
	s := serves(t, false, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	d, got := opened(t, Config{}, "127.0.0.1:"+s.port()+"!private")
	c := stream(t, d)
	resp, err := c.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	idle := opens(t, d, "127.0.0.1", 80, false)
	if d.Close() != nil || d.Close() != nil {
		t.Error("it does not close twice")
	}
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("an answer goes on")
	}
	if _, err := io.ReadAll(idle); err != nil {
		t.Error(err)
	}
	if a := ask(t, c, "GET", s.URL); a.err == nil {
		t.Errorf("after the end: %+v", a)
	}
	if r := got.wait(t, 1); len(r) == 0 {
		t.Error("there is no record")
	}
	d.SetPolicy(rules(t, "example.com"))
	// And a connection ends with its context.
	d, _ = opened(t, Config{}, "example.com")
	a, b := net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); d.ServeProxy(ctx, b) }()
	cancel()
	<-done
	if _, err := a.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the connection is open: %v", err)
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
		if a.status != want.status || !strings.HasPrefix(a.header.Get(failedHeader)+a.header.Get(deniedHeader), want.cause+": ") {
			t.Errorf("%s: %+v", want.url, a)
		}
		if r := got.wait(t, k+1)[k]; r.Cause != want.cause || r.Status != want.status {
			t.Errorf("%s: the record is %+v", want.url, r)
		}
	}
	if list := d.Denials(); len(list) != 1 || list[0].Cause != "protocol" {
		t.Errorf("what failed counts as refused: %+v", list)
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
	if !d.Knows("packages.paddock.internal") || d.Reach("packages.paddock.internal", 443) != nil || d.Reach("packages.paddock.internal", 22) == nil {
		t.Error("what it knows is wrong")
	}
	if r := got.wait(t, 1)[0]; r.Decision != Local || r.Status != 200 || r.Received == 0 || d.Usage().Received != 0 {
		t.Errorf("the record is %+v", r)
	}
	if _, err := New(Config{Local: map[string]http.Handler{"a b": local, "c": nil}}); err == nil || fault.KindOf(err) != fault.Invalid && fault.KindOf(err) != fault.Internal {
		t.Errorf("mistakes give %v", err)
	}
}
