//go:build linux && (amd64 || arm64)

package linux

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/internal/helper"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/linux/agent"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/sandbox/typescript"
)

// commandRole is the name of the test binary as a box's first program that runs
// one command.
const commandRole = "paddock-test-command"

// TestMain lets the test binary be the parts of a box, its first program, a helper, and
// a server that will be killed.
func TestMain(m *testing.M) {
	switch {
	case os.Args[0] == sentryRole && filepath.Base(selfPath()) == deafProgram:
		os.Exit(deafMain(os.Args))
	case Requested(os.Args):
		os.Exit(Main(os.Args))
	case agent.Requested(os.Args):
		os.Exit(agent.Main(os.Args))
	case helper.Requested(os.Args):
		os.Exit(helper.Main(os.Args, typescript.Job))
	case os.Args[0] == commandRole:
		os.Exit(commandMain(os.Args[1:]))
	case os.Args[0] == refusedRole:
		os.Exit(refusedMain(os.Args[1:]))
	case os.Args[0] == stormRole:
		os.Exit(stormMain(os.Args[1:]))
	case os.Args[0] == serverRole:
		os.Exit(serverMain(os.Args[1:]))
	}
	if raceEnabled {
		os.Exit(runWithPlainParts(m))
	}
	os.Exit(m.Run())
}

// runWithPlainParts gives boxes a test binary without the race detector, which a
// sentry's filter of system calls does not let do its work: it watches the server's
// half alone.
func runWithPlainParts(m *testing.M) int {
	dir, err := os.MkdirTemp("", "paddock-test-parts")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	executable = filepath.Join(dir, "parts")
	cmd := exec.Command("go", "test", "-c", "-o", executable, "paddock/internal/sandbox/linux")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building what boxes are made of: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// commandMain runs a command and sends what it prints.
func commandMain(args []string) int {
	stream := os.NewFile(wireFD, "server")
	if len(args) == 0 { // it waits instead
		_, _ = io.Copy(stream, stream)
		return 0
	}
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		out = fmt.Appendf(out, "%v\n", err)
	}
	_, _ = stream.Write(out)
	return 0
}

// deafProgram is the name of the test binary as a sentry that boots and then accepts no
// connection.
const deafProgram = "deaf"

func deafMain([]string) int {
	runtime.LockOSThread() // see Main
	socket := os.NewFile(setupFD, "setup")
	var setup sentrySetup
	if err := receive(socket, &setup); err != nil {
		return 1
	}
	if err := ready(socket); err != nil {
		return 1
	}
	for _, arg := range setup.Args {
		var fd int
		if _, err := fmt.Sscanf(arg, "--controller-fd=%d", &fd); err == nil && unix.Listen(fd, 1) != nil {
			return 1
		}
		if _, err := fmt.Sscanf(arg, "--start-sync-fd=%d", &fd); err == nil {
			if _, err := unix.Write(fd, []byte{0}); err != nil {
				return 1
			}
		}
	}
	time.Sleep(time.Hour)
	return 0
}

// selfPath is where this program is, as the kernel has it.
func selfPath() string {
	path, _ := os.Readlink("/proc/self/exe")
	return path
}

// logger writes a test's log.
func logger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// newLauncher is one for boxes without a backend.
func newLauncher(t testing.TB) *launcher {
	t.Helper()
	l := &launcher{dir: t.TempDir(), uid: 65534, gid: 65534, platform: "systrap", parent: parent{skipMembarrier: true}}
	t.Cleanup(l.parent.close)
	if os.Getenv("PADDOCK_TEST_DEBUG") != "" {
		l.debug = os.Stderr
	}
	return l
}

// newPlan is a box with the host's userland whose first program runs a command;
// none: it sends back what it gets.
func newPlan(t testing.TB, command ...string) *plan {
	t.Helper()
	root, err := hostRootfs("")
	if err != nil {
		t.Fatal(err)
	}
	return &plan{id: strings.ReplaceAll(t.Name(), "/", "-"), root: root, memory: 512 << 20, init: append([]string{commandRole}, command...)}
}

// bootBox boots one, or skips the test where none can be.
func bootBox(t testing.TB, l *launcher, p *plan) *box {
	t.Helper()
	b, err := l.boot(t.Context(), p, nil)
	if err != nil {
		sandboxtest.Require(t, "linux", false, fmt.Sprintf("a box does not boot: %v (%s)", err, hint(err)))
	}
	t.Cleanup(func() { b.close() })
	return b
}

// output is what a box's command printed, when it has ended.
func output(t testing.TB, b *box) string {
	t.Helper()
	out, err := io.ReadAll(b.stream)
	if err != nil {
		t.Fatal(err, b.close())
	}
	return string(bytes.TrimSpace(out))
}

// openBackend makes a backend, or skips the test where there is none.
func openBackend(t testing.TB, c Config) *Backend {
	t.Helper()
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	c.Log = logger(t)
	if c.TypeScript == nil {
		c.TypeScript = translator(t)
	}
	b, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	p := b.Probe(t.Context())
	sandboxtest.Require(t, "linux", p.Available, p.Reason+": "+p.Hint)
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

// newBackend makes one that the test's end closes.
func newBackend(t testing.TB) *Backend {
	t.Helper()
	b := openBackend(t, Config{})
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

var _ sandbox.Backend = (*Backend)(nil)
