package session_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

// witness keeps what it is told, and refuses what begins when it is told to.
type witness struct {
	mu     sync.Mutex
	refuse error
	events []session.Event
}

func (w *witness) record(ctx context.Context, e session.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
	if e.Begun {
		return w.refuse
	}
	return ctx.Err() // what is over is told even when nobody waits any more
}

func (w *witness) take() []session.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.events
	w.events = nil
	return all
}

func TestWhatHappensIsTold(t *testing.T) {
	var w witness
	m := manager(t, session.Config{Observers: []session.Observer{session.RecordFunc(w.record)}}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	first := execute(t, m, id, "x = 1\nprint(x)")
	execute(t, m, id, "raise ValueError('no')")
	if _, err := m.Reset(t.Context(), alice, id); err != nil {
		t.Fatal(err)
	}
	if err := m.Destroy(t.Context(), alice, id); err != nil {
		t.Fatal(err)
	}
	all := w.take()
	want := []struct {
		action session.Action
		begun  bool
	}{{session.Creating, false}, {session.Executing, true}, {session.Executing, false}, {session.Executing, true}, {session.Executing, false}, {session.Resetting, false}, {session.Destroying, false}}
	if len(all) != len(want) {
		t.Fatalf("told were %+v", all)
	}
	for i, e := range all {
		if e.Action != want[i].action || e.Begun != want[i].begun || e.Owner != alice || e.Session != id || e.Isolation != "fake" || e.Err != nil {
			t.Errorf("%d: told was %+v", i, e)
		}
	}
	begin, end := all[1], all[2]
	if begin.Execution != first.Execution || begin.Language != "python" || begin.Code != "x = 1\nprint(x)" || begin.Exit.Cause != 0 {
		t.Errorf("at the begin was told %+v", begin)
	}
	if end.Execution != first.Execution || end.Code != begin.Code || end.Exit.Cause != sandbox.Exited || end.Exit.Engine != first.Exit.Engine || end.Wall != first.Wall || end.Start <= 0 {
		t.Errorf("at the end was told %+v", end)
	}
	if failed := all[4]; failed.Exit.Error == nil || failed.Start != 0 {
		t.Errorf("of the program that failed was told %+v", failed)
	}
}

func TestALanguageThatNobodyNamedIsTold(t *testing.T) {
	var w witness
	m := manager(t, session.Config{Observers: []session.Observer{session.RecordFunc(w.record)}}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	if _, err := m.Execute(t.Context(), alice, id, session.Request{Code: "print(1)"}); err != nil {
		t.Fatal(err)
	}
	if all := w.take(); len(all) != 3 || all[1].Language != "python" || all[2].Language != "python" {
		t.Errorf("told were %+v", all)
	}
}

func TestWhatCannotBeRecordedDoesNotRun(t *testing.T) {
	w := witness{refuse: fault.New(fault.Unavailable, "the disk is full")}
	m := manager(t, session.Config{Observers: []session.Observer{session.RecordFunc(w.record)}}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	_, err := m.Execute(t.Context(), alice, id, session.Request{Code: "write('a', 'b')"})
	wantKind(t, err, fault.Unavailable)
	if d, err := m.Details(t.Context(), alice, id); err != nil || len(d.Files) != 0 || d.State != session.Idle {
		t.Errorf("the session is %+v, %v", d, err)
	}
	if all := w.take(); len(all) != 2 || !all[1].Begun {
		t.Errorf("told were %+v", all)
	}
	w.refuse = nil
	prints(t, m, id, "print(1)", "1")
}

func TestTheEndIsToldOfWhatWasCancelledAndOfWhatFailed(t *testing.T) {
	var w witness
	m := manager(t, session.Config{Observers: []session.Observer{session.RecordFunc(w.record)}}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := m.Execute(ctx, alice, id, session.Request{Code: "loop", Started: func(string) { time.AfterFunc(50*time.Millisecond, cancel) }}); err != nil {
		t.Fatal(err)
	}
	if all := w.take(); len(all) != 3 || all[2].Exit.Cause != sandbox.Cancelled || all[2].Err != nil {
		t.Errorf("of the cancelled one was told %+v", all)
	}
	_, err := m.Execute(t.Context(), alice, id, session.Request{Code: "panic"})
	wantKind(t, err, fault.Internal)
	if all := w.take(); len(all) != 2 || fault.KindOf(all[1].Err) != fault.Internal {
		t.Errorf("of the mistake was told %+v", all)
	}
}

func TestWhatNobodyUsedIsToldOf(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var w witness
		m := manager(t, session.Config{Dir: dir, Observers: []session.Observer{session.RecordFunc(w.record)}, IdleTTL: time.Minute}, sandboxtest.FakeConfig{})
		id := create(t, m, alice, "")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if all := w.take(); len(all) != 2 || all[1].Action != session.Destroying || !all[1].Expired || all[1].Session != id || all[1].Owner != alice {
			t.Errorf("told were %+v", all)
		}
	})
}

func TestStatsCountWhatIsOpen(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		m := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
		one, two := create(t, m, alice, "one"), create(t, m, "bob", "two")
		if s := m.Stats(); s.Sessions != 2 || s.Interpreters != 0 || s.Memory != 0 {
			t.Errorf("at first there are %+v", s)
		}
		execute(t, m, one, "write('a', 'bytes')")
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if _, err := m.Execute(context.Background(), "bob", two, session.Request{Code: "sleep(1)"}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if s := m.Stats(); s.Interpreters != 2 || s.Running != 1 || s.Queued != 2 || s.Memory <= 0 || s.Disk < 5 {
			t.Errorf("while it runs there are %+v", s)
		}
		all.Wait()
		if s := m.Stats(); s.Running != 0 || s.Queued != 0 {
			t.Errorf("afterwards there are %+v", s)
		}
	})
}
