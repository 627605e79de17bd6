package session_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/expect"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
	"paddock/internal/session/sessiontest"
)

func TestACallThatIsAtWorkIsNotCutOff(t *testing.T) {
	p := newPeople()
	config := p.config()
	working, finish := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	asked := 0
	config.Tools.(*sessiontest.Tools).OnCall = func(ctx context.Context, run session.Run, c sandbox.Call) []byte {
		if c.Number == 1 {
			return p.call(ctx, run, c)
		}
		mu.Lock()
		asked++
		mu.Unlock()
		close(working)
		select {
		case <-finish:
		case <-ctx.Done():
			t.Errorf("it ended: %v", context.Cause(ctx))
		}
		return []byte(`{"value":"20"}`)
	}
	m := manager(t, config, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	go func() {
		<-working
		close(finish)
	}()
	r := waiting(t, m, id, asksTwo, 1)
	p.decide(1, "10")
	ends(t, m, id, r.Execution)
	if asked != 1 {
		t.Errorf("it was asked %d times", asked)
	}
}

// A program that was to be left and is told what it waits for goes on by itself.
func TestAProgramThatWasToBeLeftGoesOnWhereEverythingIsAnswered(t *testing.T) {
	p := newPeople()
	config := p.config()
	config.Tools.(*sessiontest.Tools).OnCall = func(ctx context.Context, run session.Run, c sandbox.Call) []byte {
		if c.Number == 1 { // it blocks: after the timeout it may be left, and cannot be
			run.Suspend("ap-1")
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				t.Errorf("it ended: %v", context.Cause(ctx))
			}
			run.Suspend("")
			return []byte(`{"value":"yes"}`)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Errorf("call %d ended: %v", c.Number, context.Cause(ctx))
		}
		return []byte(`{"value":"5"}`)
	}
	synctest.Test(t, func(t *testing.T) {
		m := manager(t, config, sandboxtest.FakeConfig{})
		id := create(t, m, alice, "")
		r := prints(t, m, id, "print(call('approve', ''))\nmany = gather('work', 3)\nprint(many)\nmany = gather('work', 2)\nprint(many)", "yes\n15\n10")
		if r.Exit.Usage.Fuel != 5 { // one for each line
			t.Errorf("it used %+v", r.Exit.Usage)
		}
	})
}

// Where a run cannot be suspended it waits in place, as long as its time goes.
func TestARunWaitsInPlace(t *testing.T) {
	blocks := "print(call('approve', ''))"
	for name, c := range map[string]struct {
		code     string
		settings session.Settings
		timeout  time.Duration
	}{
		"a call that blocks":               {code: blocks},
		"nobody suspends":                  {code: "many = gather('approve', 1)\nprint(many)", timeout: -1},
		"a session of which nothing stays": {code: "many = gather('approve', 1)\nprint(many)", settings: session.Settings{Ephemeral: true}},
	} {
		t.Run(name, func(t *testing.T) {
			asking(t, func(config *session.Config) { config.WaitInPlace = c.timeout }, func(t *testing.T, m *session.Manager, p *people) {
				i, err := m.Create(t.Context(), alice, "", c.settings)
				if err != nil {
					t.Fatal(err)
				}
				first := begin(t.Context(), m, i.ID, c.code)
				pass(20 * time.Second)
				p.decide(1, "7")
				<-first.done
				if first.err != nil {
					t.Errorf("first.err: got error %v, want none", first.err)
				} else {
					expect.Equal(t, "first.res.Exit.Cause", first.res.Exit.Cause, sandbox.Exited)
					expect.Equal(t, "first.res.Stdout", first.res.Stdout, "7\n")
				}
				delete(p.decided, 1)
				r := execute(t, m, i.ID, c.code)
				expect.Equal(t, "r.Exit.Cause", r.Exit.Cause, sandbox.TimedOut)
				expect.Equal(t, "r.Waiting == nil", r.Waiting == nil, true)
				expect.Equal(t, "p.left", p.left, 0)
				expect.Equal(t, "len(p.ended)", len(p.ended), 1)
			})
		})
	}
}

