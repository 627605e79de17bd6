package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/egress"
)

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
		if a.err == nil && a.status != 403 {
			t.Errorf("%s without end: the status is %d, want 403 or an error", want.method, a.status)
		}
		if len(a.body) > 1<<20 {
			t.Errorf("%s without end: got %d bytes, want at most %d", want.method, len(a.body), 1<<20)
		}
		if r := got.wait(t, 1)[0]; r.Decision != Exhausted {
			t.Errorf("the record: r.Decision = %q, want %q: %+v", r.Decision, Exhausted, r)
		} else if r.Cause != "budget" {
			t.Errorf(`the record: r.Cause = %q, want "budget": %+v`, r.Cause, r)
		}
		if n := want.used(d.Usage()); n < 1<<20 || n > 1<<20+128<<10 {
			t.Errorf("%s: %d bytes were counted, want from %d to %d", want.method, n, 1<<20, 1<<20+128<<10)
		}
		a = ask(t, c, "GET", s.URL)
		if a.status != 403 {
			t.Errorf("afterwards: a.status = %d, want 403: %+v", a.status, a)
		} else if !strings.Contains(a.body, "has used up its network budget of 1048576 bytes") {
			t.Errorf(`afterwards: a.body = %q, want "has used up its network budget of 1048576 bytes" in it`, a.body)
		}
		if a := ask(t, c, "GET", "https://127.0.0.1:"+s.port()); a.err == nil {
			t.Error("CONNECT afterwards: got no error, want one")
		} else if !strings.Contains(a.err.Error(), "used up") {
			t.Errorf(`CONNECT afterwards: got error %q, want "used up" in it`, a.err.Error())
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
		if a.status != want {
			t.Errorf("request %d: a.status = %d, want %d: %+v", k, a.status, want, a)
		} else if (k >= 3) != strings.Contains(a.body, "network budget of 3 requests") {
			t.Errorf("request %d: the body says that the budget is used up: want %v: %q", k, k >= 3, a.body)
		}
	}
	if r := got.wait(t, 5)[4]; r.Decision != Exhausted {
		t.Errorf("the record is %+v", r)
	}
	for range 2 * maxBeyond {
		_ = ask(t, c, "GET", "http://evil.example")
	}
	if err := d.Reach("evil.example", 443); err == nil {
		t.Error("reaching evil.example: got no error, want one")
	}
	if n := len(got.wait(t, 0)); n > 3+maxBeyond {
		t.Errorf("%d records fill the log, want at most %d", n, 3+maxBeyond)
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
	switch a := ask(t, c, "GET", s.URL); {
	case a.status != 503:
		t.Errorf("the third: a.status = %v, want 503: %+v", a.status, a)
	case a.header.Get("Retry-After") == "":
		t.Errorf("the third: header Retry-After is empty, want a text: %+v", a)
	case !strings.Contains(a.body, "2 connections"):
		t.Errorf(`the third: a.body = %q, want "2 connections" in it`, a.body)
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

// slowHandler answers at /now and /write, reads at /read, drips at /drip, and anywhere else
// waits until the request ends.
func slowHandler(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/now":
		fmt.Fprint(w, "now")
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
}

// slowly runs a test in a bubble, with a program's connection to local.internal, which
// [slowHandler] serves.
func slowly(t *testing.T, name string, test func(t *testing.T, d *Proxy, program net.Conn, got *records)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			got := &records{came: make(chan struct{}, 1)}
			local := map[string]http.Handler{"local.internal": http.HandlerFunc(slowHandler)}
			d, err := New(Config{Local: local, Record: got.add})
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
	})
}

// ends reads what comes until the connection ends, which it does after that time.
func ends(t *testing.T, conn net.Conn, after time.Duration) string {
	t.Helper()
	begin := time.Now()
	text, _ := io.ReadAll(conn)
	if took := time.Since(begin); took != after {
		t.Errorf("it ends after %v with %.200q, want %v", took, text, after)
	}
	return string(text)
}

