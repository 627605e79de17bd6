package proxy

import (
	"bufio"
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
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"paddock/internal/egress"
	"paddock/internal/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counterparty is a server on this host, and what it was asked.
type counterparty struct {
	*httptest.Server
	mu   sync.Mutex
	seen []string // method, host and target of each request
}

func (c *counterparty) asked() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.seen)
}

func (c *counterparty) port() string { return strconv.Itoa(c.Listener.Addr().(*net.TCPAddr).Port) }

// serves starts a server, over TLS with a certificate for example.com and 127.0.0.1 or without.
func serves(t testing.TB, secure bool, answer http.HandlerFunc) *counterparty {
	t.Helper()
	c := &counterparty{}
	c.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		c.seen = append(c.seen, r.Method+" "+r.Host+" "+r.RequestURI)
		c.mu.Unlock()
		if answer != nil {
			answer(w, r)
		}
	}))
	c.Config.ErrorLog = log.New(io.Discard, "", 0)
	c.EnableHTTP2 = secure
	if secure {
		c.StartTLS()
	} else {
		c.Start()
	}
	t.Cleanup(c.Close)
	return c
}

// records collects what a proxy tells.
type records struct {
	mu   sync.Mutex
	list []Record
	came chan struct{}
}

func (r *records) add(one Record) {
	r.mu.Lock()
	r.list = append(r.list, one)
	r.mu.Unlock()
	select {
	case r.came <- struct{}{}:
	default:
	}
}

// wait gives the first n records when there are as many.
func (r *records) wait(t *testing.T, n int) []Record {
	t.Helper()
	for {
		r.mu.Lock()
		list := slices.Clone(r.list)
		r.mu.Unlock()
		if len(list) >= n {
			return list
		}
		select {
		case <-r.came:
		case <-t.Context().Done():
			t.Fatalf("there are %d records of %d", len(list), n)
		}
	}
}

func rules(t testing.TB, list ...string) egress.Policy {
	t.Helper()
	p, err := egress.Parse(list, egress.Rights{All: true, Private: true, Requests: true})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// opened makes a proxy that trusts the test servers' certificate and finds names at 127.0.0.1.
func opened(t testing.TB, c Config, list ...string) (*Proxy, *records) {
	t.Helper()
	r := &records{came: make(chan struct{}, 1)}
	c.Policy, c.Record, c.Session = rules(t, list...), r.add, "s1"
	if c.TLS == nil {
		c.TLS = &tls.Config{RootCAs: testRoots(t)}
	}
	if c.Resolver == nil {
		c.Resolver = names{"example.com": "127.0.0.1"}
	}
	d, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, r
}

// testRoots is the authority of httptest's certificate.
var testRoots = func() func(testing.TB) *x509.CertPool {
	var once sync.Once
	var pool *x509.CertPool
	return func(t testing.TB) *x509.CertPool {
		once.Do(func() {
			s := httptest.NewTLSServer(nil)
			pool = x509.NewCertPool()
			pool.AddCert(s.Certificate())
			s.Close()
		})
		return pool
	}
}()

// proxied starts a listener whose connections are a proxy's, and gives its address.
func proxied(t testing.TB, d *Proxy) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { d.ServeProxy(context.Background(), c) })
		}
	})
	t.Cleanup(func() { l.Close(); d.Close(); all.Wait() })
	return l.Addr().String()
}

// program is Go's HTTP client as a program in a sandbox has it: told of the proxy and of
// the session's authority, and following no redirects.
func program(t testing.TB, d *Proxy) *http.Client {
	t.Helper()
	proxy := &url.URL{Scheme: "http", Host: proxied(t, d)}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(d.CA())
	return clientOf(t, &http.Transport{Proxy: http.ProxyURL(proxy), TLSClientConfig: &tls.Config{RootCAs: roots}, DisableCompression: true})
}

// stream is a client whose connections are streams to origins, without TLS.
func stream(t testing.TB, d *Proxy) *http.Client {
	t.Helper()
	return clientOf(t, &http.Transport{DisableCompression: true, DialContext: func(_ context.Context, _, addr string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		n, _ := strconv.Atoi(port)
		return opens(t, d, host, n, false), nil
	}})
}

