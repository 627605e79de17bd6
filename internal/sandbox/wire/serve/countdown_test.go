package serve

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/sandbox"
)

// share is a clock of a program that gets every nth moment of the machine's.
func share(n int64) Clock {
	return func() time.Duration { return time.Duration(time.Now().UnixNano() / n) }
}

// wantKilledAfter checks when an interrupted run is stopped by force, but for how late a
// look at its clock may be.
func wantKilledAfter(t *testing.T, c *Control, want time.Duration) {
	t.Helper()
	began := time.Now()
	_, hard := c.Stops()
	select {
	case <-hard:
	case <-time.After(time.Hour):
		t.Fatalf("it goes on, want it stopped after %v", want)
	}
	if got := time.Since(began); got < want || got > want+leastLook {
		t.Errorf("it was stopped after %v, want %v", got, want)
	}
}

func TestAGraceIsCountedInTheProgramsOwnTime(t *testing.T) {
	for name, c := range map[string]struct {
		clock Clock
		grace time.Duration
		want  time.Duration
	}{
		"a program that has a processor":       {share(1), 0, 250 * time.Millisecond},
		"one that has every fourth moment":     {share(4), 0, time.Second},
		"one that gets next to no time":        {share(100), 0, sandbox.DefaultGrace},
		"one that does nothing":                {func() time.Duration { return 7 * time.Hour }, 0, sandbox.DefaultGrace},
		"one whose time is not known":          {nil, 0, sandbox.DefaultGrace},
		"one that is given less":               {share(1), 100 * time.Millisecond, 100 * time.Millisecond},
		"one that is given more, in wall time": {share(40), time.Minute, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ctl Control
				ctl.Begin(c.grace)
				ctl.Count(c.clock, 250*time.Millisecond)
				time.Sleep(time.Minute) // what it took before does not count
				ctl.Interrupt(sandbox.TimedOut)
				wantKilledAfter(t, &ctl, c.want)
				if cause := ctl.End(); cause != sandbox.TimedOut {
					t.Errorf("it was stopped because of %v, want %v", cause, sandbox.TimedOut)
				}
			})
		})
	}
}

func TestAGraceBeginsAgainWithAClockThatComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ctl Control
		ctl.Begin(0)
		ctl.Interrupt(sandbox.Cancelled)
		time.Sleep(time.Second)
		ctl.Count(share(1), 250*time.Millisecond)
		wantKilledAfter(t, &ctl, 250*time.Millisecond)
		ctl.End()
		ctl.Begin(0)
		ctl.Interrupt(sandbox.Cancelled)
		time.Sleep(sandbox.DefaultGrace - 100*time.Millisecond)
		ctl.Count(share(1), 250*time.Millisecond)
		wantKilledAfter(t, &ctl, 100*time.Millisecond) // it had the rest already
		ctl.End()
	})
}

func TestABoundStopsARunByForce(t *testing.T) {
	for name, c := range map[string]struct {
		clock Clock
		want  time.Duration
	}{
		"in its own time":               {share(3), 3 * time.Second},
		"in wall time":                  {share(100), 10 * time.Second},
		"in wall time, without a clock": {nil, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ctl Control
				ctl.Begin(0)
				ctl.Count(c.clock, time.Minute)
				ctl.Bound(time.Second, 10*time.Second, sandbox.OutOfFuel)
				wantKilledAfter(t, &ctl, c.want)
				if cause := ctl.End(); cause != sandbox.OutOfFuel {
					t.Errorf("it was stopped because of %v, want %v", cause, sandbox.OutOfFuel)
				}
			})
		})
	}
}

func TestABoundOfOneRunDoesNotStopTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ctl Control
		ctl.Bound(0, 0, sandbox.TimedOut) // there is no run
		ctl.Count(share(1), 0)
		ctl.Begin(0)
		ctl.Bound(time.Second, time.Second, sandbox.TimedOut)
		ctl.End()
		ctl.Begin(0)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := ctl.Level(); got != Going {
			t.Errorf("the next run is at level %v, want %v", got, Going)
		}
		// As from a countdown that was over when its run ended.
		ctl.interrupt(sandbox.TimedOut, make(chan struct{}))
		if got := ctl.Level(); got != Going {
			t.Errorf("after another run's bound it is at level %v, want %v", got, Going)
		}
		ctl.End()
	})
}

func TestAClockIsNotReadWhenItsRunHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Bool
		clock := func() time.Duration {
			if ended.Load() {
				t.Error("it is")
			}
			return 0
		}
		var ctl Control
		for _, end := range []func(){func() { ctl.End() }, func() { ctl.Begin(0) }} {
			ended.Store(false)
			ctl.Begin(0)
			ctl.Count(clock, time.Second)
			ctl.Bound(time.Second, time.Hour, sandbox.TimedOut)
			ctl.Interrupt(sandbox.TimedOut)
			time.Sleep(1500 * time.Millisecond)
			end()
			ended.Store(true)
			time.Sleep(2 * time.Hour)
			synctest.Wait()
		}
	})
}
