package wasm_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"paddock/internal/helper"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/sandbox/typescript"
	"paddock/internal/sandbox/wasm"
	"paddock/internal/sandbox/wasm/worker"
)

var engine = flag.String("engine", "", "the engine to test: native or wazero; empty: the backend's own choice")

// TestMain lets the test binary be its own worker and helper.
func TestMain(m *testing.M) {
	if worker.Requested(os.Args) {
		os.Exit(worker.Main(os.Args))
	}
	if helper.Requested(os.Args) {
		os.Exit(helper.Main(os.Args, typescript.Job))
	}
	if len(os.Args) > 0 && os.Args[0] == serverRole {
		os.Exit(serverMain(os.Args[1:]))
	}
	flag.Parse()
	os.Exit(m.Run())
}

// serverRole is the name (argv[0]) of the test binary as a server that will be
// killed: its arguments are the cache, the owners' folder and the engine.
const serverRole = "paddock-test-server"

// serverMain starts an interpreter, says so, and waits.
func serverMain(args []string) int {
	b, err := wasm.New(wasm.Config{CacheDir: args[0], OwnersDir: args[1], Engine: args[2]})
	if err == nil {
		_, err = b.Start(context.Background(), sandbox.Spec{Owner: "o", Runtime: "python"})
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	// Threads that other goroutines end are none that the worker depends on.
	for range 50 {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			runtime.LockOSThread()
		}()
		<-ended
	}
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1))
	return 0
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
	b, err := wasm.New(wasm.Config{
		CacheDir: sandboxtest.PreparedCache(t), OwnersDir: owners, Engine: *engine, TypeScript: translator(t),
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	p := b.Probe(t.Context())
	sandboxtest.Require(t, "wasm", p.Available && len(p.Runtimes) == 2, p.Reason)
	return b
}

// translator has helpers of this test binary translate.
func translator(t testing.TB) sandbox.Translator {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	helpers := helper.NewRunner(program)
	t.Cleanup(func() { helpers.Close() })
	return typescript.NewTranslator(helpers)
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
