package session_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

// idling runs a test with a Manager whose machines are saved, in which time passes only
// while everyone waits. saves counts how often it was tried; each takes a second.
func idling(t *testing.T, config session.Config, test func(t *testing.T, m *session.Manager, saves *atomic.Int32)) {
	if config.Dir == "" {
		config.Dir = timeless(t)
	}
	synctest.Test(t, func(t *testing.T) {
		b := sandboxtest.NewFakeKeeper(sandboxtest.FakeConfig{Name: "machines"})
		var saves atomic.Int32
		b.Refuse = func() error {
			saves.Add(1)
			time.Sleep(time.Second)
			return nil
		}
		config.Backends = []sandbox.Backend{b}
		m, err := session.New(config)
		if err != nil {
			t.Fatal(err)
		}
		test(t, m, &saves)
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		b.Close()
	})
}

// tried checks how often it was tried to save a machine.
func tried(t *testing.T, saves *atomic.Int32, want int32, when string) {
	t.Helper()
	if got := saves.Load(); got != want {
		t.Errorf("%s it was saved %d times, and not %d", when, got, want)
	}
}

func TestAMachineIsSavedOnceWhenNothingHasRunInItForAWhile(t *testing.T) {
	var copied string
	outer := t // the copy is there longer
	dir := timeless(t)
	idling(t, session.Config{Dir: dir}, func(t *testing.T, m *session.Manager, saves *atomic.Int32) {
		id := create(t, m, alice, "kept")
		pass(time.Minute)
		tried(t, saves, 0, "before anything ran")
		execute(t, m, id, "x = 40\nwrite('f', 'text')")
		pass(20 * time.Second)
		execute(t, m, id, "x = 41")
		before, err := m.Checkpoints(alice, id)
		if err != nil {
			t.Fatal(err)
		}
		pass(28 * time.Second)
		tried(t, saves, 0, "too early")
		pass(4 * time.Second)
		tried(t, saves, 1, "in time")
		for range 20 { // who only looks changes nothing
			pass(10 * time.Second)
			if _, err := m.Details(t.Context(), alice, id); err != nil {
				t.Fatal(err)
			}
		}
		tried(t, saves, 1, "when it was looked at")
		if after, err := m.Checkpoints(alice, id); err != nil {
			t.Error(err)
		} else if len(after) != len(before) { // it is not a step
			t.Errorf("checkpoints: got %d, want %d", len(after), len(before))
		}
		copied = copyState(outer, dir)
		execute(t, m, id, "x = 42")
		pass(time.Minute)
		tried(t, saves, 2, "after the next run")
		if got, err := m.Collect(t.Context()); err != nil {
			t.Error(err)
		} else if got.Blobs == 0 {
			t.Error("got.Blobs: got 0, want more")
		}
		if _, err := m.Checkpoint(t.Context(), alice, id, "mine"); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		tried(t, saves, 3, "after a checkpoint that was asked for")
		if r := prints(t, m, id, "print(x)", "42"); r.Notice != "" {
			t.Errorf("the notice is %q", r.Notice)
		}
	})
	const century = 100 * 365 * 24 * time.Hour // it is made when the bubble's time begins
	killed, _ := keepers(t, session.Config{Dir: copied, IdleTTL: century})
	if r := prints(t, killed, "kept", "print(x, read('f'))", "41 text"); r.Notice != "" {
		t.Errorf("after the server was killed the notice is %q", r.Notice)
	}
}

func TestAMachineIsNotSavedWhileSomethingWorksInItOrIsWanted(t *testing.T) {
	idling(t, session.Config{}, func(t *testing.T, m *session.Manager, saves *atomic.Int32) {
		id := create(t, m, alice, "")
		execute(t, m, id, "x = 41")
		command(t, m, id, "spawn", "server")
		pass(5 * time.Minute)
		tried(t, saves, 0, "beside a process")
		list, err := m.Processes(t.Context(), alice, id)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) != 1 {
			t.Fatalf("len(list): got %d, want 1: %v", len(list), list)
		}
		if err := m.Signal(t.Context(), alice, id, list[0].PID, "KILL"); err != nil {
			t.Fatal(err)
		}
		for saves.Load() == 0 {
			pass(100 * time.Millisecond)
		}
		began := time.Now() // it is being saved
		prints(t, m, id, "print(x)", "41")
		if took := time.Since(began); took > time.Second {
			t.Errorf("who came waited for %v", took)
		}
		pass(time.Minute)
		tried(t, saves, 2, "after it was wanted")
	})
	idling(t, session.Config{SaveAfter: -1}, func(t *testing.T, m *session.Manager, saves *atomic.Int32) {
		execute(t, m, create(t, m, alice, ""), "x = 41")
		pass(9 * time.Minute)
		tried(t, saves, 0, "where that is not wanted")
		pass(2 * time.Minute)
		tried(t, saves, 1, "asleep")
	})
}
