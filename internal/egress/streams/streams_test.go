package streams

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"paddock/internal/egress"
	"paddock/internal/egress/proxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// here finds every name at the loopback address, but for one that is unknown.
type here struct{}

func (here) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if host == "unknown.example" {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

// tableOf makes a table whose proxy follows rules and has a host "local.test" of its own.
func tableOf(t testing.TB, c Config, dc proxy.Config, rules ...string) *Table {
	t.Helper()
	policy, err := egress.Parse(rules, egress.Rights{All: true, Private: true})
	if err != nil {
		t.Fatal(err)
	}
	dc.Policy, dc.Resolver = policy, here{}
	dc.Local = map[string]http.Handler{"local.test": http.HandlerFunc(local)}
	d, err := proxy.New(dc)
	if err != nil {
		t.Fatal(err)
	}
	c.Proxy = d
	table := New(c)
	t.Cleanup(func() {
		for range 2 {
			if err := table.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return table
}

func local(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/echo":
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Kind", r.Header.Get("X-Kind"))
		_, _ = w.Write(body)
	case "/redirect":
		http.Redirect(w, r, "/path", http.StatusFound)
	case "/moved":
		http.Redirect(w, r, "/said", http.StatusFound)
	case "/temporarily":
		http.Redirect(w, r, "/said", http.StatusTemporaryRedirect)
	case "/other":
		http.Redirect(w, r, "/said", http.StatusSeeOther)
	case "/said":
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s", r.Method, r.Header.Get("Content-Type"), body)
	case "/twice":
		http.Redirect(w, r, "/temporarily", http.StatusMovedPermanently)
	case "/hang":
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case "/wait":
		<-r.Context().Done()
	case "/large":
		piece := bytes.Repeat([]byte("x"), 32<<10)
		for range 64 {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	default:
		fmt.Fprintf(w, "%s %s://%s%s", r.Method, r.URL.Scheme, r.Host, r.URL.Path)
	}
}

// said is an answer as a guest reads it.
type said struct {
	Value struct {
		Stream     int
		Written    int
		Readable   []int
		Addresses  []string
		Status     int
		Text       string
		URL        string
		Redirected bool
		Headers    [][2]string
		Bytes      []byte `json:"-"` // behind the line
	}
	Error struct{ Kind, Message string }
}

// ask asks a table; payload goes behind the message.
func (t *Table) ask(tb testing.TB, line string, payload ...string) said {
	tb.Helper()
	body := line
	if len(payload) > 0 {
		body += "\n" + strings.Join(payload, "")
	}
	if !Asked([]byte(body)) {
		tb.Errorf("%s is not taken for a message", line)
	}
	var s said
	answer, behind, isRaw := bytes.Cut(t.Answer(tb.Context(), []byte(body)), []byte("\n"))
	if err := json.Unmarshal(answer, &s); err != nil {
		tb.Fatalf("%s: %v", answer, err)
	}
	if read := strings.HasPrefix(line, `{"op":"net.read"`) && s.Error.Kind == ""; isRaw != read {
		tb.Errorf("%s is answered %q and, behind a line feed: %t, %q", line, answer, isRaw, behind)
	}
	s.Value.Bytes = behind
	return s
}

// open opens a stream to the local host.
func (t *Table) openLocal(tb testing.TB) int {
	tb.Helper()
	s := t.ask(tb, `{"op":"net.open","host":"local.test","port":80}`)
	if s.Value.Stream == 0 {
		tb.Fatalf("%+v", s.Error)
	}
	return s.Value.Stream
}

// all reads a stream from a byte on to its end.
func (t *Table) all(tb testing.TB, stream, at int) string {
	tb.Helper()
	var got []byte
	for {
		s := t.ask(tb, fmt.Sprintf(`{"op":"net.read","stream":%d,"at":%d,"max":1000}`, stream, at+len(got)))
		if s.Error.Kind != "" {
			tb.Fatalf("%+v", s.Error)
		}
		if len(s.Value.Bytes) == 0 {
			return string(got)
		}
		got = append(got, s.Value.Bytes...)
	}
}

const closing = "GET /path HTTP/1.1\r\nHost: local.test\r\nConnection: close\r\n\r\n"

func TestAStreamLeadsToTheProxy(t *testing.T) {
	table := tableOf(t, Config{}, proxy.Config{})
	for _, secure := range []bool{false, true} {
		port, scheme, request := 80, "http", closing
		if secure {
			port, scheme = 443, "https"
		}
		s := table.ask(t, fmt.Sprintf(`{"op":"net.open","host":"LOCAL.test.","port":%d}`, port))
		n := s.Value.Stream
		if secure {
			if s := table.ask(t, fmt.Sprintf(`{"op":"net.tls","stream":%d,"host":"local.test"}`, n)); s.Error.Kind != "" {
				t.Fatalf("%+v", s.Error)
			}
		}
		if s := table.ask(t, fmt.Sprintf(`{"op":"net.write","stream":%d,"at":0}`, n), request); s.Value.Written != len(request) {
			t.Fatalf("%+v", s)
		}
		if got := table.all(t, n, 0); !strings.HasPrefix(got, "HTTP/1.1 200 OK\r\n") {
			t.Errorf("got %q, want it to begin with %q", got, "HTTP/1.1 200 OK\r\n")
		} else if !strings.HasSuffix(got, "\r\n\r\nGET "+scheme+"://local.test/path") {
			t.Errorf("got %q, want it to end with %q", got, "\r\n\r\nGET "+scheme+"://local.test/path")
		}
		table.ask(t, fmt.Sprintf(`{"op":"net.close","stream":%d}`, n))
		if s := table.ask(t, fmt.Sprintf(`{"op":"net.read","stream":%d,"at":0}`, n)); s.Error.Kind != kindReset {
			t.Errorf("a stream that was closed: %+v", s)
		}
	}
}

func TestWhatGotLostIsGivenAgain(t *testing.T) {
	table := tableOf(t, Config{}, proxy.Config{})
	n := table.openLocal(t)
	write := func(at int, text string) said {
		return table.ask(t, fmt.Sprintf(`{"op":"net.write","stream":%d,"at":%d}`, n, at), text)
	}
	if s := write(0, closing[:10]); s.Value.Written != 10 {
		t.Fatalf("%+v", s)
	}
	if s := write(0, closing[:20]); s.Value.Written != 20 { // the first answer got lost
		t.Fatalf("%+v", s)
	}
	if s := write(20, closing[20:]); s.Value.Written != len(closing)-20 {
		t.Fatalf("%+v", s)
	}
	read := func(at, most int) said {
		return table.ask(t, fmt.Sprintf(`{"op":"net.read","stream":%d,"at":%d,"max":%d}`, n, at, most))
	}
	first := read(0, 10)
	if again := read(0, 4); string(again.Value.Bytes) != string(first.Value.Bytes[:4]) {
		t.Errorf("%q after %q", again.Value.Bytes, first.Value.Bytes)
	}
	if again := read(4, 100); string(again.Value.Bytes) != string(first.Value.Bytes[4:]) {
		t.Errorf("%q after %q", again.Value.Bytes, first.Value.Bytes)
	}
	if got := table.all(t, n, 10); !strings.HasSuffix(got, "GET http://local.test/path") {
		t.Errorf("%q", got)
	}
}

func TestAGuestThatWasBroughtBackIsToldThatItsStreamsWereReset(t *testing.T) {
	table := tableOf(t, Config{}, proxy.Config{})
	n := table.openLocal(t)
	table.ask(t, fmt.Sprintf(`{"op":"net.write","stream":%d,"at":0}`, n), closing)
	table.ask(t, fmt.Sprintf(`{"op":"net.read","stream":%d,"at":0,"max":10}`, n))
	table.all(t, n, 10)
	for _, line := range []string{
		fmt.Sprintf(`{"op":"net.read","stream":%d,"at":0}`, n),
		fmt.Sprintf(`{"op":"net.read","stream":%d,"at":100000}`, n),
		fmt.Sprintf(`{"op":"net.read","stream":%d,"at":-1}`, n),
		fmt.Sprintf(`{"op":"net.write","stream":%d,"at":100000}`, n),
		fmt.Sprintf(`{"op":"net.read","stream":%d,"at":0}`, n+1),
	} {
		if s := table.ask(t, line, "x"); s.Error.Kind != kindReset {
			t.Errorf("%s: s.Error.Kind = %q, want %q: %+v", line, s.Error.Kind, kindReset, s)
		} else if s.Error.Message == "" {
			t.Errorf("%s: s.Error.Message is empty, want some: %+v", line, s)
		}
	}
}

func TestStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := tableOf(t, Config{Open: 3, Buffer: 4096, Idle: time.Minute}, proxy.Config{})
		var open []int
		for range 3 {
			open = append(open, table.openLocal(t))
		}
		for _, line := range []string{`{"op":"net.open","host":"local.test","port":80}`, `{"op":"net.fetch","method":"GET","url":"http://local.test/"}`} {
			if s := table.ask(t, line); s.Error.Kind != kindExhausted {
				t.Errorf("%s: %+v", line, s)
			}
		}
		// What no program reads holds the other side up, and so does what it does not read.
		n := open[0]
		table.ask(t, fmt.Sprintf(`{"op":"net.write","stream":%d,"at":0}`, n), "GET /large HTTP/1.1\r\nHost: local.test\r\nConnection: close\r\n\r\n")
		synctest.Wait()
		if got := len(table.find(n).near.in.queue.buffer); got > 4096+headroom {
			t.Errorf("%d bytes are kept", got)
		}
		n = open[1]
		head := "POST /wait HTTP/1.1\r\nHost: local.test\r\nContent-Length: 1000000\r\n\r\n"
		table.ask(t, fmt.Sprintf(`{"op":"net.write","stream":%d,"at":0}`, n), head)
		s := table.ask(t, fmt.Sprintf(`{"op":"net.write","stream":%d,"at":%d,"timeout":1}`, n, len(head)), strings.Repeat("x", 1<<20))
		if s.Value.Written == 0 {
			t.Errorf("s.Value.Written = 0, want more: %+v", s)
		} else if s.Value.Written > 64<<10 {
			t.Errorf("s.Value.Written = %d, want at most %d: %+v", s.Value.Written, 64<<10, s)
		}
		time.Sleep(2 * time.Minute) // of the bubble's time
		synctest.Wait()
		if s := table.ask(t, fmt.Sprintf(`{"op":"net.poll","streams":[%d,%d],"timeout":0}`, open[1], open[2])); len(s.Value.Readable) != 2 {
			t.Errorf("streams that are not asked for stay open: %+v", s)
		}
		table.openLocal(t)
	})
}

func TestTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := tableOf(t, Config{}, proxy.Config{})
		n := table.openLocal(t)
		began := time.Now()
		for _, line := range []string{`{"op":"net.read","stream":%d,"at":0,"timeout":1.5}`, `{"op":"net.read","stream":%d,"at":0,"timeout":-1}`} {
			if s := table.ask(t, fmt.Sprintf(line, n)); s.Error.Kind != kindTimeout {
				t.Errorf("%+v", s)
			}
		}
		if s := table.ask(t, fmt.Sprintf(`{"op":"net.poll","streams":[%d],"timeout":0.5}`, n)); s.Error.Kind != "" {
			t.Errorf(`s.Error.Kind = %q, want "": %+v`, s.Error.Kind, s)
		} else if len(s.Value.Readable) != 0 {
			t.Errorf("len(s.Value.Readable) = %d, want none: %+v", len(s.Value.Readable), s.Value.Readable)
		}
		if d := time.Since(began); d != 2*time.Second {
			t.Errorf("it took %v", d)
		}
		ctx, cancel := context.WithCancel(t.Context())
		answered := make(chan []byte, 1)
		go func() { answered <- table.Answer(ctx, fmt.Appendf(nil, `{"op":"net.read","stream":%d,"at":0}`, n)) }()
		synctest.Wait()
		cancel()
		if a := <-answered; !strings.Contains(string(a), kindTimeout) {
			t.Errorf("%s", a)
		}
	})
}

