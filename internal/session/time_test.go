package session_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
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

// bubble runs a test in which time passes only while everyone waits.
func bubble(t *testing.T, config session.Config, test func(t *testing.T, m *session.Manager)) {
	config.Dir = t.TempDir()
	synctest.Test(t, func(t *testing.T) { test(t, manager(t, config, sandboxtest.FakeConfig{})) })
}

// call is an execution under way.
type call struct {
	execution string
	res       session.Result
	err       error
	done      chan struct{}
}

// begin starts an execution and waits until it runs or is queued.
func begin(ctx context.Context, m *session.Manager, id session.ID, code string) *call {
	c := &call{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.res, c.err = m.Execute(ctx, alice, id, session.Request{Code: code, Started: func(x string) { c.execution = x }})
	}()
	synctest.Wait()
	return c
}

func (c *call) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func TestExecutionsRunInTheOrderOfTheirArrival(t *testing.T) {
	bubble(t, session.Config{}, func(t *testing.T, m *session.Manager) {
		id := create(t, m, alice, "")
		first := begin(t.Context(), m, id, "order = ''\nsleep(10)")
		var rest []*call
		for k := range 20 {
			rest = append(rest, begin(t.Context(), m, id, fmt.Sprintf("order = order + '%d '\nsleep(0.1)", k)))
		}
		if i, err := m.Info(alice, id); err != nil {
			t.Error(err)
		} else if i.State != session.Queued {
			t.Errorf("i.State: got %v, want %v", i.State, session.Queued)
		}
		for _, c := range append(rest, first) {
			<-c.done
		}
		prints(t, m, id, "print(order)", "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19")
	})
}

func TestTheQueueIsBounded(t *testing.T) {
	bubble(t, session.Config{DefaultTimeout: time.Hour}, func(t *testing.T, m *session.Manager) {
		id := create(t, m, alice, "")
		var all []*call
		for range 65 {
			all = append(all, begin(t.Context(), m, id, "sleep(1)"))
		}
		over := begin(t.Context(), m, id, "1")
		if f := fault.Of(over.err); !over.ended() {
			t.Error("one too many: over.ended(): got false, want true")
		} else if f == nil {
			t.Error("one too many: got nil, want one")
		} else {
			expect.Equal(t, "one too many: f.Kind", f.Kind, fault.Exhausted)
			if f.RetryAfter == 0 {
				t.Error("one too many: f.RetryAfter: got 0, want more")
			}
		}
		for _, c := range all {
			if <-c.done; c.err != nil {
				t.Error(c.err)
			}
		}
	})
}

func TestWhoIsCancelledWhileWaitingLeavesAtOnce(t *testing.T) {
	bubble(t, session.Config{}, func(t *testing.T, m *session.Manager) {
		id := create(t, m, alice, "")
		running := begin(t.Context(), m, id, "x = 0\nsleep(10)")
		ctx, cancel := context.WithCancel(t.Context())
		waiting := begin(ctx, m, id, "x = 1")
		cancel()
		synctest.Wait()
		expect.Equal(t, "waiting.ended()", waiting.ended(), true)
		if !errors.Is(waiting.err, context.Canceled) {
			t.Errorf("waiting.err: got %v, want %v", waiting.err, context.Canceled)
		}
		expect.Equal(t, "waiting.execution", waiting.execution, "")
		expect.Equal(t, "running.ended()", running.ended(), false)
		<-running.done
		prints(t, m, id, "print(x)", "0")
	})
}

func TestTheWallLimitStopsAProgramAndKeepsItsState(t *testing.T) {
	bubble(t, session.Config{DefaultTimeout: 5 * time.Second}, func(t *testing.T, m *session.Manager) {
		id := create(t, m, alice, "")
		r := execute(t, m, id, "x = 1\nsleep(3600)")
		expect.Equal(t, "r.Exit.Cause", r.Exit.Cause, sandbox.TimedOut)
		expect.Equal(t, "r.Wall", r.Wall, 5*time.Second)
		expect.Equal(t, "r.Notice", r.Notice, "")
		prints(t, m, id, "print(x)", "1")
		r, err := m.Execute(t.Context(), alice, id, session.Request{Code: "loop", Timeout: 2 * time.Second})
		if err != nil {
			t.Error(err)
		} else {
			expect.Equal(t, "r.Exit.Cause", r.Exit.Cause, sandbox.TimedOut)
			expect.Equal(t, "r.Wall", r.Wall, 2*time.Second)
		}
	})
}

