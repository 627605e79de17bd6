package session_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"paddock/internal/expect"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

// What keeps a run from going on may pass: whoever hears that it failed hears as well
// that it waits.
func TestARunWaitsOnAfterItCouldNotGoOn(t *testing.T) {
	p := newPeople()
	config := p.config()
	config.Dir = t.TempDir()
	var heard []session.Event
	config.Observers = []session.Observer{session.RecordFunc(func(_ context.Context, e session.Event) error {
		if e.Action == session.Executing && !e.Begun {
			heard = append(heard, e)
		}
		return nil
	})}
	var full atomic.Bool
	m := manager(t, config, sandboxtest.FakeConfig{OnStart: func(sandbox.Spec) error {
		if full.Load() {
			return fault.New(fault.Exhausted, "there is no memory for it now")
		}
		return nil
	}})
	id := create(t, m, alice, "")
	r := waiting(t, m, id, asksTwo, 2)
	if err := m.Sleep(alice, id); err != nil {
		t.Fatal(err)
	}
	full.Store(true)
	p.decide(1, "10")
	p.decide(2, "20")
	if _, err := goOn(m, id, r.Execution); err == nil {
		t.Fatal("it went on")
	}
	full.Store(false)
	ends(t, m, id, r.Execution)
	if len(heard) != 3 {
		t.Fatalf("%d executions ended, or waited", len(heard))
	}
	var waits []bool
	for _, e := range heard {
		if e.Execution != r.Execution {
			t.Errorf("it is told of the run %s", e.Execution)
		}
		waits = append(waits, e.Waits)
	}
	if !slices.Equal(waits, []bool{true, true, false}) {
		t.Errorf("whether: waits: got %v, want %v", waits, []bool{true, true, false})
	}
	if heard[1].Err == nil {
		t.Error("whether: heard[1].Err: got no error, want one")
	}
	expect.Equal(t, "whether: errors.Join(heard[0].Err, heard[2].Err)", errors.Join(heard[0].Err, heard[2].Err), nil)
	if given := p.gaveUp(); len(given) != 0 {
		t.Errorf("%v were given up", given)
	}
}