func TestPoll(t *testing.T) {
	table := tableOf(t, Config{}, proxy.Config{})
	quiet, n := table.openLocal(t), table.openLocal(t)
	table.ask(t, fmt.Sprintf(`{"op":"net.write","stream":%d,"at":0}`, n), closing)
	s := table.ask(t, fmt.Sprintf(`{"op":"net.poll","streams":[%d,%d],"timeout":null}`, quiet, n))
	if len(s.Value.Readable) != 1 {
		t.Errorf("len(s.Value.Readable) = %d, want 1: %+v", len(s.Value.Readable), s.Value.Readable)
	} else if s.Value.Readable[0] != n {
		t.Errorf("s.Value.Readable[0] = %d, want %d: %+v", s.Value.Readable[0], n, s)
	}
}

func TestClosingATableEndsWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := tableOf(t, Config{}, proxy.Config{})
		n := table.openLocal(t)
		table.ask(t, fmt.Sprintf(`{"op":"net.write","stream":%d,"at":0}`, n), "GET /hang HTTP/1.1\r\nHost: local.test\r\n\r\n")
		f := table.ask(t, `{"op":"net.fetch","method":"GET","url":"http://local.test/hang"}`)
		if f.Value.Status != 200 {
			t.Fatalf("%+v", f)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for at := 0; ; {
				s := table.ask(t, fmt.Sprintf(`{"op":"net.read","stream":%d,"at":%d}`, n, at))
				if s.Error.Kind != "" || len(s.Value.Bytes) == 0 {
					return
				}
				at += len(s.Value.Bytes)
			}
		}()
		synctest.Wait()
		if err := table.Close(); err != nil {
			t.Error(err)
		}
		<-ended
		if s := table.ask(t, `{"op":"net.open","host":"local.test","port":80}`); s.Error.Kind != kindReset {
			t.Errorf("a table that was closed: %+v", s)
		}
	})
}

