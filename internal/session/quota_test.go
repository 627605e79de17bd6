package session_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

const mib = 1 << 20

// refused checks that running code in a session of the owner is a
// fault.Exhausted whose hint says all of this.
func refused(t *testing.T, m *session.Manager, owner session.Owner, id session.ID, hints ...string) {
	t.Helper()
	_, err := m.Execute(t.Context(), owner, id, session.Request{Code: "1"})
	if fault.KindOf(err) != fault.Exhausted {
		t.Fatalf("got %v, want a fault.Exhausted", err)
	}
	wantHint(t, err, hints...)
}

// wantHint checks that a fault's hint says all of this.
func wantHint(t *testing.T, err error, hints ...string) {
	t.Helper()
	got := fault.Of(err).Hint
	for _, want := range hints {
		if !strings.Contains(got, want) {
			t.Errorf("hint: got %q, want one that says %q", got, want)
		}
	}
}

// inUse keeps a session from falling asleep until free is called.
func inUse(t *testing.T, m *session.Manager, owner session.Owner, id session.ID) (free func()) {
	t.Helper()
	_, free, err := m.Files(owner, id)
	if err != nil {
		t.Fatal(err)
	}
	return free
}

func TestMemoryOfAnOwnerIsBoundedAndNoVariablesAreLostForIt(t *testing.T) {
	m := manager(t, session.Config{MemoryBytes: 10 * mib, OwnerMemoryBytes: 24 * mib}, sandboxtest.FakeConfig{})
	first, second, third := create(t, m, alice, "first"), create(t, m, alice, "second"), create(t, m, alice, "third")
	execute(t, m, first, "x = 1\nalloc(7000000)") // about 8 MiB live on
	execute(t, m, second, "alloc(7000000)")
	prints(t, m, third, "print(1)", "1") // another one sleeps for it
	prints(t, m, first, "print(x)", "1")
	execute(t, m, second, "1")
	free, also := inUse(t, m, alice, first), inUse(t, m, alice, second)
	refused(t, m, alice, third, "first (", "second (", "the operator can raise limits.max_memory_per_client_mb")
	free()
	also()
	prints(t, m, third, "print(1)", "1")
	if _, err := m.Create(t.Context(), "bob", "own", session.Settings{}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Execute(t.Context(), "bob", "own", session.Request{Code: "1"}); err != nil {
		t.Errorf("another owner: %v", err)
	}
}

func TestMemoryOfAllIsBounded(t *testing.T) {
	m := manager(t, session.Config{MemoryBytes: 10 * mib, OwnerMemoryBytes: 12 * mib, TotalMemoryBytes: 12 * mib}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "alloc(7000000)")
	other := create(t, m, "bob", "")
	defer inUse(t, m, alice, id)()
	refused(t, m, "bob", other, "try again later", "limits.max_memory_mb")
	if err := m.Destroy(t.Context(), alice, id); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Execute(t.Context(), "bob", other, session.Request{Code: "1"}); err != nil {
		t.Errorf("after the other has gone: %v", err)
	}
}

func TestMemoryOfInterpretersThatEndedOrDidNotStartIsFree(t *testing.T) {
	fails := errors.New("no")
	b := &between{Fake: sandboxtest.NewFake(sandboxtest.FakeConfig{Name: "between", OnStart: func(sandbox.Spec) error { return fails }})}
	m := manager(t, session.Config{Backends: []sandbox.Backend{b}, MemoryBytes: 10 * mib, OwnerMemoryBytes: 12 * mib}, sandboxtest.FakeConfig{})
	first, second := create(t, m, alice, ""), create(t, m, alice, "")
	if _, err := m.Execute(t.Context(), alice, first, session.Request{Code: "1"}); err == nil {
		t.Fatal("it started")
	}
	fails = nil
	execute(t, m, second, "alloc(7000000)")
	defer inUse(t, m, alice, second)()
	refused(t, m, alice, first)
	if err := b.instances[0].Close(); err != nil { // its process was killed, say
		t.Fatal(err)
	}
	execute(t, m, first, "1")
}

func TestSessionsOfAllAreBounded(t *testing.T) {
	m := manager(t, session.Config{MaxSessions: 2}, sandboxtest.FakeConfig{})
	defer inUse(t, m, alice, create(t, m, alice, ""))()
	id := create(t, m, "bob", "")
	defer inUse(t, m, "bob", id)()
	_, err := m.Create(t.Context(), "carol", "", session.Settings{})
	wantKind(t, err, fault.Exhausted)
	if f := fault.Of(err); f.RetryAfter == 0 {
		t.Error("retry after: got none, want some time")
	}
	wantHint(t, err, "limits.max_sessions")
	if err := m.Destroy(t.Context(), "bob", id); err != nil {
		t.Fatal(err)
	}
	create(t, m, "carol", "")
}

func TestFilesOfAnOwnerAreBoundedTogether(t *testing.T) {
	m := manager(t, session.Config{DiskBytes: 8 * mib, OwnerDiskBytes: 10 * mib}, sandboxtest.FakeConfig{})
	first, second := create(t, m, alice, "first"), create(t, m, alice, "second")
	files, done, err := m.Files(alice, first)
	if err == nil {
		_, err = files.Write("big", make([]byte, 6*mib))
	}
	if err != nil {
		t.Fatal(err)
	}
	done()
	files, done, err = m.Files(alice, second)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	_, err = files.Write("more", make([]byte, 5*mib))
	wantKind(t, err, fault.Exhausted)
	wantHint(t, err, "first (6 MiB)", "limits.max_disk_per_client_mb")
	execute(t, m, second, "fill('big')") // a program is not stopped: the next one is
	refused(t, m, alice, first, "second (")
	_, err = m.Create(t.Context(), alice, "", session.Settings{})
	wantKind(t, err, fault.Exhausted)
	if err := files.RemoveFile("big", nil); err != nil {
		t.Fatal(err)
	}
	execute(t, m, first, "1")
}

func TestWhoIsNotAdmittedDoesNotRun(t *testing.T) {
	full := fault.New(fault.Exhausted, "no room")
	m := manager(t, session.Config{Admit: func(context.Context, session.Owner) (func(), error) { return nil, full }}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	_, err := m.Execute(t.Context(), alice, id, session.Request{Code: "1", Started: func(string) { t.Error("it started") }})
	if !errors.Is(err, full) {
		t.Errorf("running: got error %v, want %v", err, full)
	}
	i, err := m.Info(alice, id)
	if err != nil {
		t.Fatalf("looking at the session: %v", err)
	}
	if i.State != session.Idle {
		t.Errorf("state: got %q, want %q", i.State, session.Idle)
	}
	if i.Executions != 0 {
		t.Errorf("executions: got %d, want 0", i.Executions)
	}
}

func TestAnExecutionThatWaitsToBeAdmittedCanBeCancelledAndGivesItsPlaceBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := 0
		room := make(chan struct{}, 1)
		m := manager(t, session.Config{Admit: func(ctx context.Context, o session.Owner) (func(), error) {
			select {
			case room <- struct{}{}:
				held++
				return func() { held--; <-room }, nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}}, sandboxtest.FakeConfig{})
		first, second := create(t, m, alice, ""), create(t, m, alice, "")
		done := make(chan error, 1)
		go func() {
			_, err := m.Execute(t.Context(), alice, first, session.Request{Code: "sleep(5)"})
			done <- err
		}()
		synctest.Wait()
		waiting := make(chan error, 1)
		go func() {
			_, err := m.Execute(t.Context(), alice, second, session.Request{Code: "1"})
			waiting <- err
		}()
		synctest.Wait()
		began := time.Now()
		if n, err := m.Cancel(alice, second, ""); err != nil {
			t.Fatalf("cancelling: got error %v, want none", err)
		} else if n != 1 {
			t.Fatalf("cancelled: got %d, want 1", n)
		}
		wantKind(t, <-waiting, fault.Cancelled)
		if took := time.Since(began); took != 0 {
			t.Errorf("it waited on for %v", took)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if held != 0 {
			t.Errorf("places that are held: got %d, want 0", held)
		}
	})
}
