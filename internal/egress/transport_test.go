package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/fault"
)

// zone answers for names, each time with the next of a name's lists.
type zone struct {
	mu    sync.Mutex
	names map[string][]string
	asked []string
}

func (z *zone) LookupNetIP(_ context.Context, network, host string) ([]netip.Addr, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.asked = append(z.asked, host)
	lists := z.names[host]
	if len(lists) == 0 || network != "ip" {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	var addrs []netip.Addr
	for text := range strings.FieldsSeq(lists[0]) {
		addrs = append(addrs, netip.MustParseAddr(text))
	}
	if len(lists) > 1 {
		z.names[host] = lists[1:]
	}
	return addrs, nil
}

// seen is a server that keeps the headers of its last request.
type seen struct {
	*httptest.Server
	mu   sync.Mutex
	last *http.Request
	n    int
}

func serve(t *testing.T, answer http.HandlerFunc) *seen {
	t.Helper()
	s := &seen{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.last, s.n = r, s.n+1
		s.mu.Unlock()
		if answer != nil {
			answer(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *seen) port() string { _, port, _ := strings.Cut(s.Listener.Addr().String(), ":"); return port }

// client reaches test servers by these rules.
func client(t *testing.T, o Options, rules ...string) *http.Client {
	t.Helper()
	transport := NewTransport(parse(t, Rights{Private: true, All: true}, rules...), o)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func get(t *testing.T, c *http.Client, url string, header ...string) (string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	for k := 0; k < len(header); k += 2 {
		r.Header.Set(header[k], header[k+1])
	}
	resp, err := c.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

func TestAnAllowedHostAnswers(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1") // and no proxy is asked
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host) })
	z := &zone{names: map[string][]string{"intranet.example": {"::ffff:127.0.0.1"}}}
	var dialled []string
	o := Options{Resolver: z, Dialled: func(host string, to netip.AddrPort) { dialled = append(dialled, host+" "+to.String()) }}
	c := client(t, o, "intranet.example:"+s.port()+"!private", "127.0.0.1:"+s.port()+"!private")
	if got, err := get(t, c, "http://INTRANET.example.:"+s.port()+"/x"); err != nil {
		t.Errorf("got error %v, want none", err)
	} else if want := "intranet.example:" + s.port(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, err := get(t, c, s.URL); err != nil {
		t.Errorf("got error %v, want none", err)
	} else if want := "127.0.0.1:" + s.port(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, err := get(t, c, "http://[::ffff:127.0.0.1]:"+s.port()); err != nil {
		t.Errorf("got error %v, want none", err)
	} else if want := "127.0.0.1:" + s.port(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if want := []string{"intranet.example 127.0.0.1:" + s.port(), "127.0.0.1 127.0.0.1:" + s.port()}; fmt.Sprint(dialled) != fmt.Sprint(want) {
		t.Errorf("what was dialled is %v", dialled)
	}
}

func TestRequestsThatAreNotLetOut(t *testing.T) {
	s := serve(t, nil)
	allowed := "http://127.0.0.1:" + s.port()
	z := &zone{names: map[string][]string{"localtest.example": {"127.0.0.1"}, "meta.example": {"169.254.169.254"}, "many.example": {strings.Repeat("8.8.8.8 ", maxAddrs+1)}}}
	c := client(t, Options{Resolver: z}, "127.0.0.1:"+s.port()+"!private", "*:*", "meta.example:*!private")
	request := func(method, url string, change func(*http.Request)) *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), method, allowed, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if url != "" {
			if r.URL, err = r.URL.Parse(url); err != nil {
				t.Skipf("%s is not a URL: %v", url, err)
			}
			r.Host = r.URL.Host
		}
		if change != nil {
			change(r)
		}
		return r
	}
	for name, r := range map[string]*http.Request{
		"a file":                       request("GET", "file:///etc/passwd", nil),
		"gopher":                       request("GET", "gopher://127.0.0.1:"+s.port(), nil),
		"CONNECT":                      request("CONNECT", "", nil),
		"TRACE":                        request("TRACE", "", nil),
		"a user":                       request("GET", "http://good@127.0.0.1:"+s.port(), nil),
		"another Host":                 request("GET", "", func(r *http.Request) { r.Host = "evil.example" }),
		"another port in Host":         request("GET", "", func(r *http.Request) { r.Host = "127.0.0.1:1" }),
		"an odd Host":                  request("GET", "", func(r *http.Request) { r.Host = "a\x00b" }),
		"an upgrade":                   request("GET", "", func(r *http.Request) { r.Header.Set("Upgrade", "websocket") }),
		"an upgrade by its connection": request("GET", "", func(r *http.Request) { r.Header.Set("Connection", "keep-alive, upgrade") }),
		"a private port not named":     request("GET", "http://127.0.0.1:1", nil),
		"a private address":            request("GET", "http://10.0.0.1", nil),
		"mapped":                       request("GET", "http://[::ffff:10.0.0.1]", nil),
		"translated":                   request("GET", "http://[64:ff9b::a00:1]", nil),
		"decimal":                      request("GET", "http://2130706433:"+s.port(), nil),
		"octal":                        request("GET", "http://0177.0.0.1:"+s.port(), nil),
		"hexadecimal":                  request("GET", "http://0x7f.1:"+s.port(), nil),
		"nothing":                      request("GET", "http://0:"+s.port(), nil),
		"short":                        request("GET", "http://127.1:"+s.port(), nil),
		"unbracketed":                  request("GET", "", func(r *http.Request) { r.URL.Host, r.Host = "::1:80", "" }),
		"brackets around a name":       request("GET", "", func(r *http.Request) { r.URL.Host, r.Host = "[127.0.0.1]:"+s.port(), "" }),
		"a NUL":                        request("GET", "", func(r *http.Request) { r.URL.Host, r.Host = "evil\x00.example", "" }),
		"port 0":                       request("GET", "", func(r *http.Request) { r.URL.Host, r.Host = "127.0.0.1:0", "" }),
		"a name for loopback":          request("GET", "http://localtest.example:"+s.port(), nil),
		"a name for metadata":          request("GET", "http://meta.example:"+s.port(), nil),
		"a name without an address":    request("GET", "http://none.example:"+s.port(), nil),
		"too many addresses":           request("GET", "http://many.example:"+s.port(), nil),
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := c.Transport.RoundTrip(r)
			if err == nil {
				resp.Body.Close()
			}
			if k := fault.KindOf(err); k != fault.Invalid && k != fault.Denied && k != fault.Unavailable {
				t.Errorf("got %v", err)
			}
		})
	}
	if s.n != 0 {
		t.Errorf("%d requests came through", s.n)
	}
}

func TestAHostThatLeadsElsewhereTheSecondTimeIsNotReached(t *testing.T) {
	s := serve(t, nil)
	z := &zone{names: map[string][]string{
		"turns.example": {"8.8.8.8", "127.0.0.1"},
		"two.example":   {"8.8.8.8 127.0.0.1"},
		"both.example":  {"127.0.0.1 8.8.8.8"},
	}}
	var dialled []string
	o := Options{Resolver: z, Connect: time.Second, Dialled: func(_ string, to netip.AddrPort) { dialled = append(dialled, to.String()) }}
	transport := NewTransport(parse(t, Rights{All: true}, "*:*"), o)
	defer transport.CloseIdleConnections()
	port, _ := strconv.Atoi(s.port())
	addrs, err := transport.addresses(t.Context(), "turns.example", port)
	switch {
	case err != nil:
		t.Fatalf("the first time: %v", err)
	case len(addrs) != 1:
		t.Fatalf("the first time: len(addrs) = %d, want 1: %+v", len(addrs), addrs)
	case addrs[0].String() != "8.8.8.8":
		t.Fatalf(`the first time: addrs[0].String() = %q, want "8.8.8.8"`, addrs[0].String())
	case len(z.asked) != 1:
		t.Fatalf("the first time: len(z.asked) = %d, want 1: %+v", len(z.asked), z.asked)
	}
	for _, host := range []string{"turns.example", "two.example", "both.example"} {
		if _, err := get(t, &http.Client{Transport: transport}, "http://"+host+":"+s.port()); fault.KindOf(err) != fault.Denied {
			t.Errorf("%s gives %v", host, err)
		}
	}
	if s.n != 0 {
		t.Errorf("it was reached: s.n = %d, want 0", s.n)
	} else if dialled != nil {
		t.Errorf("it was reached: dialled = %q, want none", dialled)
	}
}

// A name is asked for once for a connection, and its address dialled as it came.
func TestTheAddressThatWasLookedAtIsTheOneThatIsDialled(t *testing.T) {
	s := serve(t, nil)
	z := &zone{names: map[string][]string{"host.example": {"127.0.0.1", "127.0.0.2", "127.0.0.3"}}}
	c := client(t, Options{Resolver: z}, "host.example:"+s.port()+"!private")
	for range 3 {
		if _, err := get(t, c, "http://host.example:"+s.port()); err != nil {
			t.Fatal(err)
		}
	}
	if len(z.asked) != 1 {
		t.Errorf("it was asked for: len(z.asked) = %d, want 1: %q", len(z.asked), z.asked)
	} else if !strings.HasPrefix(s.last.RemoteAddr, "127.0.0.1:") {
		t.Errorf(`it was asked for: s.last.RemoteAddr = %q, want it to begin with "127.0.0.1:"`, s.last.RemoteAddr)
	}
}

func TestCredentialsDoNotFollowARedirectToAnotherOrigin(t *testing.T) {
	other := serve(t, nil)
	var back *seen
	again := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, back.URL+"/end", http.StatusFound) })
	back = serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/same":
			http.Redirect(w, r, "/end", http.StatusFound)
		case "/other":
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		case "/there-and-back":
			http.Redirect(w, r, again.URL, http.StatusFound)
		case "/by-name":
			http.Redirect(w, r, "http://localhost.example:"+r.URL.Query().Get("port")+"/end", http.StatusFound)
		}
	})
	z := &zone{names: map[string][]string{"localhost.example": {"127.0.0.1"}}}
	c := client(t, Options{Resolver: z}, "127.0.0.1:*!private", "localhost.example:*!private")
	secrets := []string{"Authorization", "Bearer secret", "Cookie", "a=secret", "X-Api-Key", "secret", "Mcp-Session-Id", "secret", "Proxy-Authorization", "secret", "Accept", "text/plain"}
	for path, at := range map[string]*seen{"/same": back, "/other": other, "/there-and-back": back, "/by-name?port=" + back.port(): back} {
		if _, err := get(t, c, back.URL+path, secrets...); err != nil {
			t.Fatal(err)
		}
		kept := at.last.Header.Get("Accept") == "text/plain"
		var leaked []string
		for k := 0; k < len(secrets)-2; k += 2 {
			if at.last.Header.Get(secrets[k]) != "" {
				leaked = append(leaked, secrets[k])
			}
		}
		switch {
		case !kept:
			t.Errorf("%s: what may be sent did not come", path)
		case (path == "/same") != (len(leaked) == 5):
			t.Errorf("%s: %d secrets came (%v), want all 5 at /same and none elsewhere", path, len(leaked), leaked)
		case path != "/same" && leaked != nil:
			t.Errorf("%s: secrets came: %v, want none", path, leaked)
		}
		if referer := at.last.Header.Get("Referer"); path != "/same" && referer != "" {
			t.Errorf("%s: it says where it came from: %s", path, referer)
		}
	}
	resp, err := c.Post(back.URL+"/other", "text/plain", strings.NewReader("client_secret=secret"))
	if err == nil {
		resp.Body.Close()
	}
	if fault.KindOf(err) != fault.Denied {
		t.Errorf("a body went along: got an error of the kind %q, want %q: %v", fault.KindOf(err), fault.Denied, err)
	} else if other.n != 1 {
		t.Errorf("a body went along: other.n = %d, want 1", other.n)
	}
}