func TestRequests(t *testing.T) {
	table := tableOf(t, Config{}, proxy.Config{})
	header := func(s said, name string) string {
		for _, h := range s.Value.Headers {
			if h[0] == name {
				return h[1]
			}
		}
		return ""
	}
	s := table.ask(t, `{"op":"net.fetch","method":"POST","url":"https://local.test/echo#part","headers":[["x-kind","a"],["Host","evil.example"],["content-length","7"]]}`, "body")
	switch {
	case s.Value.Status != 200:
		t.Errorf("s.Value.Status = %v, want 200: %+v", s.Value.Status, s)
	case s.Value.Text != "OK":
		t.Errorf(`s.Value.Text = %q, want "OK"`, s.Value.Text)
	case s.Value.URL != "https://local.test/echo":
		t.Errorf(`s.Value.URL = %q, want "https://local.test/echo"`, s.Value.URL)
	case header(s, "x-kind") != "a":
		t.Errorf(`header(s, "x-kind") = %q, want "a"`, header(s, "x-kind"))
	}
	if got := table.all(t, s.Value.Stream, 0); got != "body" {
		t.Errorf("%q", got)
	}
	for redirect, status := range map[string]int{"follow": 200, "manual": 302, "error": 0} {
		s := table.ask(t, fmt.Sprintf(`{"op":"net.fetch","method":"GET","url":"http://local.test/redirect","redirect":%q}`, redirect))
		switch {
		case s.Value.Status != status:
			t.Errorf("%s: s.Value.Status = %v, want %v: %+v", redirect, s.Value.Status, status, s)
		case s.Value.Redirected != (redirect == "follow"):
			t.Errorf("%s: s.Value.Redirected = %v, want %v: %+v",
				redirect, s.Value.Redirected, redirect == "follow", s)
		case (s.Error.Kind == kindDenied) != (redirect == "error"):
			t.Errorf("%s: s.Error.Kind == kindDenied = %v, want %v: %+v",
				redirect, s.Error.Kind == kindDenied, redirect == "error", s)
		}
	}
	for asked, want := range map[string]string{
		"POST /moved": "GET  ", "PUT /moved": "PUT a/b body", "DELETE /twice": "DELETE a/b body", "POST /temporarily": "POST a/b body", "PUT /other": "GET  ",
	} {
		method, path, _ := strings.Cut(asked, " ")
		s := table.ask(t, fmt.Sprintf(`{"op":"net.fetch","method":%q,"url":"http://local.test%s","headers":[["content-type","a/b"]],"redirect":"follow"}`, method, path), "body")
		if got := table.all(t, s.Value.Stream, 0); got != want {
			t.Errorf("%s is followed as %q, want %q", asked, got, want)
		}
		table.ask(t, fmt.Sprintf(`{"op":"net.close","stream":%d}`, s.Value.Stream))
	}
	for _, length := range []int{-1, 600_000} {
		s = table.ask(t, fmt.Sprintf(`{"op":"net.fetch","method":"PUT","url":"http://local.test/echo","more":true,"length":%d}`, length))
		n := s.Value.Stream
		for at := 0; at < 600_000; at += 100_000 {
			if s := table.ask(t, fmt.Sprintf(`{"op":"net.write","stream":%d,"at":%d}`, n, at), strings.Repeat("x", 100_000)); s.Value.Written != 100_000 {
				t.Fatalf("%+v", s)
			}
		}
		table.ask(t, fmt.Sprintf(`{"op":"net.shut","stream":%d}`, n))
		for range 2 {
			if s := table.ask(t, fmt.Sprintf(`{"op":"net.head","stream":%d}`, n)); s.Value.Status != 200 {
				t.Fatalf("%+v", s)
			}
		}
		if got := table.all(t, n, 0); len(got) != 600_000 {
			t.Errorf("%d bytes came back", len(got))
		}
	}
	for _, line := range []string{
		`{"op":"net.fetch","method":"GET","url":"ftp://local.test/"}`, `{"op":"net.fetch","method":"GET","url":"http://"}`,
		`{"op":"net.fetch","method":"a b","url":"http://local.test/"}`, `{"op":"net.fetch","method":"GET","url":"http://local.test/","headers":[["a b","c"]]}`,
		`{"op":"net.fetch","method":"GET","url":"http://local.test/","headers":[["a","b\r\nc: d"]]}`,
	} {
		if s := table.ask(t, line); s.Error.Kind != kindInvalid {
			t.Errorf("%s: %+v", line, s)
		}
	}
	if n := len(table.streams); n > 8 {
		t.Errorf("%d streams are left", n)
	}
}

