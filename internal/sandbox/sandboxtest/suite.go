// Package sandboxtest holds what every backend has in common as tests: [Run]
// is the suite that each of them passes, and [Fake] is one in memory that
// passes it too, for the tests of those who use a backend.
package sandboxtest

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// timeout bounds what should take a fraction of a second; the machine may be
// loaded.
const timeout = time.Minute

// Suite is what [Run] needs to know of a backend.
type Suite struct {
	// New makes a backend, which the suite closes. Every mount of the suite lies
	// in a folder of its own below owners/<owner>; the backend may ask for its
	// files' owner with a method FileOwner() (uid, gid int).
	New func(t *testing.T, owners string) sandbox.Backend
	// Programs are the snippets for each runtime; every runtime that the Probe
	// names needs some.
	Programs map[string]Programs
	// Machine tells that guests have a whole machine of their own: it has files
	// that nobody mounted, which a program may read and, there, change; variables
	// that are in no Spec; and no fuel. A program that takes too much memory may
	// lose its state with it, as the Exit says.
	Machine bool
}

// Run checks a backend against the contract of package sandbox, with every
// runtime that it offers.
func Run(t *testing.T, s Suite) {
	t.Helper()
	h := newHarness(t, s)
	probe := h.backend.Probe(t.Context())
	if !probe.Available {
		t.Fatalf("the backend is not available: %s (%s)", probe.Reason, probe.Hint)
	}
	t.Run("the backend", func(t *testing.T) { testBackend(t, h, probe) })
	for _, r := range probe.Runtimes {
		p, ok := s.Programs[r.Name]
		if !ok {
			t.Errorf("the suite has no programs for the runtime %q", r.Name)
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			k := &kit{harness: h, Programs: p, runtime: r.Name}
			leave := k.settle(t)
			t.Run("life", k.testLife)
			t.Run("run", k.testRun)
			t.Run("state", k.testState)
			t.Run("snapshots", k.withSnapshots(snapshotKit.testSnapshots))
			t.Run("going back", k.withSnapshots(snapshotKit.testGoingBack))
			t.Run("forks", k.withSnapshots(snapshotKit.testForks))
			t.Run("machines", k.withMachines(machineKit.testMachines))
			t.Run("proxy", k.testProxy)
			t.Run("calls", k.testCalls)
			t.Run("suspending", k.testSuspending)
			t.Run("limits", k.testLimits)
			t.Run("escape", k.testEscape)
			t.Run("concurrency", k.testConcurrency)
			leave()
			t.Run("leaks", k.testLeaks)
		})
	}
}

// harness is a backend and where its mounts lie.
type harness struct {
	suite    Suite
	backend  sandbox.Backend
	owners   string
	uid, gid int
}

func newHarness(t *testing.T, s Suite) *harness {
	t.Helper()
	h := &harness{suite: s, owners: t.TempDir()}
	h.backend = s.New(t, h.owners)
	t.Cleanup(func() {
		if err := h.backend.Close(); err != nil {
			t.Errorf("closing the backend: %v", err)
		}
		if err := h.backend.Close(); err != nil {
			t.Errorf("closing the backend again: %v", err)
		}
	})
	if o, ok := h.backend.(interface{ FileOwner() (uid, gid int) }); ok {
		h.uid, h.gid = o.FileOwner()
	}
	return h
}

func testBackend(t *testing.T, h *harness, probe sandbox.Probe) {
	if h.backend.Name() == "" || len(probe.Runtimes) == 0 {
		t.Errorf("it is called %q and has the runtimes %v", h.backend.Name(), probe.Runtimes)
	}
	for _, r := range probe.Runtimes {
		for what, text := range map[string]string{"name": r.Name, "version": r.Version, "description": r.Description} {
			if text == "" {
				t.Errorf("the runtime %+v has no %s", r, what)
			}
		}
		if len(r.Languages) == 0 {
			t.Errorf("the runtime %q runs no language", r.Name)
		}
	}
	_, err := h.backend.Start(t.Context(), sandbox.Spec{Owner: "alice", Runtime: "cobol"})
	wantFault(t, err, fault.Unsupported)
	other := newHarness(t, h.suite)
	if err := other.backend.Close(); err != nil {
		t.Error(err)
	}
	if _, err := other.backend.Start(t.Context(), sandbox.Spec{Owner: "alice", Runtime: probe.Runtimes[0].Name}); err == nil {
		t.Error("a closed backend starts instances")
	}
}

// kit is what the tests of one runtime use.
type kit struct {
	*harness
	Programs
	runtime string
}

// folder makes a folder of the host for a mount.
func (k *kit) folder(t *testing.T) string {
	t.Helper()
	owner := filepath.Join(k.owners, "alice")
	if err := os.MkdirAll(owner, 0o755); err != nil {
		t.Fatal(err)
	}
	outer, err := os.MkdirTemp(owner, "session-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(outer, 0o755); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(outer, "workspace")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	k.give(t, dir)
	return dir
}

// give makes a file or folder the guest's own.
func (k *kit) give(t *testing.T, path string) {
	t.Helper()
	if k.uid != 0 {
		if err := os.Lchown(path, k.uid, k.gid); err != nil {
			t.Fatal(err)
		}
	}
}

// put writes a file that the guest may change.
func (k *kit) put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	k.give(t, path)
}

