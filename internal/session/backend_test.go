package session_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"paddock/internal/expect"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

// between is a backend whose instances a test can reach.
type between struct {
	*sandboxtest.Fake

	mu        sync.Mutex // guards what follows
	instances []sandbox.Instance
	exit      *sandbox.Exit // how the next run ends, whatever it does
	silent    error         // why no interpreter can be inspected; nil: each can
}

type reached struct {
	sandbox.Instance
	backend *between
}

func (b *between) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error) {
	in, err := b.Fake.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.instances = append(b.instances, in)
	return reached{in, b}, nil
}

func (r reached) Run(ctx context.Context, cmd sandbox.Command) (sandbox.Exit, error) {
	exit, err := r.Instance.Run(ctx, cmd)
	r.backend.mu.Lock()
	defer r.backend.mu.Unlock()
	if r.backend.exit != nil {
		exit, r.backend.exit = *r.backend.exit, nil
	}
	return exit, err
}

func (r reached) Inspect(ctx context.Context) (sandbox.Inspection, error) {
	r.backend.mu.Lock()
	silent := r.backend.silent
	r.backend.mu.Unlock()
	if silent != nil {
		return sandbox.Inspection{}, silent
	}
	return r.Instance.Inspect(ctx)
}

func overBetween(t *testing.T) (*session.Manager, *between) {
	t.Helper()
	b := &between{Fake: sandboxtest.NewFake(sandboxtest.FakeConfig{Name: "between"})}
	return manager(t, session.Config{Backends: []sandbox.Backend{b}}, sandboxtest.FakeConfig{}), b
}

func TestAnInterpreterThatEndsBetweenTwoCallsIsReplacedAndTheModelTold(t *testing.T) {
	m, b := overBetween(t)
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1\nwrite('kept', 'text')")
	if err := b.instances[0].Close(); err != nil { // its process was killed, say
		t.Fatal(err)
	}
	d, err := m.Details(t.Context(), alice, id)
	if err != nil {
		t.Fatalf("the session: got error %v, want none", err)
	}
	expect.Equal(t, "the session: d.State", d.State, session.Idle)
	expect.Equal(t, "the session: len(d.Variables)", len(d.Variables), 0)
	expect.Equal(t, "the session: len(d.Files)", len(d.Files), 1)
	expect.Part(t, "the session: d.Notice", d.Notice, "(python) has ended")
	r := prints(t, m, id, "print(read('kept'))", "text")
	if !strings.Contains(r.Notice, "fresh python interpreter") {
		t.Errorf("r.Notice: got %q, want %q in it", r.Notice, "fresh python interpreter")
	}
	if !strings.Contains(r.Notice, "ended unexpectedly") {
		t.Errorf("r.Notice: got %q, want %q in it", r.Notice, "ended unexpectedly")
	}
	if r := execute(t, m, id, "x"); r.Exit.Error == nil {
		t.Error("r.Exit.Error: got nil, want one")
	} else if r.Notice != "" {
		t.Errorf("r.Notice: got %q, want none", r.Notice)
	}
}

func TestWhatIsSaidAboutARunThatLeftItsInterpreterOtherwise(t *testing.T) {
	for name, c := range map[string]struct {
		cause sandbox.Cause
		state sandbox.State
		want  string // what the notice begins with
	}{
		"it ended itself":              {sandbox.Exited, sandbox.Restored, "The program ended its interpreter. Variables are as they were before this call; changes to files remain"},
		"it crashed":                   {sandbox.Crashed, sandbox.Restored, "The interpreter crashed. Variables and files are as they were before this call."},
		"it crashed, and all is gone":  {sandbox.Crashed, sandbox.Fresh, "The interpreter crashed. The python interpreter went with it: variables, functions and imports are gone."},
		"it used all memory":           {sandbox.OutOfMemory, sandbox.Restored, "The program left no memory to go on with. Variables and files are as they were before this call"},
		"it did not stop in time":      {sandbox.TimedOut, sandbox.Restored, "The program did not stop when told to (timed out) and was stopped by force. Variables and files are"},
		"it did not stop when told to": {sandbox.Cancelled, sandbox.Fresh, "The program did not stop when told to (cancelled) and was stopped by force. The python interpreter"},
		"nothing special":              {sandbox.Exited, sandbox.Kept, ""},
		"an error that left it whole":  {sandbox.OutOfMemory, sandbox.Kept, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m, b := overBetween(t)
			id := create(t, m, alice, "")
			b.exit = &sandbox.Exit{Cause: c.cause, State: c.state}
			r := execute(t, m, id, "1")
			if !strings.HasPrefix(r.Notice, c.want) {
				t.Errorf("r.Notice: got %q, want it to begin with %q", r.Notice, c.want)
			}
			if (c.want == "") != (r.Notice == "") {
				t.Errorf("the notice is %q, want %q", r.Notice, c.want)
			}
		})
	}
}