func TestFailuresSayWhatHappened(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(local))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	plain := httptest.NewServer(http.HandlerFunc(local))
	defer plain.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	port := func(a net.Addr) int { return a.(*net.TCPAddr).Port }
	table := tableOf(t, Config{}, proxy.Config{TLS: &tls.Config{RootCAs: x509.NewCertPool()}}, "example.com:*!private", "unknown.example", "public.example")
	open := func(host string, port int, secure bool) said {
		return table.ask(t, fmt.Sprintf(`{"op":"net.open","host":%q,"port":%d,"tls":%t}`, host, port, secure))
	}
	for what, c := range map[string]struct {
		answer     said
		kind, text string
	}{
		"a host that is not allowed":         {open("evil.example", 443, false), kindDenied, "not among the hosts"},
		"its name":                           {table.ask(t, `{"op":"net.resolve","host":"evil.example"}`), kindDenied, "not among the hosts"},
		"an address that is not public":      {open("public.example", 443, false), kindDenied, ""},
		"a host that is not there":           {open("unknown.example", 443, false), kindUnknown, ""},
		"a port at which no program listens": {open("example.com", port(free.Addr()), false), kindRefused, ""},
		"a certificate that is not trusted":  {open("example.com", port(server.Listener.Addr()), true), kindCertificate, "certificates are verified outside"},
		"a host that speaks no TLS":          {open("example.com", port(plain.Listener.Addr()), true), kindTLS, ""},
		"what is not a host":                 {open("exa mple", 80, false), kindInvalid, ""},
		"what is not a port":                 {open("example.com", 0, false), kindInvalid, ""},
		"a message that is none":             {table.ask(t, `{"op":"net.nothing"}`), kindReset, ""},
		"a message that cannot be read":      {table.ask(t, `{"op":"net.open",`), kindInvalid, ""},
	} {
		if c.answer.Error.Kind != c.kind {
			t.Errorf("%s: c.answer.Error.Kind = %q, want %q: %+v", what, c.answer.Error.Kind, c.kind, c.answer.Error)
		} else if !strings.Contains(c.answer.Error.Message, c.text) {
			t.Errorf("%s: c.answer.Error.Message = %q, want %q in it", what, c.answer.Error.Message, c.text)
		}
	}
	if n := len(table.streams); n != 0 {
		t.Errorf("n = %d, want 0", n)
	} else if table.opening != 0 {
		t.Errorf("table.opening = %d, want 0", table.opening)
	}
}

