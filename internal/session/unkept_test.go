package session_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"paddock/internal/blob/blobtest"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

// failing makes a Manager on a disk that fails when it is told to.
func failing(t *testing.T, fake sandboxtest.FakeConfig) (*session.Manager, *blobtest.Disk) {
	t.Helper()
	dir := t.TempDir()
	disk, err := blobtest.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	return manager(t, session.Config{Dir: dir, Files: disk}, fake), disk
}

// keeps reports whether an operation keeps something: it makes a file, or writes the log.
func keeps(op blobtest.Op) bool { return op.Kind == "create" || op.Kind == "write" && ofLog(op) }

// fetches reports whether an operation reads what was kept.
func fetches(op blobtest.Op) bool { return op.Kind == "open" || op.Kind == "read" && ofLog(op) }

func ofLog(op blobtest.Op) bool { return strings.HasSuffix(op.Name, ".log") }

// broken is a disk that keeps nothing and gives nothing back.
func broken(op blobtest.Op) error {
	if keeps(op) || fetches(op) {
		return syscall.EIO
	}
	return nil
}

// unkept runs what cannot be kept.
func unkept(t *testing.T, m *session.Manager, disk *blobtest.Disk, id session.ID, code string) {
	t.Helper()
	disk.SetFault(broken)
	if r := execute(t, m, id, code); !strings.Contains(r.Notice, "in memory only") {
		t.Fatalf("the notice is %q", r.Notice)
	}
}

// What a call left that could not be kept is kept before the session goes back, also
// where no caller waits for that any more.
func TestWhoHangsUpWhileGoingBackDoesNotLoseWhatCouldNotBeKept(t *testing.T) {
	m, disk := failing(t, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1")
	unkept(t, m, disk, id, "x = 2")
	ctx, cancel := context.WithCancel(t.Context())
	disk.SetFault(func(op blobtest.Op) error {
		if op.Kind == "create" && ofLog(op) { // what could not be kept is kept now; the log reads in the background, too
			cancel()
		}
		return nil
	})
	r, err := m.Undo(ctx, alice, id)
	if err != nil {
		t.Fatal(err)
	}
	if ctx.Err() == nil {
		t.Error("the caller did not hang up")
	}
	if r.Notice != "" {
		t.Fatalf("r.Notice: got %q, want none", r.Notice)
	}
	prints(t, m, id, "print(x)", "1")
	if _, err := m.Restore(t.Context(), alice, id, r.Undone); err != nil {
		t.Fatal(err)
	}
	prints(t, m, id, "print(x)", "2")
}

func TestWhatCannotBeKeptOfAStoppedSessionGoesWhole(t *testing.T) {
	m, disk := failing(t, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1\nwrite('a', '1')")
	unkept(t, m, disk, id, "x = 2\nwrite('a', '2')")
	if err := m.Halt(t.Context(), alice, id); err == nil {
		t.Error("it is not said that something is lost")
	}
	disk.SetFault(nil)
	if err := m.Boot(t.Context(), alice, id); err != nil {
		t.Fatal(err)
	}
	if r := prints(t, m, id, "print(x, read('a'))", "1 1"); !strings.Contains(r.Notice, "could not be kept, and is gone") {
		t.Errorf("the notice is %q", r.Notice)
	}
}

// mortal is a backend whose instances a test can end, and that keeps their states.
type mortal struct {
	*sandboxtest.Fake

	mu        sync.Mutex // guards what follows
	instances []sandbox.Instance
}

func (b *mortal) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error) {
	in, err := b.Fake.Start(ctx, spec)
	if err == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.instances = append(b.instances, in)
	}
	return in, err
}

// keptInPart is a session of a mortal backend whose disk has taken its first run, and
// fails since its second.
func keptInPart(t *testing.T) (*session.Manager, *mortal, *blobtest.Disk, session.ID) {
	t.Helper()
	dir := t.TempDir()
	disk, err := blobtest.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	b := &mortal{Fake: sandboxtest.NewFake(sandboxtest.FakeConfig{Name: "mortal"})}
	m := manager(t, session.Config{Dir: dir, Files: disk, Backends: []sandbox.Backend{b}}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1\nwrite('a', '1')")
	unkept(t, m, disk, id, "x = 2\nwrite('a', '2')")
	return m, b, disk, id
}

// A program that runs on files that are not whole would lose what it writes when
// they are brought back.
func TestNothingRunsWhileFilesCouldNotBeBroughtBack(t *testing.T) {
	m, b, disk, id := keptInPart(t)
	if err := b.instances[0].Close(); err != nil {
		t.Fatal(err)
	}
	_, err := m.Execute(t.Context(), alice, id, session.Request{Code: "write('b', 'new')", Language: "javascript"}) // which needs nothing of the disk
	wantKind(t, err, fault.Unavailable)
	wantKind(t, m.Boot(t.Context(), alice, id), fault.Unavailable)
	disk.SetFault(nil)
	r := execute(t, m, id, "write('b', 'new')\nprint(x, read('a'))")
	if r.Stdout != "1 1\n" {
		t.Errorf("r.Stdout: got %q, want %q", r.Stdout, "1 1\n")
	}
	if !strings.Contains(r.Notice, "as they were before that call") {
		t.Errorf("r.Notice: got %q, want %q in it", r.Notice, "as they were before that call")
	}
	prints(t, m, id, "print(read('b'))", "new")
}

// watched tells how often it opened its files again.
type watched struct {
	sandbox.Instance
	sandbox.Snapshotter
	refreshed *atomic.Int32
}

func (w watched) Refresh(ctx context.Context) error {
	w.refreshed.Add(1)
	return w.Snapshotter.Refresh(ctx)
}

type watching struct {
	*sandboxtest.Fake
	refreshed atomic.Int32
}

func (b *watching) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error) {
	in, err := b.Fake.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	return watched{in, in.(sandbox.Snapshotter), &b.refreshed}, nil
}

