package session_test

import (
	"runtime"
	"testing"

	"paddock/internal/expect"
	"paddock/internal/fault"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

func TestWhatASessionTakesIsToldInEachProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there are machines on Linux alone")
	}
	dir := t.TempDir()
	m, _ := machines(t, session.Config{Dir: dir, AnswersAlways: true})
	other, _ := machines(t, session.Config{Dir: dir})
	id := create(t, m, alice, "")
	for name, asked := range map[string]*session.Manager{"here": m, "elsewhere": other} {
		l, err := asked.Load(t.Context(), alice, id)
		if err != nil {
			t.Fatalf("%s, not booted: got error %v, want none", name, err)
		}
		expect.Equal(t, name+", not booted: l.Open", l.Open, true)
		expect.Equal(t, name+", not booted: l.Booted.IsZero()", l.Booted.IsZero(), true)
	}
	command(t, m, id, "spawn", "one")
	for name, asked := range map[string]*session.Manager{"here": m, "elsewhere": other} {
		l, err := asked.Load(t.Context(), alice, id)
		if err != nil {
			t.Fatalf("%s: got error %v, want none", name, err)
		}
		expect.Equal(t, name+": l.Booted.IsZero()", l.Booted.IsZero(), false)
		expect.Equal(t, name+": l.CPU > 0", l.CPU > 0, true)
		expect.Equal(t, name+": l.Memory", l.Memory, 1<<20)
	}
	_, err := other.Load(t.Context(), "bob", id)
	wantKind(t, err, fault.NotFound)
	if err := m.Sleep(alice, id); err != nil {
		t.Fatal(err)
	}
	l, err := other.Load(t.Context(), alice, id)
	if err != nil {
		t.Fatalf("asleep: got error %v, want none", err)
	}
	expect.Equal(t, "asleep: l", l, session.Load{})
}

func TestWhatRunsAndWaitsInAnotherProcessIsTold(t *testing.T) {
	dir := t.TempDir()
	m, n := metered(t, func(c *session.Config) { c.Dir, c.AnswersAlways = dir, true })
	other := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "call('one', '')")
	started, ended := make(chan struct{}), make(chan error, 2)
	go func() {
		_, err := m.Execute(t.Context(), alice, id, session.Request{Code: "loop", Language: "python", Started: func(string) { close(started) }})
		ended <- err
	}()
	<-started
	l, err := other.Load(t.Context(), alice, id)
	if err != nil {
		t.Fatalf("got error %v, want none", err)
	}
	expect.Equal(t, "l.Running", l.Running, 1)
	expect.Equal(t, "l.Queued", l.Queued, 0)
	expect.Equal(t, "l.Memory > 0", l.Memory > 0, true)
	expect.Equal(t, "l.Booted.IsZero()", l.Booted.IsZero(), true)
	expect.Equal(t, "l.Traffic", l.Traffic, n.used[id])
	if err := m.Destroy(t.Context(), alice, id); err != nil {
		t.Fatal(err)
	}
	<-ended
	_, err = other.Load(t.Context(), alice, id)
	wantKind(t, err, fault.NotFound)
}