func TestCancelStopsWhatItNamesAndNothingElse(t *testing.T) {
	cancelled := func(t *testing.T, m *session.Manager, id session.ID, execution string, want int) {
		t.Helper()
		if n, err := m.Cancel(alice, id, execution); err != nil {
			t.Error(err)
		} else if n != want {
			t.Errorf("m.Cancel(alice, id, execution): got %v, want %v", n, want)
		}
	}
	t.Run("all of a session", func(t *testing.T) {
		bubble(t, session.Config{}, func(t *testing.T, m *session.Manager) {
			id := create(t, m, alice, "")
			a, b := begin(t.Context(), m, id, "x = 1\nsleep(10)"), begin(t.Context(), m, id, "x = 2")
			cancelled(t, m, id, "", 2)
			cancelled(t, m, id, "", 0)
			<-a.done
			<-b.done
			if a.err != nil {
				t.Errorf("a.err: got error %v, want none", a.err)
			} else if a.res.Exit.Cause != sandbox.Cancelled {
				t.Errorf("a.res.Exit.Cause: got %v, want %v (%+v)", a.res.Exit.Cause, sandbox.Cancelled, a.res.Exit.Error)
			}
			wantKind(t, b.err, fault.Cancelled)
			cancelled(t, m, id, "", 0)
			prints(t, m, id, "print(x)", "1")
		})
	})
	t.Run("one by its id, once, and not the next", func(t *testing.T) {
		bubble(t, session.Config{}, func(t *testing.T, m *session.Manager) {
			id := create(t, m, alice, "")
			a, b := begin(t.Context(), m, id, "sleep(10)"), begin(t.Context(), m, id, "sleep(10)")
			cancelled(t, m, id, "x-unknown", 0)
			cancelled(t, m, id, a.execution, 1)
			cancelled(t, m, id, a.execution, 0)
			<-a.done
			synctest.Wait()
			cancelled(t, m, id, a.execution, 0)
			<-b.done
			if a.res.Exit.Cause != sandbox.Cancelled {
				t.Errorf("a.res.Exit.Cause: got %v, want %v (%+v)", a.res.Exit.Cause, sandbox.Cancelled, a.res.Exit.Error)
			} else if b.err != nil {
				t.Errorf("b.err: got error %v, want none", b.err)
			} else if b.res.Exit.Cause != sandbox.Exited {
				t.Errorf("b.res.Exit.Cause: got %v, want %v (%+v)", b.res.Exit.Cause, sandbox.Exited, b.res.Exit.Error)
			}
		})
	})
	t.Run("nothing in a session where nothing runs", func(t *testing.T) {
		bubble(t, session.Config{}, func(t *testing.T, m *session.Manager) {
			cancelled(t, m, create(t, m, alice, ""), "", 0)
		})
	})
}

func TestAnUndoStopsWhatRunsAndBothAreTold(t *testing.T) {
	bubble(t, session.Config{}, func(t *testing.T, m *session.Manager) {
		id := create(t, m, alice, "")
		execute(t, m, id, "x = 1")
		a := begin(t.Context(), m, id, "x = 2\nsleep(10)")
		r, err := m.Undo(t.Context(), alice, id)
		if err != nil {
			t.Error(err)
		} else if r.Notice != "" {
			t.Errorf("r.Notice: got %q, want none", r.Notice)
		}
		<-a.done
		if a.err != nil {
			t.Errorf("a.err: got error %v, want none", a.err)
		} else {
			expect.Equal(t, "a.res.Exit.Cause", a.res.Exit.Cause, sandbox.Cancelled)
			expect.Part(t, "a.res.Notice", a.res.Notice, "taken back to an earlier state")
		}
		prints(t, m, id, "print(x)", "1")
	})
}

