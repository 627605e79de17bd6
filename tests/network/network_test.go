// Package network proves that programs in wasm guests reach hosts as their users know it:
// with Python's own modules, with requests, urllib3, httpx and pip's, and with fetch, over
// a session's proxy to servers on this host's loopback address.
package network

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/internal/egress"
	"paddock/internal/egress/proxy"
	"paddock/internal/egress/streams"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/sandbox/wasm"
	"paddock/internal/sandbox/wasm/worker"
)

// timeout bounds whatever a test waits for.
const timeout = 2 * time.Minute

// TestMain lets the test binary be its own worker.
func TestMain(m *testing.M) {
	if worker.Requested(os.Args) {
		os.Exit(worker.Main(os.Args))
	}
	code := m.Run()
	if owners != "" {
		_ = os.RemoveAll(owners)
	}
	os.Exit(code)
}

// owners is the folder of the backends' owners, with other people's clients, which programs
// only read: all tests share it.
var owners string

var makeOwners = sync.OnceValue(func() error {
	site, err := libraries()
	if err != nil {
		return fmt.Errorf("other people's clients could not be had: %w", err)
	}
	if owners, err = os.MkdirTemp("", "paddock-test-network-"); err != nil {
		return err
	}
	for _, name := range []string{"site", "certs"} {
		if err := os.CopyFS(filepath.Join(owners, "o", name), os.DirFS(filepath.Join(site, name))); err != nil {
			return err
		}
	}
	return os.Chmod(owners, 0o755) // for whom guests run as
})

// names finds the hosts of tests, all of which are this one.
type names struct{}

func (names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if host == "gone.example.com" {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

// place is a backend, a proxy and what lies behind it.
type place struct {
	backend *wasm.Backend
	proxy   *proxy.Proxy
	table   *streams.Table
	// Folders of the programs': other people's clients, a file that Debian's want, and a
	// place for files that pass.
	site, certs, tmp string
	// What programs find in their environment: servers over TLS and without, one whose
	// certificate that is not trusted, and a port at which no program listens.
	env map[string]string
	// asked is told of each message.
	asked func(body []byte)
	roots *x509.CertPool // with which the proxy verifies
}

// answering gives a context that ends when the next program reads for the nth time.
func (p *place) answering(t *testing.T, n int) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	p.asked = func(body []byte) {
		if bytes.Contains(body, []byte(`"op":"net.read"`)) {
			if n--; n == 0 {
				cancel()
			}
		}
	}
	return ctx
}

// libraries are other people's clients, unpacked once.
var libraries = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("bash", "libraries.sh").Output()
	return strings.TrimSpace(string(out)), err
})