// Headers and bodies that come byte by byte or not at all, and answers that no program reads.
func TestWhoIsSlowIsNotWaitedFor(t *testing.T) {
	slowly(t, "no header", func(t *testing.T, d *Proxy, conn net.Conn, _ *records) { ends(t, conn, 30*time.Second) })
	slowly(t, "a header byte by byte", func(t *testing.T, d *Proxy, conn net.Conn, _ *records) {
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
	slowly(t, "no next request", func(t *testing.T, d *Proxy, conn net.Conn, _ *records) {
		go func() { _, _ = io.WriteString(conn, "TRACE / HTTP/1.1\r\nHost: local.internal\r\n\r\n") }()
		if text := ends(t, conn, 2*time.Minute); !strings.HasPrefix(text, "HTTP/1.1 403") {
			t.Errorf("got %q", text)
		}
	})
	slowly(t, "no body", func(t *testing.T, d *Proxy, conn net.Conn, got *records) {
		go func() {
			_, _ = io.WriteString(conn, "POST /read HTTP/1.1\r\nHost: local.internal\r\nContent-Length: 10\r\n\r\nabc")
		}()
		ends(t, conn, 5*time.Minute)
		if r := got.wait(t, 1)[0]; r.Cause != "idle" {
			t.Errorf(`the record: r.Cause = %q, want "idle": %+v`, r.Cause, r)
		} else if r.Duration != 5*time.Minute {
			t.Errorf("the record: r.Duration = %v, want %v: %+v", r.Duration, 5*time.Minute, r)
		}
	})
	slowly(t, "no rest of a body that is not wanted", func(t *testing.T, d *Proxy, conn net.Conn, got *records) {
		go func() {
			_, _ = io.WriteString(conn, "PUT /now HTTP/1.1\r\nHost: local.internal\r\nContent-Length: 10\r\n\r\nabc")
		}()
		if text := ends(t, conn, 30*time.Second); !strings.HasPrefix(text, "HTTP/1.1 200") {
			t.Errorf("got %q", text)
		}
	})
	slowly(t, "no program reads a small answer", func(t *testing.T, d *Proxy, conn net.Conn, got *records) {
		begin := time.Now()
		_, _ = io.WriteString(conn, "GET /now HTTP/1.1\r\nHost: local.internal\r\n\r\n")
		got.wait(t, 1)
		for d.waiting.Load() > 0 {
			time.Sleep(time.Second) // in the bubble
		}
		if took := time.Since(begin); took > 61*time.Second {
			t.Errorf("it ends after %v", took)
		}
	})
	slowly(t, "no answer", func(t *testing.T, d *Proxy, conn net.Conn, got *records) {
		go func() { _, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: local.internal\r\n\r\n") }()
		ends(t, conn, 5*time.Minute)
		if r := got.wait(t, 1)[0]; r.Cause != "idle" {
			t.Errorf("the record is %+v", r)
		}
	})
	slowly(t, "no program reads", func(t *testing.T, d *Proxy, conn net.Conn, got *records) {
		begin := time.Now()
		_, _ = io.WriteString(conn, "GET /write HTTP/1.1\r\nHost: local.internal\r\n\r\n")
		r := got.wait(t, 1)[0]
		if took := time.Since(begin); r.Cause != "idle" {
			t.Errorf(`r.Cause = %q, want "idle": %+v`, r.Cause, r)
		} else if took != 5*time.Minute {
			t.Errorf("took = %v, want %v", took, 5*time.Minute)
		}
	})
	slowly(t, "an answer that drips", func(t *testing.T, d *Proxy, conn net.Conn, got *records) {
		go func() { _, _ = io.WriteString(conn, "GET /drip HTTP/1.1\r\nHost: local.internal\r\n\r\n") }()
		ends(t, conn, time.Hour)
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
	// So is what goes to an address that its host's rule no longer names.
	d, got := opened(t, Config{Resolver: names{"named.example": "127.0.0.1"}}, "named.example:*!private")
	resp, err := stream(t, d).Get("http://named.example:" + s.port() + "/quiet")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	d.SetPolicy(rules(t, "named.example:*"))
	if _, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Error("what is no longer public goes on: got no error, want one")
	}
	if r := got.wait(t, 1)[0]; r.Cause != "policy" {
		t.Errorf(`the record's cause is %q, want "policy": %+v`, r.Cause, r)
	}
	// Tunnels in which nothing is asked, yet or any more, are cut as well.
	d, _ = opened(t, Config{}, at+"!private")
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
	for range 2 {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
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

// Many programs at once, while the rules change and somebody asks: what is allowed all the
// time is answered whole, and what is not says so.
func TestManyAtOnce(t *testing.T) {
	long := strings.Repeat("0123456789", 20_000)
	s := serves(t, true, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, long) })
	policies := []egress.Policy{rules(t, "example.com:*!private", "127.0.0.1:*!private"), rules(t, "example.com:*!private")}
	d, _ := opened(t, Config{}, "example.com:*!private")
	c := program(t, d)
	var all, changing sync.WaitGroup
	stop := make(chan struct{})
	changing.Go(func() {
		for k := 0; ; k++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				d.SetPolicy(policies[k%2])
				_, _ = d.Usage(), d.Denials()
			}
		}
	})
	for range 8 {
		all.Go(func() {
			for range 10 {
				if a := ask(t, c, "GET", "https://example.com:"+s.port()); a.err != nil {
					t.Errorf("what is allowed: got error %v, want none", a.err)
				} else if a.body != long {
					t.Errorf("what is allowed: the body has %d bytes, want the %d that were sent", len(a.body), len(long))
				}
				if a := ask(t, c, "GET", "https://127.0.0.1:"+s.port()); a.err == nil && a.body != long && a.status != 403 {
					t.Errorf("what is allowed at times: %+v", a)
				}
			}
		})
	}
	all.Wait()
	close(stop)
	changing.Wait()
}