func TestRedirectsAreCheckedAsRequestsAre(t *testing.T) {
	evil := serve(t, nil)
	var at *seen
	at = serve(t, func(w http.ResponseWriter, r *http.Request) {
		to := r.URL.Query().Get("to")
		if to == "on" {
			to = at.URL + "/?to=on"
		}
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusFound)
	})
	c := client(t, Options{}, "127.0.0.1:"+at.port()+"!private")
	for _, to := range []string{
		evil.URL, "http://localhost:" + evil.port(), "http://169.254.169.254/latest/meta-data", "http://metadata.google.internal/", "file:///etc/passwd",
		"gopher://127.0.0.1:70/x", "http://[::1]:" + evil.port(), "http://2130706433:" + evil.port(), "http://a:b@127.0.0.1:" + at.port(), "on",
	} {
		if _, err := get(t, c, at.URL+"/?to="+to); fault.KindOf(err) != fault.Denied && fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %v", to, err)
		}
	}
	if evil.n != 0 {
		t.Errorf("evil.n = %d, want 0", evil.n)
	} else if at.n > 9+defaultRedirects+1 {
		t.Errorf("at.n = %d, want at most %d", at.n, 9+defaultRedirects+1)
	}
	none := client(t, Options{Redirects: -1}, "127.0.0.1:*!private")
	if _, err := get(t, none, at.URL+"/?to="+evil.URL); fault.KindOf(err) != fault.Denied {
		t.Errorf("a redirect was followed: got an error of the kind %q, want %q: %v",
			fault.KindOf(err), fault.Denied, err)
	} else if evil.n != 0 {
		t.Errorf("a redirect was followed: evil.n = %d, want 0", evil.n)
	}
}

