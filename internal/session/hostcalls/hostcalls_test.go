package hostcalls_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/sandbox"
	"paddock/internal/session/hostcalls"
)

// echo answers a call with its own text.
func echo(_ context.Context, c sandbox.Call, _ func(string)) []byte { return c.Body }

// approval waits for a person until it is cancelled or released, and answers with what
// ended the wait.
func approval(release <-chan struct{}) hostcalls.Answer {
	return func(ctx context.Context, c sandbox.Call, suspend func(string)) []byte {
		suspend("approval of " + string(c.Body))
		select {
		case <-release:
			suspend("")
			return []byte("allowed")
		case <-ctx.Done():
			return []byte(context.Cause(ctx).Error())
		}
	}
}

func after(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

func openCalls(numbers ...int) (open []sandbox.OpenCall) {
	for _, n := range numbers {
		open = append(open, sandbox.OpenCall{Call: sandbox.Call{Number: n}})
	}
	return open
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func wantAnswer(t *testing.T, got []byte, want string) {
	t.Helper()
	if string(got) != want {
		t.Errorf("answer: got %q, want %q", got, want)
	}
}

func TestACallIsAnswered(t *testing.T) {
	c := hostcalls.New(echo)
	c.Begin(after(time.Second))
	wantAnswer(t, c.Call(t.Context(), sandbox.Call{Number: 1, Body: []byte("hello")}), "hello")
	c.End(nil)
}

func TestACallEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := hostcalls.New(approval(nil))
		stopped := errors.New("the run was stopped")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(stopped) })
		wantAnswer(t, c.Call(ctx, sandbox.Call{Number: 1}), stopped.Error())
	})
}

func TestBackgroundCallsAreCounted(t *testing.T) {
	c := hostcalls.New(echo)
	if n := c.Background(); n != 0 {
		t.Errorf("background calls at the beginning: got %d, want 0", n)
	}
	c.CountBackground()
	c.CountBackground()
	if n := c.Background(); n != 2 {
		t.Errorf("background calls: got %d, want 2", n)
	}
}

func TestARunMayBeSuspendedWhenAllItsCallsWaitForAPerson(t *testing.T) {
	tests := map[string]struct {
		waiting, working int // calls that wait for a person, and that do not
		wait             time.Duration
		want             bool
	}{
		"no call is open":                     {0, 0, time.Hour, false},
		"one waits, and not for long enough":  {1, 0, 1900 * time.Millisecond, false},
		"one waits for long enough":           {1, 0, 2100 * time.Millisecond, true},
		"several wait":                        {3, 0, 2100 * time.Millisecond, true},
		"one waits while another is answered": {1, 1, time.Hour, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				working := make(chan struct{})
				c := hostcalls.New(func(ctx context.Context, call sandbox.Call, suspend func(string)) []byte {
					if call.Number < test.waiting {
						return approval(nil)(ctx, call, suspend)
					}
					<-working
					return nil
				})
				suspend := c.Begin(after(2 * time.Second))
				for number := range test.waiting + test.working {
					go c.Call(t.Context(), sandbox.Call{Number: number})
				}
				time.Sleep(test.wait)
				synctest.Wait()
				if got := isClosed(suspend); got != test.want {
					t.Errorf("may be suspended after %v: got %v, want %v", test.wait, got, test.want)
				}
				close(working)
				c.End(context.Canceled)
				synctest.Wait()
			})
		})
	}
}

// A decision in time, or another call, begins the wait again.
func TestTheWaitBeginsAgainAfterADecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		c := hostcalls.New(approval(release))
		suspend := c.Begin(after(2 * time.Second))
		answered := make(chan []byte)
		go func() { answered <- c.Call(t.Context(), sandbox.Call{Number: 1}) }()
		time.Sleep(1500 * time.Millisecond)
		close(release)
		wantAnswer(t, <-answered, "allowed")
		time.Sleep(time.Hour)
		synctest.Wait()
		if isClosed(suspend) {
			t.Error("may be suspended although no call waits: got true, want false")
		}
	})
}

func TestDrainEndsWhatWaitsAndKeepsTheOtherAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := make(chan struct{})
		c := hostcalls.New(func(ctx context.Context, call sandbox.Call, suspend func(string)) []byte {
			if call.Number == 1 {
				return approval(nil)(ctx, call, suspend)
			}
			<-slow
			return []byte("slow answer")
		})
		suspended := make(chan struct{})
		ctx, cancel := context.WithCancelCause(t.Context())
		for number, body := range map[int]string{1: "mail", 2: "search"} {
			go func() {
				if got := c.Call(ctx, sandbox.Call{Number: number, Body: []byte(body)}); got != nil {
					t.Errorf("call %d of a suspended program: got answer %q, want none", number, got)
				}
				suspended <- struct{}{}
			}()
		}
		synctest.Wait()
		cancel(sandbox.ErrWaiting)
		<-suspended
		<-suspended
		time.AfterFunc(time.Second, func() { close(slow) })
		open := openCalls(1, 2, 3)
		reasons, _ := c.Drain(t.Context(), open)
		if len(reasons) != 1 {
			t.Fatalf("len(reasons): got %d, want 1: %v", len(reasons), reasons)
		}
		if reasons[1] != "approval of mail" {
			t.Errorf("reasons[1]: got %q, want %q", reasons[1], "approval of mail")
		}
		if open[0].Answer != nil {
			t.Errorf("answer of the call that waits: got %q, want none", open[0].Answer)
		}
		wantAnswer(t, open[1].Answer, "slow answer")
		if open[2].Answer != nil {
			t.Errorf("answer of a call that was not begun: got %q, want none", open[2].Answer)
		}
	})
}

func TestDrainTellsHowLongTheRunWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := hostcalls.New(approval(nil))
		ctx, cancel := context.WithCancelCause(t.Context())
		go c.Call(ctx, sandbox.Call{Number: 1})
		synctest.Wait()
		time.Sleep(3 * time.Second)
		cancel(sandbox.ErrWaiting)
		synctest.Wait()
		if _, waited := c.Drain(t.Context(), openCalls(1)); waited != 3*time.Second {
			t.Errorf("waited: got %v, want %v", waited, 3*time.Second)
		}
	})
}

func TestDrainGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := hostcalls.New(func(ctx context.Context, _ sandbox.Call, _ func(string)) []byte {
			<-ctx.Done() // it waits for no person
			return nil
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		go c.Call(ctx, sandbox.Call{Number: 1})
		synctest.Wait()
		cancel(sandbox.ErrWaiting)
		synctest.Wait()
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		open := openCalls(1)
		if reasons, _ := c.Drain(ctx, open); len(reasons) != 0 {
			t.Errorf("reasons after ctx has ended: got %v, want none", reasons)
		}
		if open[0].Answer != nil {
			t.Errorf("answer after ctx has ended: got %q, want none", open[0].Answer)
		}
	})
}
