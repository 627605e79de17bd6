package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"paddock/internal/app"
	"paddock/internal/fault"
	"paddock/internal/helper"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/linux"
	"paddock/internal/sandbox/linux/agent"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/sandbox/wasm/worker"
	"paddock/internal/session"
)

// fakeEnv makes the paddock of the tests run programs in the fake, whose tiny
// language looks like Python's simplest lines. "linux" adds a second one, for shells.
const fakeEnv = "PADDOCK_FAKE"

// TestMain lets the test binary be paddock, and its own worker.
func TestMain(m *testing.M) {
	if linux.Requested(os.Args) {
		os.Exit(linux.Main(os.Args))
	}
	if agent.Requested(os.Args) {
		os.Exit(agent.Main(os.Args))
	}
	if worker.Requested(os.Args) {
		signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		os.Exit(worker.Main(os.Args))
	}
	if helper.Requested(os.Args) {
		os.Exit(helper.Main(os.Args, app.Jobs()...))
	}
	testscript.Main(m, map[string]func(){"tools-server": toolsServer, "paddock": func() {
		if os.Getenv(fakeEnv) == "" {
			os.Exit(Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
		}
		p := &cli{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, Env: app.Env{NewBackends: newFake}}
		os.Exit(p.main(context.Background(), os.Args[1:]))
	}})
}

func newFake(*app.Env, *session.Life, sandbox.Translator) (app.Backends, error) {
	all := app.Backends{sandboxtest.NewFake(sandboxtest.FakeConfig{Name: "wasm"})}
	if os.Getenv(fakeEnv) == "linux" {
		shell := sandbox.Runtime{Name: "bash", Languages: []string{"bash"}, Version: "1"}
		all = append(all, sandboxtest.NewFake(sandboxtest.FakeConfig{Name: "linux", Runtimes: []sandbox.Runtime{shell}}))
	}
	return all, nil
}

// result is what one command line did, in this process.
type result struct {
	code           int
	stdout, stderr string
}

// command runs a command line in this process, with folders of its own.
func command(t *testing.T, newBackends app.MakeBackends, args ...string) result {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("PADDOCK_STATE_DIR", filepath.Join(dir, "state"))
	t.Setenv("PADDOCK_CACHE_DIR", filepath.Join(dir, "cache"))
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv("PADDOCK_PACKAGES_PUBLIC", "false")
	t.Chdir(dir)
	return run(t, newBackends, args...)
}

// again runs one more command line in the folders of the last command, with fakes.
func again(t *testing.T, args ...string) result {
	t.Helper()
	return run(t, newFake, args...)
}

func run(t *testing.T, newBackends app.MakeBackends, args ...string) result {
	var stdout, stderr bytes.Buffer
	p := &cli{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, Env: app.Env{NewBackends: newBackends}}
	code := p.main(t.Context(), args)
	return result{code, stdout.String(), stderr.String()}
}

func TestAPanicPrintsAShortMessage(t *testing.T) {
	panics := func(*app.Env, *session.Life, sandbox.Translator) (app.Backends, error) { panic("a mistake") }
	for _, test := range []struct {
		name  string
		args  []string
		code  int
		stack bool
	}{
		{"without a stack", []string{"mcp"}, exitFailed, false},
		{"with one at log level debug", []string{"mcp", "--log-level", "debug"}, exitFailed, true},
		{"with a code of its own for run", []string{"run", "-c", "1"}, exitRunFailed, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := command(t, panics, test.args...)
			if r.code != test.code {
				t.Errorf("r.code: got %v, want %v: %s", r.code, test.code, r.stderr)
			}
			if !strings.Contains(r.stderr, "paddock: error: paddock made a mistake: a mistake\n") {
				t.Errorf("r.stderr: got %q, want %q in it", r.stderr, "paddock: error: paddock made a mistake: a mistake\n")
			}
			if r.stdout != "" {
				t.Errorf("r.stdout: got %q, want none", r.stdout)
			}
			if got := strings.Contains(r.stderr, "goroutine"); got != test.stack {
				t.Errorf("there is a stack: %v, want %v", got, test.stack)
			}
		})
	}
}

