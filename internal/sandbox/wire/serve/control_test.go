package serve

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/sandbox"
)

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestARunIsInterruptedAndAfterItsGraceKilled(t *testing.T) {
	for name, c := range map[string]struct{ given, effective time.Duration }{
		"its own grace":            {3 * time.Second, 3 * time.Second},
		"none: the usual":          {0, sandbox.DefaultGrace},
		"a negative one: the same": {-time.Second, sandbox.DefaultGrace},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ctl Control
				ctl.Begin(c.given)
				soft, hard := ctl.Stops()
				if ctl.Level() != Going || isClosed(soft) || isClosed(hard) {
					t.Fatal("it is stopped from the beginning")
				}
				ctl.Interrupt(sandbox.TimedOut)
				if ctl.Level() != Interrupted || !isClosed(soft) || isClosed(hard) {
					t.Error("an interrupt is not gentle")
				}
				time.Sleep(c.effective - 1)
				synctest.Wait()
				if ctl.Level() != Interrupted || isClosed(hard) {
					t.Error("it was killed within its grace")
				}
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				if ctl.Level() != Killed || !isClosed(hard) {
					t.Error("it was not killed after its grace")
				}
				if cause := ctl.End(); cause != sandbox.TimedOut {
					t.Errorf("it was stopped because of %v", cause)
				}
			})
		})
	}
}

func TestTheFirstCauseCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ctl Control
		ctl.Begin(time.Second)
		ctl.Interrupt(sandbox.OutputExceeded)
		ctl.Interrupt(sandbox.TimedOut)
		time.Sleep(time.Second)
		synctest.Wait()
		ctl.Interrupt(sandbox.Cancelled)
		ctl.Force(sandbox.Cancelled)
		if cause := ctl.End(); cause != sandbox.OutputExceeded {
			t.Errorf("it was stopped because of %v", cause)
		}
	})
}

func TestWithoutARunNothingIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ctl Control
		ctl.Interrupt(sandbox.Cancelled)
		ctl.Force(sandbox.Cancelled)
		if soft, hard := ctl.Stops(); soft != nil || hard != nil || ctl.Level() != Going {
			t.Error("there is something to stop before the first run")
		}
		ctl.Begin(0)
		if cause := ctl.End(); cause != 0 {
			t.Errorf("a run that nobody stopped was stopped because of %v", cause)
		}
		soft, hard := ctl.Stops()
		ctl.Interrupt(sandbox.Cancelled)
		ctl.Force(sandbox.Cancelled)
		time.Sleep(time.Hour)
		synctest.Wait()
		if ctl.Level() != Going || isClosed(soft) || isClosed(hard) {
			t.Error("a run was stopped after its end")
		}
	})
}

func TestOneRunsGraceDoesNotKillTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ctl Control
		ctl.Begin(time.Second)
		_, old := ctl.Stops()
		ctl.Interrupt(sandbox.TimedOut)
		ctl.End()
		ctl.Begin(time.Hour)
		ctl.Interrupt(sandbox.Cancelled)
		time.Sleep(time.Minute)
		synctest.Wait()
		if ctl.Level() != Interrupted {
			t.Error("it did")
		}
		ctl.kill(ctl.hard)
		if isClosed(old) || ctl.Level() != Killed {
			t.Error("the wrong run was killed")
		}
		ctl.End()
		if ctl.Level() != Going {
			t.Error("a run's end leaves it killed")
		}
	})
}

// A timer that has fired can no longer be stopped: it may come to its lock
// when the next run has begun.
func TestAGraceThatIsOverAsItsRunEndsKillsNobody(t *testing.T) {
	var ctl Control
	ctl.Begin(time.Hour)
	old := ctl.hard
	ctl.Interrupt(sandbox.TimedOut)
	ctl.End()
	ctl.Begin(time.Hour)
	ctl.Interrupt(sandbox.Cancelled)
	ctl.kill(old)
	if ctl.Level() != Interrupted || isClosed(ctl.hard) {
		t.Error("it killed the next run")
	}
	ctl.End()
}

func TestForceWaitsForNoGrace(t *testing.T) {
	for name, before := range map[string]sandbox.Cause{"by itself": 0, "within the grace of an interrupt": sandbox.TimedOut} {
		t.Run(name, func(t *testing.T) {
			var ctl Control
			ctl.Begin(time.Hour)
			want := sandbox.Cancelled
			if before != 0 {
				ctl.Interrupt(before)
				want = before
			}
			ctl.Force(sandbox.Cancelled)
			soft, hard := ctl.Stops()
			if ctl.Level() != Killed || !isClosed(soft) || !isClosed(hard) {
				t.Error("it is not killed")
			}
			ctl.Force(sandbox.Cancelled) // twice is no harm
			if cause := ctl.End(); cause != want {
				t.Errorf("it was stopped because of %v, not %v", cause, want)
			}
		})
	}
}

func TestManyStopARunAtOnce(t *testing.T) {
	var ctl Control
	for range 100 {
		ctl.Begin(time.Nanosecond)
		var all sync.WaitGroup
		for _, stop := range []func(sandbox.Cause){ctl.Interrupt, ctl.Interrupt, ctl.Force, ctl.Force} {
			all.Go(func() { stop(sandbox.TimedOut) })
		}
		all.Go(func() { ctl.Stops() })
		_, hard := ctl.Stops()
		<-hard
		if cause := ctl.End(); cause != sandbox.TimedOut {
			t.Fatalf("it was stopped because of %v", cause)
		}
		all.Wait()
	}
}
