package pkgproxy_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"paddock/internal/helper"
	"paddock/internal/pkgproxy"
	"paddock/internal/pkgproxy/pkgproxytest"
	"paddock/internal/sandbox/sandboxtest"
)

// What the tests are served by.
type (
	distribution = pkgproxytest.Distribution
	index        = pkgproxytest.Index
	registry     = pkgproxytest.Registry
	file         = pkgproxytest.File
)

var (
	newIndex, wheel, simple, real = pkgproxytest.NewIndex, pkgproxytest.Wheel, pkgproxytest.Simple, pkgproxytest.Real
	newRegistry, tarball, old     = pkgproxytest.NewRegistry, pkgproxytest.Tarball, pkgproxytest.Old
)

// pythonOf is a front of indexes, with all of their packages.
func pythonOf(t testing.TB, all ...*index) (*pkgproxy.Packages, *httptest.Server) {
	return pythonWith(t, pkgproxy.Ecosystem{Allow: []string{"*"}}, pkgproxy.Config{}, all...)
}

func pythonWith(t testing.TB, e pkgproxy.Ecosystem, c pkgproxy.Config, all ...*index) (*pkgproxy.Packages, *httptest.Server) {
	for _, x := range all {
		e.Indexes = append(e.Indexes, pkgproxy.Index{URL: x.Server.URL + "/simple"})
	}
	c.Python = e
	p := open(t, c)
	s := httptest.NewServer(p.Handler(""))
	t.Cleanup(s.Close)
	return p, s
}

// answer is what the front answers.
type answer struct {
	status int
	body   string
	header http.Header
	err    error // of the body
}

func get(t testing.TB, url string, accept ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range accept {
		req.Header.Set("Accept", kind)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, string(body), resp.Header, err}
}

// python is the Python that make built for this machine, of the guest's version, and
// the wheel of pip that comes with it.
func python(t testing.TB) (program, pip string) {
	t.Helper()
	at, err := os.ReadFile(filepath.Join(sandboxtest.BuildCache(t), "out", "python", "native.path"))
	sandboxtest.Require(t, "wasm", err == nil, "the guest's Python was not built here (make guests)")
	dir := strings.TrimSpace(string(at))
	found, err := filepath.Glob(filepath.Join(dir, "lib", "python3.13", "ensurepip", "_bundled", "pip-*.whl"))
	if err != nil {
		t.Fatalf("pip's wheel: got error %v, want none", err)
	}
	if len(found) != 1 {
		t.Fatalf("pip's wheel: len(found): got %d, want 1: %v", len(found), found)
	}
	return filepath.Join(dir, "bin", "python3.13"), found[0]
}

var pipOnce sync.Once

// pipDir is a folder with pip, compiled.
var pipDir string

func compiledPip(t testing.TB) string {
	t.Helper()
	program, pip := python(t)
	pipOnce.Do(func() {
		var err error
		if pipDir, err = os.MkdirTemp("", "paddock-test-pip-"); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"-m", "zipfile", "-e", pip, pipDir}, {"-m", "compileall", "-q", "-b", "--invalidation-mode", "unchecked-hash", pipDir}} {
			if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
	})
	return pipDir
}

func TestMain(m *testing.M) {
	if helper.Requested(os.Args) {
		os.Exit(helper.Main(os.Args, pkgproxy.Bundle))
	}
	if dir := os.Getenv(workEnv); dir != "" {
		holdWorkplace(dir)
	}
	if registry := os.Getenv(heavyEnv); registry != "" {
		takeDescriptions(registry)
	}
	code := m.Run()
	if pipDir != "" {
		_ = os.RemoveAll(pipDir)
	}
	os.Exit(code)
}

// runPip runs it on this machine, against a front.
func runPip(ctx context.Context, t testing.TB, front, target string, args ...string) (string, error) {
	t.Helper()
	program, _ := python(t)
	cmd := exec.CommandContext(ctx, program, append([]string{"-P", "-m", "pip", "install", "--target", target, "--no-cache-dir", "--no-compile", "--only-binary", ":all:"}, args...)...)
	cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "PIP_CONFIG_FILE=" + os.DevNull, "PYTHONPATH=" + compiledPip(t)}
	for name, value := range pkgproxy.Environment(front) {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// bundler is the program that makes modules: this one, or where it would need ten times
// as long for the race detector's sake, the paddock that was built.
func bundler() string {
	if built := os.Getenv("PADDOCK_BIN"); raceEnabled && built != "" {
		return built
	}
	return os.Args[0]
}

// open makes a front that is closed with the test.
func open(t testing.TB, c pkgproxy.Config) *pkgproxy.Packages {
	t.Helper()
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	c.Helpers = helper.NewRunner(bundler())
	p, err := pkgproxy.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// npmOf is a front of one registry with all of its packages.
func npmOf(t testing.TB, r *registry) *pkgproxy.Packages {
	return open(t, pkgproxy.Config{NPM: pkgproxy.Ecosystem{Indexes: []pkgproxy.Index{{URL: r.Server.URL}}, Allow: []string{"*"}}})
}