func TestResetAndDestroyStopWhatRunsAndWaits(t *testing.T) {
	end := map[string]func(m *session.Manager, id session.ID) error{
		"reset": func(m *session.Manager, id session.ID) error {
			_, err := m.Reset(context.Background(), alice, id)
			return err
		},
		"destroy": func(m *session.Manager, id session.ID) error { return m.Destroy(context.Background(), alice, id) },
	}
	said := map[string]string{
		"reset":   "The session was reset: its variables and files are gone.",
		"destroy": "The session was destroyed, with its variables and files.",
	}
	for name, do := range end {
		for _, code := range []string{"sleep(60)", "spin"} {
			t.Run(name+" "+code, func(t *testing.T) {
				bubble(t, session.Config{}, func(t *testing.T, m *session.Manager) {
					id := create(t, m, alice, "")
					execute(t, m, id, "x = 1")
					a, b := begin(t.Context(), m, id, code), begin(t.Context(), m, id, "write('late', '')")
					if err := do(m, id); err != nil {
						t.Error(err)
					}
					<-a.done
					<-b.done
					if a.err != nil {
						t.Errorf("a.err: got error %v, want none", a.err)
					} else if a.res.Exit.Cause != sandbox.Cancelled {
						t.Errorf("a.res.Exit.Cause: got %v, want %v (%+v)", a.res.Exit.Cause, sandbox.Cancelled, a.res.Exit.Error)
					}
					if a.res.Exit.State != sandbox.Fresh {
						t.Errorf("its variables: a.res.Exit.State: got %v, want %v", a.res.Exit.State, sandbox.Fresh)
					}
					if a.res.Notice != said[name] {
						t.Errorf("its variables: a.res.Notice: got %v, want %v", a.res.Notice, said[name])
					}
					wantKind(t, b.err, fault.Cancelled)
				})
			})
		}
	}
}

func TestAnUnusedSessionExpires(t *testing.T) {
	bubble(t, session.Config{IdleTTL: time.Hour}, func(t *testing.T, m *session.Manager) {
		id, short := create(t, m, alice, ""), session.ID("short")
		if _, err := m.Create(t.Context(), alice, short, session.Settings{TTL: 10 * time.Second}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Second)
		_, err := m.Execute(t.Context(), alice, short, session.Request{})
		wantKind(t, err, fault.NotFound)
		time.Sleep(50 * time.Minute)
		prints(t, m, id, "print('used')", "used")
		time.Sleep(59 * time.Minute)
		if _, err := m.Info(alice, id); err != nil {
			t.Errorf("it expired too early: %v", err)
		}
		time.Sleep(2 * time.Minute)
		_, err = m.Info(alice, id)
		wantKind(t, err, fault.NotFound)
		if all, err := m.List(alice); err != nil {
			t.Error(err)
		} else if len(all) != 0 {
			t.Errorf("m.List(alice): got %v, want none", all)
		}
	})
}

func TestASessionThatRunsDoesNotExpire(t *testing.T) {
	bubble(t, session.Config{IdleTTL: time.Minute}, func(t *testing.T, m *session.Manager) {
		id := create(t, m, alice, "")
		r, err := m.Execute(t.Context(), alice, id, session.Request{Code: "sleep(1800)\nprint('done')", Timeout: time.Hour})
		if err != nil {
			t.Error(err)
		} else if r.Stdout != "done\n" {
			t.Errorf("r.Stdout: got %q, want %q", r.Stdout, "done\n")
		}
		prints(t, m, id, "print('again')", "again")
	})
}

func TestWhatADeadProcessLeftExpiresToo(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		first := manager(t, session.Config{Dir: dir, IdleTTL: time.Hour}, sandboxtest.FakeConfig{})
		create(t, first, alice, "old")
		first.Close()
		second := manager(t, session.Config{Dir: dir, IdleTTL: time.Hour}, sandboxtest.FakeConfig{})
		time.Sleep(30 * time.Minute)
		if all, err := second.List(alice); err != nil {
			t.Error(err)
		} else if len(all) != 1 {
			t.Errorf("len(all): got %d, want 1: %v", len(all), all)
		} else if all[0].Process != 0 {
			t.Errorf("all[0].Process: got %v, want 0", all[0].Process)
		}
		time.Sleep(time.Hour)
		if all, err := second.List(alice); err != nil {
			t.Error(err)
		} else if len(all) != 0 {
			t.Errorf("second.List(alice): got %v, want none", all)
		}
	})
}