func clientOf(t testing.TB, transport *http.Transport) *http.Client {
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// opens gives the program's end of a stream to an origin.
func opens(t testing.TB, d *Proxy, host string, port int, tls bool) net.Conn {
	t.Helper()
	a, b := net.Pipe()
	done := make(chan struct{})
	go func() { defer close(done); d.ServeOrigin(context.Background(), b, host, port, tls) }()
	t.Cleanup(func() { a.Close(); <-done })
	return a
}

// answer is what a program got.
type answer struct {
	status int
	header http.Header
	body   string
	err    error
}

func ask(t testing.TB, c *http.Client, method, target string, header ...string) answer {
	t.Helper()
	return send(t, c, method, target, nil, header...)
}

func send(t testing.TB, c *http.Client, method, target string, body io.Reader, header ...string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, target, body)
	if err != nil {
		t.Fatal(err)
	}
	for k := 0; k < len(header); k += 2 {
		r.Header.Set(header[k], header[k+1])
	}
	resp, err := c.Do(r)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(text), err}
}

// raw writes bytes on a connection, and gives all that comes back.
func raw(t testing.TB, conn net.Conn, text string) string {
	t.Helper()
	defer conn.Close()
	go func() { _, _ = io.WriteString(conn, text) }() // ends with the connection
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	got, _ := io.ReadAll(bufio.NewReader(conn))
	return string(got)
}

