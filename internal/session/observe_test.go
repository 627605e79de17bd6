package session_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/expect"
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
	return ctx.Err() // an end is observed even when no caller waits any more
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
		expect.Equal(t, "e.Action", e.Action, want[i].action)
		expect.Equal(t, "e.Begun", e.Begun, want[i].begun)
		expect.Equal(t, "e.Owner", e.Owner, alice)
		expect.Equal(t, "e.Session", e.Session, id)
		expect.Equal(t, "e.Isolation", e.Isolation, "fake")
		if e.Err != nil {
			t.Errorf("e.Err: got error %v, want none", e.Err)
		}
	}
	begin, end := all[1], all[2]
	expect.Equal(t, "at the begin: begin.Execution", begin.Execution, first.Execution)
	expect.Equal(t, "at the begin: begin.Language", begin.Language, "python")
	expect.Equal(t, "at the begin: begin.Code", begin.Code, "x = 1\nprint(x)")
	expect.Equal(t, "at the begin: begin.Exit.Cause", begin.Exit.Cause, 0)
	expect.Equal(t, "at the end: end.Execution", end.Execution, first.Execution)
	expect.Equal(t, "at the end: end.Code", end.Code, begin.Code)
	expect.Equal(t, "at the end: end.Exit.Cause", end.Exit.Cause, sandbox.Exited)
	expect.Equal(t, "at the end: end.Exit.Engine", end.Exit.Engine, first.Exit.Engine)
	expect.Equal(t, "at the end: end.Wall", end.Wall, first.Wall)
	if end.Start <= 0 {
		t.Errorf("at the end: end.Start: got %v, want more than 0", end.Start)
	}
	if failed := all[4]; failed.Exit.Error == nil {
		t.Error("of the program that failed: failed.Exit.Error: got nil, want one")
	} else if failed.Start != 0 {
		t.Errorf("of the program that failed: failed.Start: got %v, want 0", failed.Start)
	}
}

func TestALanguageThatNobodyNamedIsTold(t *testing.T) {
	var w witness
	m := manager(t, session.Config{Observers: []session.Observer{session.RecordFunc(w.record)}}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	if _, err := m.Execute(t.Context(), alice, id, session.Request{Code: "print(1)"}); err != nil {
		t.Fatal(err)
	}
	if all := w.take(); len(all) != 3 {
		t.Errorf("len(all): got %d, want 3: %v", len(all), all)
	} else {
		expect.Equal(t, "all[1].Language", all[1].Language, "python")
		expect.Equal(t, "all[2].Language", all[2].Language, "python")
	}
}

func TestWhatCannotBeRecordedDoesNotRun(t *testing.T) {
	w := witness{refuse: fault.New(fault.Unavailable, "the disk is full")}
	m := manager(t, session.Config{Observers: []session.Observer{session.RecordFunc(w.record)}}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	_, err := m.Execute(t.Context(), alice, id, session.Request{Code: "write('a', 'b')"})
	wantKind(t, err, fault.Unavailable)
	if d, err := m.Details(t.Context(), alice, id); err != nil {
		t.Errorf("the session: got error %v, want none", err)
	} else {
		expect.Equal(t, "the session: len(d.Files)", len(d.Files), 0)
		expect.Equal(t, "the session: d.State", d.State, session.Idle)
	}
	if all := w.take(); len(all) != 2 {
		t.Errorf("len(all): got %d, want 2: %v", len(all), all)
	} else if !all[1].Begun {
		t.Error("all[1].Begun: got false, want true")
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
	if all := w.take(); len(all) != 3 {
		t.Errorf("of the cancelled one: len(all): got %d, want 3: %v", len(all), all)
	} else {
		expect.Equal(t, "of the cancelled one: all[2].Exit.Cause", all[2].Exit.Cause, sandbox.Cancelled)
		if all[2].Err != nil {
			t.Errorf("of the cancelled one: all[2].Err: got error %v, want none", all[2].Err)
		}
	}
	_, err := m.Execute(t.Context(), alice, id, session.Request{Code: "panic"})
	wantKind(t, err, fault.Internal)
	if all := w.take(); len(all) != 2 {
		t.Errorf("of the mistake: len(all): got %d, want 2: %v", len(all), all)
	} else if fault.KindOf(all[1].Err) != fault.Internal {
		t.Errorf("of the mistake: all[1].Err: got %v, want one of kind %v", all[1].Err, fault.Internal)
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
		if all := w.take(); len(all) != 2 {
			t.Errorf("len(all): got %d, want 2: %v", len(all), all)
		} else {
			expect.Equal(t, "all[1].Action", all[1].Action, session.Destroying)
			expect.Equal(t, "all[1].Expired", all[1].Expired, true)
			expect.Equal(t, "all[1].Session", all[1].Session, id)
			expect.Equal(t, "all[1].Owner", all[1].Owner, alice)
		}
	})
}

func TestStatsCountWhatIsOpen(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		m := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
		one, two := create(t, m, alice, "one"), create(t, m, "bob", "two")
		if s := m.Stats(); s.Sessions != 2 {
			t.Errorf("at first: s.Sessions: got %v, want 2", s.Sessions)
		} else if s.Interpreters != 0 {
			t.Errorf("at first: s.Interpreters: got %v, want 0", s.Interpreters)
		} else if s.Memory != 0 {
			t.Errorf("at first: s.Memory: got %v, want 0", s.Memory)
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
		if s := m.Stats(); s.Interpreters != 2 {
			t.Errorf("while it runs: s.Interpreters: got %v, want 2", s.Interpreters)
		} else if s.Running != 1 {
			t.Errorf("while it runs: s.Running: got %v, want 1", s.Running)
		} else if s.Queued != 2 {
			t.Errorf("while it runs: s.Queued: got %v, want 2", s.Queued)
		} else if s.Memory <= 0 {
			t.Errorf("while it runs: s.Memory: got %v, want more than 0", s.Memory)
		} else if s.Disk < 5 {
			t.Errorf("while it runs: s.Disk: got %v, want at least 5", s.Disk)
		}
		all.Wait()
		if s := m.Stats(); s.Running != 0 {
			t.Errorf("afterwards: s.Running: got %v, want 0", s.Running)
		} else if s.Queued != 0 {
			t.Errorf("afterwards: s.Queued: got %v, want 0", s.Queued)
		}
	})
}
