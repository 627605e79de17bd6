package secret

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"

	"paddock/internal/egress"
	"paddock/internal/egress/proxy"
)

var _ proxy.Secrets = (*Engine)(nil)

// echo is a server that repeats what it is told, in several ways.
func echo(w http.ResponseWriter, r *http.Request) {
	all, _ := httputil.DumpRequest(r, true)
	switch r.URL.Path {
	case "/redirect":
		w.Header().Set("Location", r.URL.Query().Get("to")+"?t="+url.QueryEscape(r.Header.Get("Authorization")))
		w.WriteHeader(http.StatusFound)
	case "/error":
		http.Error(w, string(all), http.StatusInternalServerError)
	case "/events":
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 2 {
			fmt.Fprintf(w, "data: %d %s\n\n", i, r.Header.Get("Authorization"))
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done() // it has no end
	case "/trailer":
		w.Header().Set("Trailer", "X-After")
		_, _ = w.Write(all)
		w.Header().Set("X-After", r.Header.Get("Authorization"))
	default:
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = z.Write(all)
		_ = z.Close()
	}
}

// loopback finds every name at 127.0.0.1.
type loopback struct{}

func (loopback) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

// through opens a session's proxy to servers, and gives a client of it.
func through(t *testing.T, s session, host *httptest.Server) (*http.Client, *proxy.Proxy, func() string) {
	t.Helper()
	port := host.Listener.Addr().(*net.TCPAddr).Port
	policy, err := egress.Parse([]string{fmt.Sprintf("example.com:%d!private", port), fmt.Sprintf("other.example.com:%d!private", port)}, egress.Rights{Private: true})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(host.Certificate())
	var mu sync.Mutex
	var told strings.Builder
	write := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		told.WriteString(text)
	}
	d, err := proxy.New(proxy.Config{
		Session: "s1", Policy: policy, Secrets: s.Engine, TLS: &tls.Config{RootCAs: roots}, Resolver: loopback{},
		Record: func(r proxy.Record) { write(fmt.Sprintf("%+v\n", r)) },
		Log:    slog.New(slog.NewTextHandler(writer(write), &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go d.ServeProxy(t.Context(), conn)
		}
	}()
	own := x509.NewCertPool()
	own.AppendCertsFromPEM(d.CA())
	transport := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: listener.Addr().String()}), TLSClientConfig: &tls.Config{RootCAs: own}}
	t.Cleanup(transport.CloseIdleConnections)
	c := &http.Client{Transport: transport}
	return c, d, func() string { mu.Lock(); defer mu.Unlock(); return told.String() }
}

type writer func(string)

func (w writer) Write(p []byte) (int, error) { w(string(p)); return len(p), nil }

// TestThroughTheProxy is attacks 44 to 46 and 48, from a program to an echoing server.
func TestThroughTheProxy(t *testing.T) {
	got := make(chan string, 100)
	host := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Host + " " + r.Header.Get("Authorization")
		echo(w, r)
	}))
	defer host.Close()
	port := host.Listener.Addr().(*net.TCPAddr).Port
	s := newSession(t)
	set(t, s.Store, "local", "TOKEN", token, []string{fmt.Sprintf("example.com:%d", port)}, nil)
	c, d, told := through(t, s, host)
	p := &echoing{client: c, token: s.vars["TOKEN"], port: port, got: got}
	for _, path := range []string{"/", "/error", "/trailer"} {
		p.echoes(t, path)
	}
	p.isNotRedirected(t, d)
	p.streams(t)
	_ = d.Close()
	switch text := told(); {
	case strings.Contains(text, token):
		t.Errorf("text = %q, want no %q in it", text, token)
	case strings.Contains(text, b64(token)):
		t.Errorf("text = %q, want no %q in it", text, b64(token))
	case !strings.Contains(text, "Cause:secret"):
		t.Errorf(`text = %q, want "Cause:secret" in it`, text)
	}
}

// An echoing is a program's client of a server that echoes what it is sent.
type echoing struct {
	client *http.Client
	token  string // its placeholder
	port   int
	got    chan string // the host and the Authorization of each request to the server
}

// ask sends a request with the placeholder as its Authorization.
func (p *echoing) ask(t *testing.T, method, path string, body io.Reader) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, fmt.Sprintf("https://example.com:%d%s", p.port, path), body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+p.token)
	resp, err := p.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// echoes checks that the server sees the value, and the program the placeholder.
func (p *echoing) echoes(t *testing.T, path string) {
	t.Helper()
	resp := p.ask(t, "POST", path, strings.NewReader("text"))
	text, err := io.ReadAll(resp.Body)
	all := string(text) + fmt.Sprint(resp.Header, resp.Trailer)
	switch seen := <-p.got; {
	case err != nil:
		t.Errorf("%s: got error %v, want none", path, err)
	case !strings.HasSuffix(seen, "Bearer "+token):
		t.Errorf("%s: the server sees %q, want it to end with %q", path, seen, "Bearer "+token)
	case strings.Contains(all, token):
		t.Errorf("%s: the program sees %q, want no %q in it", path, all, token)
	case !strings.Contains(string(text), "Bearer "+p.token):
		t.Errorf("%s: the program sees %q, want %q in it", path, text, "Bearer "+p.token)
	}
	if got, want := resp.Trailer.Get("X-After"), "Bearer "+p.token; path == "/trailer" && got != want {
		t.Errorf("the trailer X-After is %q, want %q", got, want)
	}
}

// isNotRedirected checks a redirect to a host that the session may reach and the secret may not.
func (p *echoing) isNotRedirected(t *testing.T, d *proxy.Proxy) {
	t.Helper()
	resp := p.ask(t, "GET", fmt.Sprintf("/redirect?to=https://other.example.com:%d/", p.port), nil)
	text, _ := io.ReadAll(resp.Body)
	switch {
	case resp.StatusCode != 403:
		t.Errorf("after a redirect: resp.StatusCode = %v, want 403: %s", resp.StatusCode, text)
	case strings.Contains(string(text), token):
		t.Errorf("after a redirect: text = %q, want no %q in it", string(text), token)
	case !strings.HasPrefix(resp.Header.Get("X-Paddock-Denied"), "secret: "):
		t.Errorf(`after a redirect: header X-Paddock-Denied = %q, want prefix "secret: "`,
			resp.Header.Get("X-Paddock-Denied"))
	}
	if seen := <-p.got; !strings.HasPrefix(seen, "example.com") {
		t.Errorf(`the other host was asked: seen = %q, want it to begin with "example.com"`, seen)
	} else if len(p.got) > 0 {
		t.Errorf("the other host was asked %d times more, want none", len(p.got))
	}
	switch list := d.Denials(); {
	case len(list) != 1:
		t.Errorf("the denials: len(list) = %d, want 1: %+v", len(list), list)
	case list[0].Cause != "secret":
		t.Errorf(`the denials: list[0].Cause = %q, want "secret"`, list[0].Cause)
	case !strings.Contains(list[0].Message, "TOKEN may not"):
		t.Errorf(`the denials: list[0].Message = %q, want "TOKEN may not" in it`, list[0].Message)
	}
}

// streams checks that events flow, though they have no end.
func (p *echoing) streams(t *testing.T) {
	t.Helper()
	resp := p.ask(t, "GET", "/events", nil)
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for i := range 2 {
		line, err := lines.ReadString('\n')
		_, _ = lines.ReadString('\n')
		if err != nil {
			t.Errorf("an event: got error %v, want none", err)
		} else if want := fmt.Sprintf("data: %d Bearer %s\n", i, p.token); line != want {
			t.Errorf("an event is %q, want %q", line, want)
		}
	}
}