// What a program has open would be what lay there before the files were changed and
// brought back.
func TestInterpretersOpenTheirFilesAnewAfterGoingBackFailed(t *testing.T) {
	for name, torn := range map[string]bool{"at once": false, "by the next call": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			disk, err := blobtest.New(dir)
			if err != nil {
				t.Fatal(err)
			}
			b := &watching{Fake: sandboxtest.NewFake(sandboxtest.FakeConfig{Name: "watching"})}
			m := manager(t, session.Config{Dir: dir, Files: disk, Backends: []sandbox.Backend{b}}, sandboxtest.FakeConfig{})
			id := create(t, m, alice, "")
			execute(t, m, id, "write('a', '1')")
			execute(t, m, id, "write('a', '2')")
			failed := false
			disk.SetFault(func(op blobtest.Op) error {
				if failed = failed || keeps(op); keeps(op) || failed && torn && fetches(op) {
					return syscall.EIO
				}
				return nil
			})
			b.refreshed.Store(0)
			if _, err := m.Undo(t.Context(), alice, id); err == nil {
				t.Error("it went back")
			}
			if n := b.refreshed.Load(); (n == 0) != torn {
				t.Errorf("they were opened anew %d times", n)
			}
			disk.SetFault(nil)
			prints(t, m, id, "print(read('a'))", "2")
			if b.refreshed.Load() == 0 {
				t.Error("they were not opened anew")
			}
		})
	}
}

// The machine is stopped before the files are touched.
func TestAStoppedMachineIsToldOfAlsoWhereTheRestFailed(t *testing.T) {
	for name, do := range map[string]func(*session.Manager, session.ID) error{
		"undo":  func(m *session.Manager, id session.ID) error { _, err := m.Undo(t.Context(), alice, id); return err },
		"reset": func(m *session.Manager, id session.ID) error { _, err := m.Reset(t.Context(), alice, id); return err },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			disk, err := blobtest.New(dir)
			if err != nil {
				t.Fatal(err)
			}
			m, _ := machines(t, session.Config{Dir: dir, Files: disk})
			id := create(t, m, alice, "")
			execute(t, m, id, "x = 1\nwrite('a', '1')")
			command(t, m, id, "spawn", "server")
			disk.SetFault(func(op blobtest.Op) error {
				if keeps(op) {
					return syscall.EIO
				}
				return nil
			})
			if err := do(m, id); err == nil {
				t.Fatal("it worked")
			}
			disk.SetFault(nil)
			says(t, prints(t, m, id, "print(read('a'))", "1").Notice, "server", "fresh python interpreter", "its machine was stopped to")
			if err := do(m, id); err != nil {
				t.Fatal(err)
			}
			if name == "reset" {
				says(t, execute(t, m, id, "1").Notice, "", "server", "fresh")
			}
		})
	}
}

// The files of a program that crashed are brought back under the other interpreters.
func TestInterpretersOpenTheirFilesAnewAfterACrashBesideThem(t *testing.T) {
	b := &watching{Fake: sandboxtest.NewFake(sandboxtest.FakeConfig{Name: "watching"})}
	m := manager(t, session.Config{Backends: []sandbox.Backend{b}}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	if _, err := m.Execute(t.Context(), alice, id, session.Request{Code: "write('a', '1')", Language: "javascript"}); err != nil {
		t.Fatal(err)
	}
	execute(t, m, id, "x = 1")
	b.refreshed.Store(0)
	execute(t, m, id, "write('a', '2')\ncrash")
	if n := b.refreshed.Load(); n < 2 {
		t.Errorf("%d opened them anew", n)
	}
	prints(t, m, id, "print(read('a'))", "1")
}

// What could not be kept once and was kept later is on disk: nothing of it is lost, and
// no notice says so, when its interpreter ends.
func TestWhatWasKeptAtLastIsNotGivenUpWithItsInterpreter(t *testing.T) {
	m, b, disk, id := keptInPart(t)
	disk.SetFault(nil)
	execute(t, m, id, "y = 3")
	if err := b.instances[0].Close(); err != nil {
		t.Fatal(err)
	}
	if r := prints(t, m, id, "print(x, y, read('a'))", "2 3 2"); strings.Contains(r.Notice, "could not be kept") {
		t.Errorf("the notice is %q", r.Notice)
	}
}