func TestWithoutANetwork(t *testing.T) {
	closed := New(Config{Allow: "by asking Ann"})
	defer closed.Close()
	empty := tableOf(t, Config{Allow: "by asking Ann"}, proxy.Config{})
	for _, table := range []*Table{closed, empty} {
		for _, line := range []string{
			`{"op":"net.resolve","host":"example.com"}`, `{"op":"net.open","host":"example.com","port":443}`,
			`{"op":"net.fetch","method":"GET","url":"https://example.com/"}`,
		} {
			if s := table.ask(t, line); s.Error.Kind != kindNoNetwork {
				t.Errorf("%s: s.Error.Kind = %q, want %q: %+v", line, s.Error.Kind, kindNoNetwork, s)
			} else if s.Error.Message != "this session has no network: a person allows hosts by asking Ann" {
				t.Errorf(`%s: s.Error.Message = %q, want "this session has no network: a person allows hosts by asking Ann": %+v`,
					line, s.Error.Message, s)
			}
		}
	}
	if d := empty.config.Proxy.Denials(); len(d) == 0 {
		t.Error("what was asked for is not recorded")
	}
}

func TestAChangedPolicyEndsStreams(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(local))
	defer server.Close()
	table := tableOf(t, Config{}, proxy.Config{}, "example.com:*!private")
	s := table.ask(t, fmt.Sprintf(`{"op":"net.open","host":"example.com","port":%d}`, server.Listener.Addr().(*net.TCPAddr).Port))
	table.ask(t, fmt.Sprintf(`{"op":"net.write","stream":%d,"at":0}`, s.Value.Stream), fmt.Sprintf("GET /hang HTTP/1.1\r\nHost: example.com:%d\r\n\r\n", server.Listener.Addr().(*net.TCPAddr).Port))
	r := table.ask(t, fmt.Sprintf(`{"op":"net.read","stream":%d,"at":0}`, s.Value.Stream))
	if len(r.Value.Bytes) == 0 {
		t.Fatalf("%+v", r)
	}
	table.config.Proxy.SetPolicy(egress.Policy{})
	for at := len(r.Value.Bytes); ; at += len(r.Value.Bytes) {
		r = table.ask(t, fmt.Sprintf(`{"op":"net.read","stream":%d,"at":%d}`, s.Value.Stream, at))
		if r.Error.Kind != "" || len(r.Value.Bytes) == 0 {
			break
		}
	}
	if s := table.ask(t, `{"op":"net.open","host":"example.com","port":80}`); s.Error.Kind != kindNoNetwork {
		t.Errorf("%+v", s)
	}
}