// TestCallsAtOnceNeverMixUp has everybody do everything to a few sessions,
// with a time to live so short that they also expire meanwhile.
func TestCallsAtOnceNeverMixUp(t *testing.T) {
	m := manager(t, session.Config{MaxPerOwner: 100}, sandboxtest.FakeConfig{})
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(w)))
			for range 60 {
				id := session.ID(fmt.Sprint("s", random.IntN(3)))
				if err := anything(t.Context(), m, id, random); err != nil {
					switch fault.KindOf(err) {
					case fault.NotFound, fault.Conflict, fault.Cancelled:
					default:
						t.Errorf("%v: %v", fault.KindOf(err), err)
					}
				}
			}
		})
	}
	all.Wait()
}

func anything(ctx context.Context, m *session.Manager, id session.ID, random *rand.Rand) (err error) {
	switch random.IntN(10) {
	case 0, 1:
		_, err = m.Create(ctx, alice, id, session.Settings{TTL: time.Millisecond})
	case 2:
		_, err = m.Reset(ctx, alice, id)
	case 3:
		err = m.Destroy(ctx, alice, id)
	case 4:
		_, err = m.Cancel(alice, id, "")
	case 5:
		_, err = m.List(alice)
	case 6:
		_, err = m.Details(ctx, alice, id)
	default:
		_, err = m.Execute(ctx, alice, id, session.Request{Code: "x = 1\nwrite('f', 'x')\nprint(x)", Timeout: time.Second})
	}
	return err
}

// TestAnExecutionThatNobodyWaitsForHoldsNobodyUp has a program run whose client has given
// up and not said so.
func TestAnExecutionThatNobodyWaitsForHoldsNobodyUp(t *testing.T) {
	bubble(t, session.Config{DefaultTimeout: time.Hour}, func(t *testing.T, m *session.Manager) {
		id := create(t, m, alice, "")
		first := begin(t.Context(), m, id, "x = 1\nsleep(3000)")
		patient := session.Request{Code: "print(x)", QueueTimeout: 5 * time.Second}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if _, err := m.Execute(ctx, alice, id, patient); !errors.Is(err, context.DeadlineExceeded) { // it has just begun
			t.Errorf("at once: %v", err)
		}
		cancel()
		time.Sleep(10 * time.Second)
		began := time.Now()
		_, err := m.Execute(t.Context(), alice, id, patient)
		f := fault.Of(err)
		if f == nil {
			t.Error("after a while: f: got nil, want one")
		} else {
			expect.Equal(t, "after a while: f.Kind", f.Kind, fault.Conflict)
			expect.Equal(t, "after a while: f.Retryable()", f.Retryable(), true)
			expect.Part(t, "after a while: f.Message", f.Message, "has been running for 11s")
			expect.Equal(t, "after a while: time.Since(began)", time.Since(began), 0)
		}
		if first.ended() {
			t.Fatal("it was stopped by who only asked")
		}
		if !strings.Contains(f.Message, first.execution) {
			t.Errorf("%q does not name %q", f.Message, first.execution)
		}
		waits := begin(t.Context(), m, id, "x = 2") // who waits however long it takes
		patient.Interrupt = true
		r, err := m.Execute(t.Context(), alice, id, patient)
		if err != nil {
			t.Errorf("who interrupts: got error %v, want none", err)
		} else if r.Stdout != "1\n" {
			t.Errorf("who interrupts: r.Stdout: got %q, want %q", r.Stdout, "1\n")
		}
		<-first.done
		if first.err != nil {
			t.Errorf("what ran: first.err: got error %v, want none", first.err)
		} else if first.res.Exit.Cause != sandbox.Cancelled {
			t.Errorf("what ran: first.res.Exit.Cause: got %v, want %v (%+v)",
				first.res.Exit.Cause, sandbox.Cancelled, first.res.Exit.Error)
		}
		if <-waits.done; fault.KindOf(waits.err) != fault.Cancelled {
			t.Errorf("what waited ended with %v", waits.err)
		}
		if r, err := m.Execute(t.Context(), alice, id, patient); err != nil {
			t.Errorf("with nothing to interrupt: got error %v, want none", err)
		} else if r.Stdout != "1\n" {
			t.Errorf("with nothing to interrupt: r.Stdout: got %q, want %q", r.Stdout, "1\n")
		}
	})
}
