//go:build linux && (amd64 || arm64)

// Package linux lets the programs of a Linux machine out through a proxy, as their users
// know them: curl, wget, pip, npm, git, Python's urllib and requests, Node's fetch, all
// without settings of their own; and tries to get out in any other way.
package linux

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/internal/egress"
	"paddock/internal/egress/proxy"
	"paddock/internal/image"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/linux"
	"paddock/internal/sandbox/linux/agent"
	"paddock/internal/sandbox/linux/proxyenv"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/tests/image/imported"
)

// TestMain lets the test binary be the parts of a box and its first program.
func TestMain(m *testing.M) {
	switch {
	case linux.Requested(os.Args):
		os.Exit(linux.Main(os.Args))
	case agent.Requested(os.Args):
		os.Exit(agent.Main(os.Args))
	}
	if raceEnabled { // a sentry's filter of system calls does not let the detector work
		os.Exit(plainly())
	}
	os.Exit(m.Run())
}

// plainly runs these tests in a test binary without the race detector.
func plainly() int {
	dir, err := os.MkdirTemp("", "plain-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "plain")
	build := exec.Command("go", "test", "-c", "-o", binary, "paddock/tests/network/linux")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return 1
	}
	run := exec.Command(binary, os.Args[1:]...)
	run.Stdout, run.Stderr = os.Stdout, os.Stderr
	if run.Run() != nil {
		return 1
	}
	return 0
}

// site is the name of the servers of the tests, which lies on loopback: the one that
// their certificate is for.
const site = "example.com"

// resolver gives the servers' address, for their name and for one that is not allowed.
type resolver struct{}

func (resolver) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if host == site || host == "elsewhere.example" {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// fixture is a backend and what its machines reach.
type fixture struct {
	backend         *linux.Backend
	secure, plain   *httptest.Server
	https, http     string // the servers' addresses by their name
	securePort      string
	plainPort, mine string // mine: that of a server that no rule names
	trusted         *tls.Config
	seed            []byte // of the proxies' authorities; nil: each has its own

	mu      sync.Mutex // guards what follows
	records []proxy.Record
}

func newFixture(t *testing.T, c linux.Config) *fixture {
	t.Helper()
	w := &fixture{}
	handler := newSite(t)
	w.secure, w.plain = httptest.NewTLSServer(handler), httptest.NewServer(handler)
	hidden := httptest.NewServer(handler)
	t.Cleanup(func() { w.secure.Close(); w.plain.Close(); hidden.Close() })
	w.securePort, w.plainPort, w.mine = port(w.secure.URL), port(w.plain.URL), port(hidden.URL)
	w.https, w.http = "https://"+site+":"+w.securePort, "http://"+site+":"+w.plainPort
	certificate, err := x509.ParseCertificate(w.secure.Certificate().Raw)
	if err != nil {
		t.Fatal(err)
	}
	w.trusted = &tls.Config{RootCAs: x509.NewCertPool()}
	w.trusted.RootCAs.AddCert(certificate)
	c.Dir = t.TempDir()
	if w.backend, err = linux.New(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.backend.Close(); err != nil {
			t.Error(err)
		}
	})
	p := w.backend.Probe(t.Context())
	sandboxtest.Require(t, "linux", p.Available, p.Reason+": "+p.Hint)
	return w
}

func port(url string) string { return url[strings.LastIndexByte(url, ':')+1:] }

// proxy makes a way out to the two servers.
func (w *fixture) proxy(t *testing.T) *proxy.Proxy {
	t.Helper()
	policy, err := egress.Parse([]string{site + ":" + w.securePort + "!private", site + ":" + w.plainPort + "!private"}, egress.Rights{Private: true})
	if err != nil {
		t.Fatal(err)
	}
	d, err := proxy.New(proxy.Config{Policy: policy, Resolver: resolver{}, TLS: w.trusted, Seed: w.seed, Record: w.record})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func (w *fixture) record(r proxy.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records = append(w.records, r)
}

// machine is a session's: what it is described by, and where its folders lie.
type machine struct {
	*fixture
	spec    sandbox.Spec
	network string
}

// machine describes one with that proxy.
func (w *fixture) machine(t *testing.T, d *proxy.Proxy) *machine {
	t.Helper()
	m := &machine{fixture: w, network: w.folder(t, "network")}
	if err := proxyenv.Fill(m.network, d.CA()); err != nil {
		t.Fatal(err)
	}
	m.spec = sandbox.Spec{
		Owner: "alice", Box: filepath.Base(t.TempDir()) + t.Name(), Dir: "/workspace", Env: proxyenv.Environment(), Proxy: d.ServeProxy,
		Limits: sandbox.Limits{MemoryBytes: 1 << 30},
		Mounts: []sandbox.Mount{
			{Guest: "/workspace", Host: w.folder(t, "workspace"), DiskBytes: 1 << 30},
			{Guest: "/tmp", Host: w.folder(t, "tmp"), DiskBytes: 1 << 30},
			{Guest: "/" + proxyenv.Folder, Host: m.network, ReadOnly: true},
		},
	}
	m.spec.Env["HOME"], m.spec.Env["LANG"] = "/workspace", "C.UTF-8"
	return m
}

// folder makes a folder of the host that is the machine's.
func (w *fixture) folder(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	err := os.Mkdir(dir, 0o755)
	if uid, gid := w.backend.FileOwner(); uid != 0 && err == nil {
		err = os.Chown(dir, uid, gid)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// start gives an interpreter of the machine.
func (m *machine) start(t *testing.T, runtime string) sandbox.Instance {
	t.Helper()
	spec := m.spec
	spec.Runtime = runtime
	in, err := m.backend.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	return in
}

// timeout is how long a program may take.
const timeout = 2 * time.Minute

// run runs a program, which has to end well, and gives what it printed.
func run(t *testing.T, in sandbox.Instance, code string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	var out, complaints bytes.Buffer
	exit, err := in.Run(ctx, sandbox.Command{Code: code, Stdout: &out, Stderr: &complaints, Limits: sandbox.RunLimits{StdoutBytes: 1 << 20, StderrBytes: 1 << 20}})
	switch {
	case err != nil:
		t.Error(err)
	case exit.Cause != sandbox.Exited:
		t.Errorf("exit.Cause = %v, want %v; it %v, %+v, %v\n%.3000s\n%.3000s",
			exit.Cause, sandbox.Exited, exit.Cause, exit.Error, err, out.String(), complaints.String())
	case exit.Code != 0:
		t.Errorf("exit.Code = %v, want 0; it %v, %+v, %v\n%.3000s\n%.3000s",
			exit.Code, exit.Cause, exit.Error, err, out.String(), complaints.String())
	}
	return strings.TrimSpace(out.String())
}

// full gives a backend's configuration with the test image that has pip, Node and git.
func full(t *testing.T) linux.Config {
	t.Helper()
	store, err := image.Open(image.Config{Dir: imported.Folder(t)})
	if err != nil {
		t.Fatal(err)
	}
	return linux.Config{Image: imported.Full, Images: func(ctx context.Context, name string) (linux.Image, error) {
		root, release, err := store.Rootfs(ctx, name)
		return linux.Image{Dir: root.Dir, ID: root.ID, Env: root.Settings.Env, Release: release}, err
	}}
}