// spec describes an instance with a workspace, as sessions do.
func (k *kit) spec(dir string) sandbox.Spec {
	s := sandbox.Spec{Owner: "alice", Runtime: k.runtime, Limits: sandbox.Limits{MemoryBytes: 256 << 20}}
	if dir != "" {
		s.Dir = "/workspace"
		s.Mounts = []sandbox.Mount{{Guest: "/workspace", Aliases: []string{"/app"}, Host: dir, DiskBytes: 16 << 20}}
	}
	return s
}

// settle starts who keeps the machine that those beside it are in, where there are
// machines; leave ends both.
func (k *kit) settle(t *testing.T) (leave func()) {
	t.Helper()
	if !k.suite.Machine {
		return func() {}
	}
	in := k.start(t, k.beside())
	return func() {
		t.Helper()
		works(t, in, k.Print("still here"), "still here")
		in.Close()
	}
}

// beside describes an instance without folders that may be in one machine with others,
// where there are machines: for what is about the interpreter alone, which has to keep
// apart from theirs there, and whose end is not the machine's. To boot one takes longer
// than most of what is done in it.
func (k *kit) beside() sandbox.Spec {
	s := k.spec("")
	if k.suite.Machine {
		s.Box, s.Limits.MemoryBytes = "common "+k.runtime, 1<<30
	}
	return s
}

// start makes an instance that the test's end closes.
func (k *kit) start(t *testing.T, spec sandbox.Spec) sandbox.Instance {
	t.Helper()
	in, err := k.backend.Start(t.Context(), spec)
	if err != nil {
		t.Fatalf("starting an instance: %v", err)
	}
	t.Cleanup(func() { in.Close() })
	return in
}

// output is what a run printed and how it ended.
type output struct {
	sandbox.Exit
	stdout, stderr string
}

// wantEnd checks why a program ended.
func (o output) wantEnd(t *testing.T, want sandbox.Cause) {
	t.Helper()
	if o.Cause != want {
		t.Errorf("it %v, want %v (code %d, state %v, error %+v)", o.Cause, want, o.Code, o.State, o.Error)
	}
}

// wantFailure checks why a program ended that does not end well.
func (o output) wantFailure(t *testing.T, want sandbox.Cause) {
	t.Helper()
	o.wantEnd(t, want)
	if o.Code == 0 {
		t.Error("its code is 0, want another one")
	}
}

// wantState checks what became of a program's state.
func (o output) wantState(t *testing.T, want sandbox.State) {
	t.Helper()
	if o.State != want {
		t.Errorf("its state is %v, want %v", o.State, want)
	}
}

// run executes a program that must not take the instance with it.
func run(t *testing.T, in sandbox.Instance, cmd sandbox.Command) output {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return runIn(ctx, t, in, cmd)
}

func runIn(ctx context.Context, t *testing.T, in sandbox.Instance, cmd sandbox.Command) output {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &stdout
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &stderr
	}
	exit, err := in.Run(ctx, cmd)
	if err != nil {
		t.Errorf("running a program: %v", err)
	}
	return output{exit, stdout.String(), stderr.String()}
}

func code(src string) sandbox.Command { return sandbox.Command{Code: src} }

// works checks that a program ends well and prints what it should.
func works(t *testing.T, in sandbox.Instance, src, want string) {
	t.Helper()
	o := run(t, in, code(src))
	o.wantEnd(t, sandbox.Exited)
	o.wantState(t, sandbox.Kept)
	if o.Code != 0 || o.Error != nil {
		t.Errorf("it has the code %d and the error %+v, want neither", o.Code, o.Error)
	}
	if got := strings.TrimRight(o.stdout, "\n"); got != want {
		t.Errorf("it printed %q, want %q (stderr %q)", got, want, o.stderr)
	}
}

// fails checks that a program ends with an error of its own, and stays so.
func fails(t *testing.T, in sandbox.Instance, src string) output {
	t.Helper()
	o := run(t, in, code(src))
	o.wantFailure(t, sandbox.Exited)
	if o.Error == nil || o.Error.Type == "" {
		t.Errorf("its error is %+v, want one with a type (stdout %.200q)", o.Error, o.stdout)
	}
	return o
}

func wantFault(t *testing.T, err error, kinds ...fault.Kind) {
	t.Helper()
	got := fault.KindOf(err)
	for _, k := range kinds {
		if got == k {
			return
		}
	}
	t.Errorf("got the fault %q (%v), want one of %v", got, err, kinds)
}

// signal is a writer that tells when something has been printed.
type signal chan struct{}

func (s signal) Write(p []byte) (int, error) {
	select {
	case s <- struct{}{}:
	default:
	}
	return len(p), nil
}

// background runs a program that prints something first, and returns when it
// has; answer gives how the run ended.
func background(ctx context.Context, t *testing.T, in sandbox.Instance, src string, limits sandbox.RunLimits) (answer <-chan result) {
	t.Helper()
	printed, ended := make(signal, 1), make(chan result, 1)
	go func() {
		exit, err := in.Run(ctx, sandbox.Command{Code: src, Stdout: printed, Limits: limits})
		ended <- result{exit, err}
	}()
	select {
	case <-printed:
	case r := <-ended:
		t.Fatalf("the program ended at once: %+v, %v", r.exit, r.err)
	case <-time.After(timeout):
		t.Fatal("the program printed nothing")
	}
	return ended
}

type result struct {
	exit sandbox.Exit
	err  error
}

func await[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(timeout):
		t.Fatalf("%s did not happen", what)
	}
	return v
}