func TestNothingGoesFromHTTPSToHTTP(t *testing.T) {
	plain := serve(t, nil)
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/down" {
			http.Redirect(w, r, plain.URL, http.StatusFound)
		}
		fmt.Fprint(w, r.Proto)
	}))
	secure.EnableHTTP2 = true
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	o := Options{TLS: secure.Client().Transport.(*http.Transport).TLSClientConfig}
	c := client(t, o, "127.0.0.1:*!private")
	if got, err := get(t, c, secure.URL); err != nil {
		t.Errorf("got error %v, want none", err)
	} else if got != "HTTP/2.0" {
		t.Errorf(`got %q, want "HTTP/2.0"`, got)
	}
	if _, err := get(t, c, secure.URL+"/down"); fault.KindOf(err) != fault.Denied {
		t.Errorf("it went down: got an error of the kind %q, want %q: %v", fault.KindOf(err), fault.Denied, err)
	} else if plain.n != 0 {
		t.Errorf("it went down: plain.n = %d, want 0", plain.n)
	}
	if _, err := get(t, client(t, Options{}, "127.0.0.1:*!private"), secure.URL); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("a certificate that is not trusted is believed: %v", err)
	}
}

func TestAHeaderWithoutEndEnds(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("a", 100<<10)) })
	c := client(t, Options{HeaderBytes: 32 << 10}, "127.0.0.1:*!private")
	if _, err := get(t, c, s.URL); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("got %v", err)
	}
}

func TestAHostThatSaysNothingIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := NewTransport(parse(t, operator, "127.0.0.1:*!private"), Options{Header: 3 * time.Second})
		transport.inner.DialContext = func(context.Context, string, string) (net.Conn, error) {
			a, b := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, b) }() // ends with the connection
			return a, nil
		}
		begin := time.Now()
		_, err := get(t, &http.Client{Transport: transport}, "http://127.0.0.1:1")
		if took := time.Since(begin); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("got an error of the kind %q, want %q: %v", fault.KindOf(err), fault.Unavailable, err)
		} else if took != 3*time.Second {
			t.Errorf("took = %v, want %v", took, 3*time.Second)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:1", nil)
		if _, err := transport.RoundTrip(r); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the end of the context gives %v", err)
		}
		transport.CloseIdleConnections()
	})
}