// open makes a place whose programs reach what rules allow, at ports of the servers.
func open(t *testing.T, rules ...string) *place {
	t.Helper()
	err := makeOwners()
	sandboxtest.Require(t, "wasm", err == nil, fmt.Sprint(err))
	b, err := wasm.New(wasm.Config{CacheDir: sandboxtest.PreparedCache(t), OwnersDir: owners, Engine: os.Getenv("PADDOCK_SANDBOX_ENGINE"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	probe := b.Probe(t.Context())
	sandboxtest.Require(t, "wasm", probe.Available && len(probe.Runtimes) == 2, probe.Reason)
	tmp, err := os.MkdirTemp(filepath.Join(owners, "o"), "tmp-")
	if err == nil {
		err = os.Chmod(tmp, 0o777) // whatever the umask says
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(tmp); err != nil {
			t.Error(err)
		}
	})
	p := &place{backend: b, asked: func([]byte) {}, site: filepath.Join(owners, "o", "site"), certs: filepath.Join(owners, "o", "certs"), tmp: tmp}
	p.serve(t, rules)
	return p
}

// serve starts the servers and the proxy to them.
func (p *place) serve(t *testing.T, rules []string) {
	t.Helper()
	roots := x509.NewCertPool()
	secure, plain, other := start(t, true), start(t, false), start(t, true)
	roots.AddCert(secure.Certificate())
	other.TLS.Certificates = []tls.Certificate{selfSigned(t)}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	port := func(l net.Addr) string { return strconv.Itoa(l.(*net.TCPAddr).Port) }
	p.env = map[string]string{
		"SECURE": "https://example.com:" + port(secure.Listener.Addr()), "PLAIN": "http://example.com:" + port(plain.Listener.Addr()),
		"UNTRUSTED": "https://example.com:" + port(other.Listener.Addr()), "NOBODY": "http://example.com:" + port(free.Addr()),
		"HOME": "/tmp",
	}
	p.roots = roots
	p.leads(t, proxy.Config{Resolver: names{}}, rules...)
}

// leads has programs go through a proxy of that kind from now on.
func (p *place) leads(t *testing.T, c proxy.Config, rules ...string) {
	t.Helper()
	var err error
	if c.Policy, err = egress.Parse(rules, egress.Rights{All: true, Private: true, Requests: true}); err != nil {
		t.Fatal(err)
	}
	c.Session, c.TLS = "s", &tls.Config{RootCAs: p.roots}
	if p.proxy, err = proxy.New(c); err != nil {
		t.Fatal(err)
	}
	p.table = streams.New(streams.Config{Proxy: p.proxy})
	way, table := p.proxy, p.table
	t.Cleanup(func() {
		if err := errors.Join(table.Close(), way.Close()); err != nil {
			t.Error(err)
		}
	})
}

// start starts a server that answers as programs of the tests ask.
func start(t *testing.T, secure bool) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(answer))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if secure {
		s.EnableHTTP2 = true
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

func answer(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Method", r.Method)
	switch path := strings.TrimPrefix(r.URL.Path, "/"); path {
	case "json":
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"agent": %q, "query": %q, "accept": %q}`, r.UserAgent(), r.URL.RawQuery, r.Header.Get("Accept"))
	case "echo":
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	case "count":
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
	case "stream":
		for k := range 5 {
			fmt.Fprintf(w, "line %d\n", k)
			w.(http.Flusher).Flush()
		}
	case "large":
		piece := bytes.Repeat([]byte("0123456789abcdef"), 4096)
		for range 64 {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	case "slow":
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-time.After(timeout):
		}
	case "redirect":
		http.Redirect(w, r, "/json?redirected", http.StatusFound)
	case "cookies":
		w.Header().Add("Set-Cookie", "a=1; Path=/")
		w.Header().Add("Set-Cookie", "b=2; Path=/")
		fmt.Fprint(w, r.Header.Get("Cookie"))
	case "missing":
		http.Error(w, "there is nothing", http.StatusNotFound)
	case "cut":
		w.Header().Set("Content-Length", "100")
		fmt.Fprint(w, "only this")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	default:
		fmt.Fprintf(w, "%s %s", r.Method, path)
	}
}

// run runs a program, which has to end well, and gives what it printed.
func (p *place) run(t *testing.T, runtime, code string) string {
	t.Helper()
	printed, exit := p.try(t, runtime, code)
	if exit.Code != 0 {
		t.Errorf("it ended with %d: %+v\n%s", exit.Code, exit.Error, printed)
	}
	return printed
}

func (p *place) try(t *testing.T, runtime, code string) (string, sandbox.Exit) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	in := p.interpreter(t, runtime)
	return p.execute(ctx, t, in, code)
}

func (p *place) interpreter(t *testing.T, runtime string) sandbox.Instance {
	t.Helper()
	in, err := p.backend.Start(t.Context(), sandbox.Spec{
		Owner: "o", Runtime: runtime, Env: p.env, Dir: "/site",
		Mounts: []sandbox.Mount{
			{Guest: "/site", Host: p.site, ReadOnly: true}, {Guest: "/etc/ssl/certs", Host: p.certs, ReadOnly: true},
			{Guest: "/tmp", Host: p.tmp, DiskBytes: 16 << 20},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() }) // told by who uses it, if at all
	return in
}

func (p *place) execute(ctx context.Context, t *testing.T, in sandbox.Instance, code string) (string, sandbox.Exit) {
	t.Helper()
	var out bytes.Buffer
	exit, err := in.Run(ctx, sandbox.Command{
		Code: code, Stdout: &out, Stderr: &out,
		Call: func(ctx context.Context, c sandbox.Call) []byte {
			p.asked(c.Body)
			return p.table.Answer(ctx, c.Body)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), exit
}