func TestAMachinesRunWaitsInPlace(t *testing.T) {
	p := newPeople()
	config := p.config()
	call := p.call
	config.Tools.(*sessiontest.Tools).OnCall = func(ctx context.Context, run session.Run, c sandbox.Call) []byte {
		go p.decide(1, "7")
		return call(ctx, run, c)
	}
	m, _ := machines(t, config)
	prints(t, m, create(t, m, alice, ""), "many = gather('approve', 1)\nprint(many)", "7")
}

// The time that a person takes is not the run's.
func TestOnlyTheTimeThatARunRunsCounts(t *testing.T) {
	for work, want := range map[int]sandbox.Cause{6: sandbox.Exited, 8: sandbox.TimedOut} {
		t.Run(want.String(), func(t *testing.T) {
			asking(t, func(c *session.Config) { c.WaitInPlace = 0 }, func(t *testing.T, m *session.Manager, p *people) {
				id := create(t, m, alice, "")
				r, err := m.Execute(t.Context(), alice, id, session.Request{Timeout: 10 * time.Second, Code: fmt.Sprintf("sleep(3)\nmany = gather('approve', 1)\nsleep(%d)\nprint('done')", work)})
				if err != nil {
					t.Fatal(err)
				}
				if r.Exit.Cause != sandbox.Waiting {
					t.Fatalf("r.Exit.Cause: got %v, want %v (%+v)", r.Exit.Cause, sandbox.Waiting, r.Exit.Error)
				}
				if r.Wall != 5*time.Second {
					t.Fatalf("r.Wall: got %v, want %v", r.Wall, 5*time.Second)
				}
				pass(5 * time.Hour)
				p.decide(1, "1")
				r, err = goOn(m, id, r.Execution)
				if err != nil {
					t.Error(err)
				} else if r.Exit.Cause != want {
					t.Errorf("r.Exit.Cause: got %v, want %v (%+v)", r.Exit.Cause, want, r.Exit.Error)
				}
			})
		})
	}
	t.Run("a person may be asked at its end", func(t *testing.T) {
		asking(t, func(c *session.Config) { c.WaitInPlace = 0 }, func(t *testing.T, m *session.Manager, p *people) {
			id := create(t, m, alice, "")
			r, err := m.Execute(t.Context(), alice, id, session.Request{Timeout: 10 * time.Second, Code: "sleep(9)\nmany = gather('approve', 1)\nprint(many)"})
			if err != nil {
				t.Fatal(err)
			}
			if r.Exit.Cause != sandbox.Waiting {
				t.Fatalf("r.Exit.Cause: got %v, want %v (%+v)", r.Exit.Cause, sandbox.Waiting, r.Exit.Error)
			}
			if r.Wall != 9500*time.Millisecond {
				t.Fatalf("r.Wall: got %v, want %v", r.Wall, 9500*time.Millisecond)
			}
			pass(5 * time.Hour)
			p.decide(1, "1")
			if r, err = goOn(m, id, r.Execution); err != nil {
				t.Error(err)
			} else if r.Stdout != "1\n" {
				t.Errorf("r.Stdout: got %q, want %q", r.Stdout, "1\n")
			}
		})
	})
	t.Run("a shorter time may be asked for", func(t *testing.T) {
		asking(t, nil, func(t *testing.T, m *session.Manager, p *people) {
			id := create(t, m, alice, "")
			r := waiting(t, m, id, "many = gather('approve', 1)\nsleep(5)", 1)
			p.decide(1, "1")
			r, err := m.Execute(t.Context(), alice, id, session.Request{Continue: r.Execution, Timeout: time.Second})
			if err != nil {
				t.Error(err)
			} else {
				expect.Equal(t, "r.Exit.Cause", r.Exit.Cause, sandbox.TimedOut)
				if r.Wall > 2*time.Second {
					t.Errorf("r.Wall: got %v, want at most %v", r.Wall, 2*time.Second)
				}
			}
			notWaiting(t, m, id, r.Execution)
		})
	})
}

