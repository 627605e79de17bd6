package session_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"

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
	silent    error         // why nobody can be inspected; nil: everybody can
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
	if err != nil || d.State != session.Idle || len(d.Variables) != 0 || len(d.Files) != 1 || !strings.Contains(d.Notice, "(python) has ended") {
		t.Errorf("the session is %+v, %v", d, err)
	}
	r := prints(t, m, id, "print(read('kept'))", "text")
	if !strings.Contains(r.Notice, "fresh python interpreter") || !strings.Contains(r.Notice, "ended unexpectedly") {
		t.Errorf("the notice is %q", r.Notice)
	}
	if r := execute(t, m, id, "x"); r.Exit.Error == nil || r.Notice != "" {
		t.Errorf("x is there, or the notice comes again: %q", r.Notice)
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
			if !strings.HasPrefix(r.Notice, c.want) || (c.want == "") != (r.Notice == "") {
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
	if err != nil || d.State != session.Live || len(d.Variables) != 0 || !strings.Contains(d.Notice, "(python) cannot be inspected") {
		t.Errorf("the session is %+v, %v", d, err)
	}
	b.silent = nil
	if d, err = m.Details(t.Context(), alice, id); err != nil || len(d.Variables) != 1 || d.Notice != "" {
		t.Errorf("the session is %+v, %v", d, err)
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
	if f := fault.Of(err); !strings.Contains(f.Message, "old") || f.Hint == "" {
		t.Errorf("it says %q, hint %q", f.Message, f.Hint)
	}
	d, err := m.Details(t.Context(), alice, id)
	if err != nil || len(d.Files) != 1 || filepath.Base(d.Files[0].Path) != "kept" {
		t.Errorf("its files are %+v, %v", d.Files, err)
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
	if n, err := second.Cancel(alice, id, ""); n != 0 || err != nil {
		t.Errorf("where nothing runs it stopped %d, %v", n, err)
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
	if r, err := m.Execute(t.Context(), alice, id, session.Request{Code: "1", Isolation: "between"}); err != nil || r.Isolation != "between" {
		t.Errorf("its own isolation gives %q, %v", r.Isolation, err)
	}
}
