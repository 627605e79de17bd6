package model

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"paddock/internal/blob/blobtest"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
	"paddock/internal/session/sessiontest"
)

// asked is a session whose program asks a person, on a disk under which the power is
// cut.
type asked struct {
	t       *testing.T
	dir     string
	disk    *blobtest.Disk
	allowed chan struct{} // closed when it is

	mu      sync.Mutex // guards what follows
	effects int
	cut     bool
}

func (a *asked) open() *session.Manager {
	backend := sandboxtest.NewFake(sandboxtest.FakeConfig{})
	a.t.Cleanup(func() { backend.Close() })
	m, err := session.New(session.Config{Dir: a.dir, Files: a.disk, Backends: []sandbox.Backend{backend}, WaitInPlace: 1, Tools: &sessiontest.Tools{OnCall: a.call}})
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { m.Close() })
	return m
}

func (a *asked) call(ctx context.Context, run session.Run, c sandbox.Call) []byte {
	if strings.Contains(string(c.Body), "effect") {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.effects++
		return []byte(`{"value":"made"}`)
	}
	select {
	case <-a.allowed:
		return []byte(`{"value":"20"}`)
	default:
	}
	run.Suspend("a person")
	select {
	case <-a.allowed:
		run.Suspend("")
		return []byte(`{"value":"20"}`)
	case <-ctx.Done():
		return nil
	}
}

// cutAt gives the fault that cuts the power at an operation, from which on nothing is
// waited for.
func (a *asked) cutAt(n int) func(blobtest.Op) error {
	from := blobtest.From(n, blobtest.ErrCut)
	return func(op blobtest.Op) error {
		err := from(op)
		a.mu.Lock()
		defer a.mu.Unlock()
		if err != nil && !a.cut {
			a.cut = true
			a.allow()
		}
		return err
	}
}

func (a *asked) allow() {
	select {
	case <-a.allowed:
	default:
		close(a.allowed)
	}
}

// A power cut at any operation leaves a run that waits, or none: what it does after it
// was allowed to is done once at most, and what was answered as waiting waits.
func TestAPowerCutWhileARunWaitsAndGoesOn(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for n, reached := 0, true; reached; n += 1 + r.IntN(5) {
		t.Run(fmt.Sprint("at operation ", n), func(t *testing.T) {
			a := &asked{t: t, dir: sandboxtest.Memory(t), allowed: make(chan struct{})}
			var err error
			if a.disk, err = blobtest.New(a.dir); err != nil {
				t.Fatal(err)
			}
			reached = a.cutOnce(n, r)
		})
		if t.Failed() {
			return
		}
	}
}

// cutOnce runs the program and goes on with it until the power is cut, and looks at what
// is left. It tells whether it was cut.
func (a *asked) cutOnce(n int, r *rand.Rand) bool {
	t, m := a.t, a.open()
	i, err := m.Create(t.Context(), alice, "", session.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	a.disk.SetFault(a.cutAt(a.disk.Ops() + n))
	execution, waited := "x-none", false
	res, err := m.Execute(t.Context(), alice, i.ID, session.Request{
		Code: "x = 1\nmany = gather('approve', 1)\ncall('effect', '')\nx = x + many", Language: "python", Started: func(x string) { execution = x },
	})
	if err == nil && res.Exit.Cause == sandbox.Waiting {
		waited = true
		a.mu.Lock()
		begun := a.cut
		a.allow()
		a.mu.Unlock()
		if !begun {
			_, _ = m.Execute(t.Context(), alice, i.ID, session.Request{Continue: execution})
		}
	}
	a.disk.SetFault(blobtest.From(0, blobtest.ErrCut))
	m.Close()
	if err := cutPower(a.disk, a.dir, r); err != nil {
		t.Fatal(err)
	}
	done := a.effects
	m = a.open()
	res, err = m.Execute(t.Context(), alice, i.ID, session.Request{Continue: execution})
	switch {
	case err == nil && (res.Exit.Cause != sandbox.Exited || done != 0 || a.effects != 1):
		t.Errorf("it went on and %v, after %d effects, with %d", res.Exit.Cause, done, a.effects)
	case err != nil && fault.KindOf(err) != fault.NotFound:
		t.Errorf("going on: %v", err)
	}
	went := err == nil
	res, err = m.Execute(t.Context(), alice, i.ID, session.Request{Code: "print(x)", Language: "python"})
	x := strings.TrimSpace(res.Stdout)
	switch {
	case err != nil:
		t.Errorf("afterwards: %v", err)
	case waited && x != "1" && x != "21", went && x != "21", a.effects == 0 && x == "21", a.effects > 1:
		t.Errorf("it waited: %v, went on: %v, has %d effects; x is %q, the notice %q", waited, went, a.effects, x, res.Notice)
	}
	return a.cut
}