func dial(t testing.TB, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestAProgramReachesWhatIsAllowed(t *testing.T) {
	hello := func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello ", r.Host, " ", r.Proto) }
	plain, secure := serves(t, false, hello), serves(t, true, hello)
	d, got := opened(t, Config{}, "127.0.0.1:"+plain.port()+"!private", "example.com:"+secure.port()+"!private")
	proxy := program(t, d)
	if a := ask(t, proxy, "GET", plain.URL+"/a?b"); a.body != "hello 127.0.0.1:"+plain.port()+" HTTP/1.1" {
		t.Errorf("by the proxy: %+v", a)
	}
	if a := ask(t, proxy, "GET", "https://EXAMPLE.com.:"+secure.port()+"/a"); a.body != "hello example.com:"+secure.port()+" HTTP/2.0" {
		t.Errorf("by CONNECT: %+v", a)
	}
	if a := ask(t, stream(t, d), "GET", plain.URL+"/a"); a.body != "hello 127.0.0.1:"+plain.port()+" HTTP/1.1" {
		t.Errorf("by a stream: %+v", a)
	}
	n, _ := strconv.Atoi(secure.port())
	conn := opens(t, d, "Example.Com", n, true)
	if text := raw(t, conn, "GET /a HTTP/1.1\r\nHost: example.com:"+secure.port()+"\r\nConnection: close\r\n\r\n"); !strings.HasSuffix(text, "HTTP/2.0") {
		t.Errorf("by a stream over TLS: %q", text)
	}
	for _, r := range got.wait(t, 4) {
		if r.Decision == Allowed && r.Cause == "" && (r.Session != "s1" || r.Status != 200 || r.Received < 20 || r.Sent < 10 || r.Path == "" || r.Duration <= 0 || r.Rule == "" || r.Method != "GET") {
			t.Errorf("the record is %+v", r)
		}
	}
	switch u := d.Usage(); {
	case u.Requests < 4:
		t.Errorf("what was used: u.Requests = %v, want at least 4: %+v", u.Requests, u)
	case u.Sent == 0:
		t.Errorf("what was used: u.Sent = %v, want other than 0: %+v", u.Sent, u)
	case u.Received == 0:
		t.Errorf("what was used: u.Received = %v, want other than 0: %+v", u.Received, u)
	}
}

func TestTheZeroProxyLetsNothingOut(t *testing.T) {
	s := serves(t, false, nil)
	d, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	c := program(t, d)
	for _, target := range []string{s.URL, "http://example.com", "http://8.8.8.8", "http://localhost:" + s.port()} {
		if a := ask(t, c, "GET", target); a.status != 403 {
			t.Errorf("%s: %+v", target, a)
		}
	}
	if a := ask(t, c, "GET", "https://example.com"); a.err == nil {
		t.Error("CONNECT: got no error, want one")
	} else if !strings.Contains(a.err.Error(), "not among the hosts") {
		t.Errorf(`CONNECT: got error %q, want "not among the hosts" in it`, a.err.Error())
	}
	if a := ask(t, stream(t, d), "GET", s.URL); a.status != 403 {
		t.Errorf("a stream: %+v", a)
	}
	switch {
	case len(s.asked()) > 0:
		t.Errorf("something is let out: s.asked() = %v, want none", s.asked())
	case d.Knows("example.com"):
		t.Error(`something is let out: d.Knows("example.com") = true, want false`)
	case d.Reach("example.com", 443) == nil:
		t.Error(`something is let out: d.Reach("example.com", 443) is nil, want an error`)
	}
}

func TestADenialTellsProgramModelAndPerson(t *testing.T) {
	d, got := opened(t, Config{}, "example.com", "GET api.example.com/v1/*")
	strict, _ := opened(t, Config{}, "GET api.example.com/v1/*")
	c := program(t, d)
	deniedAsText(t, c)
	deniedAsJSON(t, c)
	if a := ask(t, program(t, strict), "GET", "http://api.example.com/v1//x"); a.status != 403 {
		t.Errorf("what no rule would allow: a.status = %d, want 403: %+v", a.status, a)
	} else if !strings.HasSuffix(a.body, "doubled or escaped slashes.\n") {
		t.Errorf("what no rule would allow: a.body = %q, want it to end with %q",
			a.body, "doubled or escaped slashes.\n")
	}
	if a := ask(t, c, "GET", "https://evil.example"); a.err == nil {
		t.Error("CONNECT: got no error, want one")
	} else if !strings.Contains(a.err.Error(), "Forbidden by paddock: evil.example:443 is not among the hosts") {
		t.Errorf(`CONNECT: got error %q, want "Forbidden by paddock: evil.example:443 is not among the hosts" in it`,
			a.err.Error())
	}
	_ = ask(t, c, "GET", "https://evil.example")
	deniedInAResult(t, d)
	for _, r := range got.wait(t, 4) {
		switch {
		case r.Decision != Denied:
			t.Errorf("the record: r.Decision = %v, want %v: %+v", r.Decision, Denied, r)
		case r.Cause == "":
			t.Errorf("the record: r.Cause is empty, want a text: %+v", r)
		case r.Host == "":
			t.Errorf("the record: r.Host is empty, want a text: %+v", r)
		case r.Method != "CONNECT" && r.Status != 403:
			t.Errorf("the record of a %s: r.Status = %d, want 403: %+v", r.Method, r.Status, r)
		}
	}
}

// deniedAsText checks what a program that asks for nothing else is told.
func deniedAsText(t *testing.T, c *http.Client) {
	t.Helper()
	a := ask(t, c, "POST", "http://evil.example/steal?all")
	const denied = "evil.example:80 is not among the hosts that may be reached"
	const explained = "paddock: " + denied + ".\nthe operator can allow it, as evil.example:80, " +
		"in the configuration's network.allow, or PADDOCK_NET_ALLOW.\n"
	switch {
	case a.status != 403:
		t.Errorf("as text: a.status = %v, want 403: %+v", a.status, a)
	case a.header.Get(deniedHeader) != "host: "+denied:
		t.Errorf("as text: a.header.Get(deniedHeader) = %q, want %q", a.header.Get(deniedHeader), "host: "+denied)
	case a.body != explained:
		t.Errorf("as text: a.body = %q, want %q", a.body, explained)
	}
}

// deniedAsJSON checks what a program that accepts JSON is told.
func deniedAsJSON(t *testing.T, c *http.Client) {
	t.Helper()
	a := ask(t, c, "POST", "http://api.example.com/v1/x", "Accept", "application/json, text/plain")
	var problem struct {
		Error struct {
			fault.Problem
			Cause string
		}
	}
	switch err := json.Unmarshal([]byte(a.body), &problem); {
	case err != nil:
		t.Errorf("as JSON: %v", err)
	case a.status != 403:
		t.Errorf("as JSON: a.status = %v, want 403: %+v", a.status, a)
	case problem.Error.Code != fault.Denied:
		t.Errorf("as JSON: problem.Error.Code = %v, want %v: %+v", problem.Error.Code, fault.Denied, a)
	case problem.Error.Cause != "request":
		t.Errorf(`as JSON: problem.Error.Cause = %q, want "request"`, problem.Error.Cause)
	case !strings.Contains(problem.Error.Hint, "as POST api.example.com:80/v1/x, in the configuration's network.allow"):
		t.Errorf("as JSON: problem.Error.Hint = %q, want %q in it",
			problem.Error.Hint, "as POST api.example.com:80/v1/x, in the configuration's network.allow")
	case a.header.Get("Content-Type") != "application/json":
		t.Errorf(`as JSON: header Content-Type = %q, want "application/json"`,
			a.header.Get("Content-Type"))
	}
}

// deniedInAResult checks what the result of a run tells the model, once.
func deniedInAResult(t *testing.T, d *Proxy) {
	t.Helper()
	list := d.Denials()
	switch {
	case len(list) != 3:
		t.Errorf("a run's result: len(list) = %d, want 3: %+v", len(list), list)
	case list[0].Host != "evil.example":
		t.Errorf(`a run's result: list[0].Host = %q, want "evil.example"`, list[0].Host)
	case list[0].Port != 80:
		t.Errorf("a run's result: list[0].Port = %v, want 80: %+v", list[0].Port, list)
	case list[1].Cause != "request":
		t.Errorf(`a run's result: list[1].Cause = %q, want "request"`, list[1].Cause)
	case list[2].Method != "CONNECT":
		t.Errorf(`a run's result: list[2].Method = %q, want "CONNECT"`, list[2].Method)
	case list[2].Count != 2:
		t.Errorf("a run's result: list[2].Count = %v, want 2: %+v", list[2].Count, list)
	case list[2].Message == "":
		t.Errorf("a run's result: list[2].Message is empty, want a text: %+v", list)
	case list[2].Hint == "":
		t.Errorf("a run's result: list[2].Hint is empty, want a text: %+v", list)
	}
	if again := d.Denials(); again != nil {
		t.Errorf("the second call of Denials gives %+v, want nil", again)
	}
}

func TestEachRequestIsDecidedByMethodAndPath(t *testing.T) {
	s := serves(t, false, nil)
	d, _ := opened(t, Config{}, "GET 127.0.0.1:"+s.port()+"/v1/*!private", "POST 127.0.0.1:"+s.port()+"/v1/items!private")
	for name, c := range map[string]*http.Client{"proxy": program(t, d), "stream": stream(t, d)} {
		for target, want := range map[string]int{
			"GET /v1/x?a=b": 200, "HEAD /v1/x": 200, "POST /v1/items": 200, "GET /v1/%41": 200,
			"POST /v1/x": 403, "GET /v2": 403, "GET /v1": 403, "DELETE /v1/x": 403, "GET /V1/x": 403,
			"GET /v1/../admin": 403, "GET /v1/%2e%2e/admin": 403, "GET /v1/%2E%2E%2fadmin": 403, "GET /v1/..%2fadmin": 403, "GET /v1/..;/admin": 403,
			"GET /v1//x": 403, "GET //v1/x": 403, "GET /v1/%5c..%5cadmin": 403, "GET /v1/%252e%252e/admin": 403, "GET /v1/%00": 403, "GET /v1/%c0%ae%c0%ae/": 403,
		} {
			method, path, _ := strings.Cut(target, " ")
			if a := ask(t, c, method, s.URL+path); a.status != want {
				t.Errorf("%s: %s gives %d %s", name, target, a.status, a.body)
			}
		}
		if a := ask(t, c, "GET", s.URL+"/v1/x", "X-HTTP-Method-Override", "DELETE"); a.status != 403 {
			t.Errorf("%s: another method in a header: %+v", name, a)
		}
		if a := ask(t, c, "GET", s.URL+"/v1/x", "X-Original-URL", "/admin"); a.status != 403 {
			t.Errorf("%s: another path in a header: %+v", name, a)
		}
	}
	for _, seen := range s.asked() {
		if !strings.Contains(seen, " /v1/") {
			t.Errorf(`the server was asked: seen = %q, want " /v1/" in it`, seen)
		} else if strings.Contains(seen, "%") {
			t.Errorf("the server was asked: seen = %q, want no %q in it", seen, "%")
		}
	}
}

// names is a resolver of a few names.
type names map[string]string
