package wasm_test

import (
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/sandbox/wasm"
	"paddock/internal/sandbox/wasm/worker"
)

var engine = flag.String("engine", "", "the engine to test: native or wazero; empty: the backend's own choice")

// TestMain lets the test binary be its own worker.
func TestMain(m *testing.M) {
	if worker.Requested(os.Args) {
		os.Exit(worker.Main(os.Args))
	}
	flag.Parse()
	os.Exit(m.Run())
}

// newBackend makes a backend that the test's end closes.
func newBackend(t testing.TB, owners string) *wasm.Backend {
	t.Helper()
	b := openBackend(t, owners)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// openBackend makes a backend whose owners' folders lie in owners.
func openBackend(t testing.TB, owners string) *wasm.Backend {
	t.Helper()
	b, err := wasm.New(wasm.Config{CacheDir: sandboxtest.PreparedCache(t), OwnersDir: owners, Engine: *engine, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		t.Fatal(err)
	}
	p := b.Probe(t.Context())
	sandboxtest.Require(t, "wasm", p.Available && len(p.Runtimes) == 2, p.Reason)
	return b
}

// folder makes a folder for an owner's files, which the worker may change.
func folder(t testing.TB, owners, name string) string {
	t.Helper()
	dir := filepath.Join(owners, name)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil { // whatever the umask says
		t.Fatal(err)
	}
	return dir
}

func workspace(dir string) []sandbox.Mount {
	return []sandbox.Mount{{Guest: "/workspace", Aliases: []string{"/app"}, Host: dir, DiskBytes: 64 << 20}}
}

func startIn(t testing.TB, b *wasm.Backend, runtime, dir string) sandbox.Instance {
	t.Helper()
	in, err := b.Start(t.Context(), sandbox.Spec{Owner: "o", Runtime: runtime, Mounts: workspace(dir), Dir: "/workspace"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	return in
}