func TestARunThatWaitsExpiresWithItsSession(t *testing.T) {
	asking(t, func(c *session.Config) { c.IdleTTL = time.Hour }, func(t *testing.T, m *session.Manager, p *people) {
		id := create(t, m, alice, "")
		r := waiting(t, m, id, asksTwo, 2)
		pass(50 * time.Minute)
		if i, err := m.Info(alice, id); err != nil {
			t.Error(err)
		} else if i.Waiting == nil {
			t.Error("i.Waiting: got nil, want one")
		}
		pass(30 * time.Minute)
		if _, err := m.Info(alice, id); fault.KindOf(err) != fault.NotFound {
			t.Errorf("it has not expired: %v", err)
		}
		if n := p.gaveUp(); !slices.Equal(n, []string{r.Execution}) {
			t.Errorf("given up were %v", n)
		}
	})
}

func TestARunThatWaitsInPlaceIsStoppedAsAnyOther(t *testing.T) {
	asking(t, func(c *session.Config) { c.WaitInPlace = 0 }, func(t *testing.T, m *session.Manager, p *people) {
		id := create(t, m, alice, "")
		c := begin(t.Context(), m, id, asksTwo)
		if n, err := m.Cancel(alice, id, c.execution); err != nil {
			t.Error(err)
		} else if n != 1 {
			t.Errorf("m.Cancel(alice, id, c.execution): got %v, want 1", n)
		}
		<-c.done
		if c.err != nil {
			t.Errorf("c.err: got error %v, want none", c.err)
		} else {
			expect.Equal(t, "c.res.Exit.Cause", c.res.Exit.Cause, sandbox.Cancelled)
			expect.Equal(t, "len(p.ended)", len(p.ended), 2)
			expect.Equal(t, "p.left", p.left, 0)
		}
		notWaiting(t, m, id, c.execution)
	})
}

func TestWhatWasRecordedOfARunThatWaits(t *testing.T) {
	p := newPeople()
	config := p.config()
	w := &witness{}
	config.Observers = []session.Observer{session.RecordFunc(w.record)}
	m := manager(t, config, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	w.take()
	r := waiting(t, m, id, asksTwo, 2)
	p.decide(1, "10")
	p.decide(2, "20")
	ends(t, m, id, r.Execution)
	events := w.take()
	if len(events) != 4 {
		t.Fatalf("len(events): got %d, want 4: %v", len(events), events)
	}
	expect.Equal(t, "events[1].Exit.Cause", events[1].Exit.Cause, sandbox.Waiting)
	expect.Equal(t, "events[1].Continued", events[1].Continued, false)
	expect.Equal(t, "events[2].Continued", events[2].Continued, true)
	expect.Equal(t, "events[3].Continued", events[3].Continued, true)
	expect.Equal(t, "events[3].Exit.Cause", events[3].Exit.Cause, sandbox.Exited)
	if t.Failed() {
		t.FailNow()
	}
	for _, e := range events {
		if e.Execution != r.Execution {
			t.Errorf("e.Execution: got %v, want %v", e.Execution, r.Execution)
		}
		if e.Language != "python" {
			t.Errorf("e.Language: got %q, want %q", e.Language, "python")
		}
	}
	all := checkpoints(t, m, id)
	if len(all) != 3 {
		t.Fatalf("len(all): got %d, want 3: %v", len(all), all)
	}
	expect.Equal(t, "all[1].Execution", all[1].Execution, r.Execution)
	expect.Equal(t, "all[2].Execution", all[2].Execution, r.Execution)
	expect.Equal(t, "all[2].Code", all[2].Code, "x = 1")
	undo(t, m, id)
	prints(t, m, id, "print(x, read('f'))", "1 one")
}