func TestAddressesThatStandForNames(t *testing.T) {
	table := tableOf(t, Config{}, proxy.Config{}, ".example.com")
	seen := map[string]string{}
	for k := range 2000 {
		name := fmt.Sprintf("n%d.example.com", k)
		for range 2 {
			s := table.ask(t, fmt.Sprintf(`{"op":"net.resolve","host":%q}`, name))
			if len(s.Value.Addresses) != 1 {
				t.Fatalf("got the addresses %q, want one: %+v", s.Value.Addresses, s)
			}
			if a := s.Value.Addresses[0]; !network.Contains(netip.MustParseAddr(a)) {
				t.Fatalf("the address is %s, want one of %v", a, network)
			}
			if other, ok := seen[s.Value.Addresses[0]]; ok && other != name {
				t.Fatalf("%s and %s have one address", other, name)
			}
			seen[s.Value.Addresses[0]] = name
		}
	}
}

func TestAGuestsOwnNameIsItself(t *testing.T) {
	table := tableOf(t, Config{}, proxy.Config{}, ".example.com")
	if s := table.ask(t, `{"op":"net.resolve","host":"Sandbox"}`); len(s.Value.Addresses) != 1 {
		t.Errorf("len(s.Value.Addresses) = %d, want 1: %q", len(s.Value.Addresses), s.Value.Addresses)
	} else if s.Value.Addresses[0] != "127.0.0.1" {
		t.Errorf(`s.Value.Addresses[0] = %q, want "127.0.0.1": %+v`, s.Value.Addresses[0], s)
	}
	if all := table.config.Proxy.Denials(); len(all) != 0 {
		t.Errorf("refused is %+v", all)
	}
	if s := table.ask(t, `{"op":"net.open","host":"sandbox","port":80}`); s.Error.Kind == "" {
		t.Errorf("it can be connected to: %+v", s)
	}
}