func TestDetailsTellWhichInterpreterCannotBeInspected(t *testing.T) {
	m, b := overBetween(t)
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1")
	b.silent = errors.New("it does not answer")
	d, err := m.Details(t.Context(), alice, id)
	if err != nil {
		t.Fatalf("the session: got error %v, want none", err)
	}
	expect.Equal(t, "the session: d.State", d.State, session.Live)
	expect.Equal(t, "the session: len(d.Variables)", len(d.Variables), 0)
	expect.Part(t, "the session: d.Notice", d.Notice, "(python) cannot be inspected")
	b.silent = nil
	if d, err = m.Details(t.Context(), alice, id); err != nil {
		t.Errorf("the session: got error %v, want none", err)
	} else {
		expect.Equal(t, "the session: len(d.Variables)", len(d.Variables), 1)
		expect.Equal(t, "the session: d.Notice", d.Notice, "")
	}
}

// A session may outlive the configuration that it was made with.
func TestASessionWhoseIsolationIsNoLongerThereKeepsItsFiles(t *testing.T) {
	dir := t.TempDir()
	first, err := session.New(session.Config{Dir: dir, Backends: []sandbox.Backend{sandboxtest.NewFake(sandboxtest.FakeConfig{Name: "old"})}})
	if err != nil {
		t.Fatal(err)
	}
	id := create(t, first, alice, "")
	prints(t, first, id, "write('kept', 'text')\nprint(1)", "1")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	m := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{Name: "new"})
	_, err = m.Execute(t.Context(), alice, id, session.Request{Code: "1"})
	wantKind(t, err, fault.Unsupported)
	if f := fault.Of(err); !strings.Contains(f.Message, "old") {
		t.Errorf("f.Message: got %q, want %q in it", f.Message, "old")
	} else if f.Hint == "" {
		t.Error("f.Hint: got none, want one")
	}
	d, err := m.Details(t.Context(), alice, id)
	if err != nil {
		t.Fatalf("its files: got error %v, want none", err)
	}
	if len(d.Files) != 1 {
		t.Fatalf("its files: len(d.Files): got %d, want 1: %v", len(d.Files), d.Files)
	}
	if filepath.Base(d.Files[0].Path) != "kept" {
		t.Errorf("its files: filepath.Base(d.Files[0].Path): got %q, want %q",
			filepath.Base(d.Files[0].Path), "kept")
	}
	if err := m.Destroy(t.Context(), alice, id); err != nil {
		t.Error(err)
	}
}

func TestOnlyTheProcessThatRunsAnExecutionCanCancelIt(t *testing.T) {
	dir := t.TempDir()
	first := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
	id := create(t, first, alice, "")
	second := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
	_, err := second.Cancel(alice, id, "")
	wantKind(t, err, fault.Conflict)
	if _, err := second.Cancel("bob", id, ""); fault.KindOf(err) != fault.NotFound {
		t.Errorf("somebody else is told %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := second.Cancel(alice, id, ""); err != nil {
		t.Errorf("where nothing runs: got error %v, want none", err)
	} else if n != 0 {
		t.Errorf("where nothing runs: got %v, want 0", n)
	}
	if _, err := second.Cancel(alice, "../x", ""); err == nil {
		t.Error("an id that is none is taken")
	}
}

func TestARequestForAnotherIsolationIsAConflict(t *testing.T) {
	m, _ := overBetween(t)
	id := create(t, m, alice, "")
	_, err := m.Execute(t.Context(), alice, id, session.Request{Code: "1", Isolation: "fake"})
	wantKind(t, err, fault.Conflict)
	if r, err := m.Execute(t.Context(), alice, id, session.Request{Code: "1", Isolation: "between"}); err != nil {
		t.Errorf("its own isolation: got error %v, want none", err)
	} else if r.Isolation != "between" {
		t.Errorf("its own isolation: r.Isolation: got %q, want %q", r.Isolation, "between")
	}
}