func TestEveryMistakeIsReportedWithItsHint(t *testing.T) {
	cause := errors.New("what only the operator reads")
	err := errors.Join(
		fault.New(fault.Invalid, "the first").WithHint("do this"),
		errors.Join(fault.New(fault.NotFound, "the second").WithCause(cause), context.Canceled),
		io.ErrUnexpectedEOF,
	)
	want := "paddock: error: the first\npaddock: hint: do this\npaddock: error: the second\npaddock: error: cancelled\npaddock: error: unexpected EOF\n"
	var stderr bytes.Buffer
	p := &cli{stderr: &stderr, Env: app.Env{Log: slog.New(slog.DiscardHandler)}}
	if p.report(err); stderr.String() != want {
		t.Errorf("it says\n%s\nwant\n%s", &stderr, want)
	}
	p.Log = slog.New(slog.NewTextHandler(&stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if p.report(err); !strings.Contains(stderr.String(), cause.Error()) {
		t.Errorf("the cause is not in the log:\n%s", &stderr)
	}
}

func TestWhereTheFlagsOfRunEnd(t *testing.T) {
	for _, test := range []struct {
		name, args, want string
		running          bool
	}{
		{"at a file, which cobra finds by itself", "run a.py --json", "run a.py --json", true},
		{"at a lone dash", "run --json - -x", "run --json - -x", true},
		{"behind -c CODE", "run -c CODE --json -x", "run -c CODE -- --json -x", true},
		{"behind -cCODE", "run -cCODE --json", "run -cCODE -- --json", true},
		{"behind --code CODE", "run --code CODE -h", "run --code CODE -- -h", true},
		{"behind --code=CODE", "run --code=CODE -h", "run --code=CODE -- -h", true},
		{"behind code that looks like a flag", "run -c -x -y", "run -c -x -- -y", true},
		{"behind code that is a command's name", "run -c run run", "run -c run -- run", true},
		{"not at the value of a flag", "run --timeout 5s -l python -c CODE -x", "run --timeout 5s -l python -c CODE -- -x", true},
		{"not at a flag's value that looks like -c", "run --session -c CODE", "run --session -c CODE", true},
		{"not behind a flag without a value", "run --json -c CODE -x", "run --json -c CODE -- -x", true},
		{"not where they were ended already", "run -- -c", "run -- -c", true},
		{"with flags before the command", "--log-level debug run -c CODE -x", "run --log-level debug -c CODE -- -x", true},
		{"with the code missing", "run -c", "run -c", true},
		{"not where nothing follows the code", "run --json -c CODE", "run --json -c CODE", true},
		{"not for another command", "session rm -c x", "session rm -c x", false},
		{"not for a command of that name below another", "help run -c x", "help run -c x", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := &cli{}
			got, running := endFlags(p.root(), strings.Fields(test.args))
			if strings.Join(got, " ") != test.want {
				t.Errorf(`strings.Join(got, " "): got %q, want %q`, strings.Join(got, " "), test.want)
			}
			if running != test.running {
				t.Errorf("running: got %v, want %v", running, test.running)
			}
		})
	}
}

func TestTheExitCodeOfAProgram(t *testing.T) {
	for _, test := range []struct {
		exit sandbox.Exit
		want int
	}{
		{sandbox.Exit{Cause: sandbox.Exited}, 0},
		{sandbox.Exit{Cause: sandbox.Exited, Code: 3}, 3},
		{sandbox.Exit{Cause: sandbox.Exited, Code: 255}, 255},
		{sandbox.Exit{Cause: sandbox.Exited, Code: 256}, 1},
		{sandbox.Exit{Cause: sandbox.Exited, Code: -1}, 255},
		{sandbox.Exit{Cause: sandbox.TimedOut}, 124},
		{sandbox.Exit{Cause: sandbox.Cancelled}, 130},
		{sandbox.Exit{Cause: sandbox.Crashed}, 134},
		{sandbox.Exit{Cause: sandbox.OutOfFuel}, 137},
		{sandbox.Exit{Cause: sandbox.OutOfMemory, Code: 1}, 137},
		{sandbox.Exit{Cause: sandbox.OutOfSpace, Code: 1}, 137},
		{sandbox.Exit{Cause: sandbox.OutputExceeded}, 137},
	} {
		if got := exitCode(test.exit); got != test.want {
			t.Errorf("%v with %d gives %d, want %d", test.exit.Cause, test.exit.Code, got, test.want)
		}
	}
}

func TestEveryCommandTellsItsExitCodes(t *testing.T) {
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		if !c.HasSubCommands() && !strings.Contains(c.Long, "Exit codes: ") {
			t.Errorf("the help of %q does not", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			look(sub)
		}
	}
	look((&cli{}).root())
}

func TestOutputThatNobodyReadsEndsTheProgram(t *testing.T) {
	p := &cli{stdin: strings.NewReader(""), stdout: broken{syscall.EPIPE}, stderr: io.Discard, Env: app.Env{NewBackends: newFake}}
	t.Setenv("PADDOCK_STATE_DIR", t.TempDir())
	t.Setenv("PADDOCK_CACHE_DIR", t.TempDir())
	if code := p.main(t.Context(), []string{"run", "--timeout", "60s", "-c", "print(1)\nloop"}); code != exitNoReader {
		t.Errorf("the exit code is %d", code)
	}
}

func TestAReaderOfATableThatLeavesIsNoFailure(t *testing.T) {
	var stderr bytes.Buffer
	p := &cli{stdin: strings.NewReader(""), stdout: broken{syscall.EPIPE}, stderr: &stderr, Env: app.Env{NewBackends: newFake}}
	t.Setenv("PADDOCK_STATE_DIR", t.TempDir())
	t.Setenv("PADDOCK_CACHE_DIR", t.TempDir())
	for _, args := range []string{"session ls", "session ls --json", "config show"} {
		if code := p.main(t.Context(), strings.Fields(args)); code != exitNoReader {
			t.Errorf("%s: the exit code: got %v, want %v: %s", args, code, exitNoReader, &stderr)
		} else if stderr.Len() > 0 {
			t.Errorf("%s: the exit code: stderr.Len(): got %v, want 0", args, stderr.Len())
		}
	}
}

type broken struct{ err error }

func (b broken) Write([]byte) (int, error) { return 0, b.err }

func TestWhereThingsAreKept(t *testing.T) {
	for _, v := range []string{"PADDOCK_STATE_DIR", "PADDOCK_CACHE_DIR", "PADDOCK_CONFIG"} {
		t.Setenv(v, "")
	}
	dir := t.TempDir()
	for _, v := range []string{"XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"} {
		t.Setenv(v, filepath.Join(dir, v))
	}
	find := func(args ...string) *cli {
		t.Helper()
		p, root := &cli{}, (&cli{}).root()
		c, rest, err := root.Find(append([]string{"version"}, args...))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.ParseFlags(rest); err != nil {
			t.Fatal(err)
		}
		if err := p.findPlaces(c.Flags()); err != nil {
			t.Fatal(err)
		}
		return p
	}
	got := find()
	if got.StateDir != filepath.Join(dir, "XDG_STATE_HOME", "paddock") {
		t.Errorf("the folders: got.StateDir: got %v, want %v",
			got.StateDir, filepath.Join(dir, "XDG_STATE_HOME", "paddock"))
	}
	if got.CacheDir != filepath.Join(dir, "XDG_CACHE_HOME", "paddock") {
		t.Errorf("the folders: got.CacheDir: got %v, want %v",
			got.CacheDir, filepath.Join(dir, "XDG_CACHE_HOME", "paddock"))
	}
	if got.places.config != "" {
		t.Errorf("the folders: got.places.config: got %q, want none", got.places.config)
	}
	if want := []string{filepath.Join(dir, "XDG_CONFIG_HOME", "paddock", "paddock.toml")}; !slices.Equal(got.places.search, want) {
		t.Errorf("the configuration is searched in %q, want %q", got.places.search, want)
	}
	t.Setenv("PADDOCK_STATE_DIR", filepath.Join(dir, "variable"))
	if got := find().StateDir; got != filepath.Join(dir, "variable") {
		t.Errorf("with a variable the state folder is %s", got)
	}
	if got := find("--state-dir", filepath.Join(dir, "flag")).StateDir; got != filepath.Join(dir, "flag") {
		t.Errorf("with a flag the state folder is %s", got)
	}
	for _, v := range []string{"XDG_STATE_HOME", "PADDOCK_STATE_DIR"} {
		t.Setenv(v, "")
	}
	if got := find().StateDir; !filepath.IsAbs(got) {
		t.Errorf("without any the state folder: got %s, want an absolute path", got)
	} else if !strings.Contains(filepath.ToSlash(got), "/paddock") {
		t.Errorf("without any the state folder: filepath.ToSlash(got): got %q, want %q in it",
			filepath.ToSlash(got), "/paddock")
	}
}

// prepares counts how often a backend is made ready.
type prepares struct {
	sandbox.Backend
	times *int
}

func (p prepares) Prepare(context.Context) error { *p.times++; return nil }

func TestRunPreparesWhatTheProgramRunsInAndNothingElse(t *testing.T) {
	var first, second int
	both := func(*app.Env, *session.Life, sandbox.Translator) (app.Backends, error) {
		fake := func(name string) sandbox.Backend { return sandboxtest.NewFake(sandboxtest.FakeConfig{Name: name}) }
		return app.Backends{prepares{fake("wasm"), &first}, prepares{fake("linux"), &second}}, nil
	}
	r := command(t, both, "run", "--keep", "--isolation", "linux", "-c", "print(1)")
	if r.code != 0 {
		t.Errorf("r.code: got %v, want 0: %s", r.code, r.stderr)
	}
	if first != 0 {
		t.Errorf("first: got %v, want 0", first)
	}
	if second != 1 {
		t.Errorf("second: got %v, want 1", second)
	}
	_, id, _ := strings.Cut(strings.TrimSpace(r.stderr), "session: ")
	if r := run(t, both, "run", "--session", id, "-c", "print(2)"); r.code != 0 {
		t.Errorf("in the session %q: r.code: got %v, want 0: %s", id, r.code, r.stderr)
	} else if first != 0 {
		t.Errorf("in the session %q: first: got %v, want 0", id, first)
	} else if second != 2 {
		t.Errorf("in the session %q: second: got %v, want 2", id, second)
	}
	if r := run(t, both, "run", "-c", "print(3)"); r.code != 0 {
		t.Errorf("r.code: got %v, want 0: %s", r.code, r.stderr)
	} else if first != 1 {
		t.Errorf("first: got %v, want 1", first)
	} else if second != 2 {
		t.Errorf("second: got %v, want 2", second)
	}
}
