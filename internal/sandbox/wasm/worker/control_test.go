package worker

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/sandbox"
)

func closed(c <-chan struct{}) bool {
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
		"none: the usual":          {0, defaultGrace},
		"a negative one: the same": {-time.Second, defaultGrace},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ctl control
				ctl.begin(c.given)
				soft, hard := ctl.stops()
				if ctl.level.Load() != running || closed(soft) || closed(hard) {
					t.Fatal("it is stopped from the beginning")
				}
				ctl.interrupt(sandbox.TimedOut)
				if ctl.level.Load() != interrupted || !closed(soft) || closed(hard) {
					t.Error("an interrupt is not gentle")
				}
				time.Sleep(c.effective - 1)
				synctest.Wait()
				if ctl.level.Load() != interrupted || closed(hard) {
					t.Error("it was killed within its grace")
				}
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				if ctl.level.Load() != killed || !closed(hard) {
					t.Error("it was not killed after its grace")
				}
				if cause := ctl.end(); cause != sandbox.TimedOut {
					t.Errorf("it was stopped because of %v", cause)
				}
			})
		})
	}
}

func TestTheFirstCauseCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ctl control
		ctl.begin(time.Second)
		ctl.interrupt(sandbox.OutputExceeded)
		ctl.interrupt(sandbox.TimedOut)
		time.Sleep(time.Second)
		synctest.Wait()
		ctl.interrupt(sandbox.Cancelled)
		ctl.force(sandbox.Cancelled)
		if cause := ctl.end(); cause != sandbox.OutputExceeded {
			t.Errorf("it was stopped because of %v", cause)
		}
	})
}

func TestWithoutARunNothingIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ctl control
		ctl.interrupt(sandbox.Cancelled)
		ctl.force(sandbox.Cancelled)
		if soft, hard := ctl.stops(); soft != nil || hard != nil || ctl.level.Load() != running {
			t.Error("there is something to stop before the first run")
		}
		ctl.begin(0)
		if cause := ctl.end(); cause != 0 {
			t.Errorf("a run that nobody stopped was stopped because of %v", cause)
		}
		soft, hard := ctl.stops()
		ctl.interrupt(sandbox.Cancelled)
		ctl.force(sandbox.Cancelled)
		time.Sleep(time.Hour)
		synctest.Wait()
		if ctl.level.Load() != running || closed(soft) || closed(hard) {
			t.Error("a run was stopped after its end")
		}
	})
}

func TestOneRunsGraceDoesNotKillTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ctl control
		ctl.begin(time.Second)
		_, old := ctl.stops()
		ctl.interrupt(sandbox.TimedOut)
		ctl.end()
		ctl.begin(time.Hour)
		ctl.interrupt(sandbox.Cancelled)
		time.Sleep(time.Minute)
		synctest.Wait()
		if ctl.level.Load() != interrupted {
			t.Error("it did")
		}
		ctl.kill(ctl.hard)
		if closed(old) || ctl.level.Load() != killed {
			t.Error("the wrong run was killed")
		}
		ctl.end()
		if ctl.level.Load() != running {
			t.Error("a run's end leaves it killed")
		}
	})
}

// A timer that has fired can no longer be stopped: it may come to its lock
// when the next run has begun.
func TestAGraceThatIsOverAsItsRunEndsKillsNobody(t *testing.T) {
	var ctl control
	ctl.begin(time.Hour)
	old := ctl.hard
	ctl.interrupt(sandbox.TimedOut)
	ctl.end()
	ctl.begin(time.Hour)
	ctl.interrupt(sandbox.Cancelled)
	ctl.kill(old)
	if ctl.level.Load() != interrupted || closed(ctl.hard) {
		t.Error("it killed the next run")
	}
	ctl.end()
}

func TestForceWaitsForNoGrace(t *testing.T) {
	for name, before := range map[string]sandbox.Cause{"by itself": 0, "within the grace of an interrupt": sandbox.TimedOut} {
		t.Run(name, func(t *testing.T) {
			var ctl control
			ctl.begin(time.Hour)
			want := sandbox.Cancelled
			if before != 0 {
				ctl.interrupt(before)
				want = before
			}
			ctl.force(sandbox.Cancelled)
			soft, hard := ctl.stops()
			if ctl.level.Load() != killed || !closed(soft) || !closed(hard) {
				t.Error("it is not killed")
			}
			ctl.force(sandbox.Cancelled) // twice is no harm
			if cause := ctl.end(); cause != want {
				t.Errorf("it was stopped because of %v, not %v", cause, want)
			}
		})
	}
}

func TestManyStopARunAtOnce(t *testing.T) {
	var ctl control
	for range 100 {
		ctl.begin(time.Nanosecond)
		var all sync.WaitGroup
		for _, stop := range []func(sandbox.Cause){ctl.interrupt, ctl.interrupt, ctl.force, ctl.force} {
			all.Go(func() { stop(sandbox.TimedOut) })
		}
		all.Go(func() { ctl.stops() })
		_, hard := ctl.stops()
		<-hard
		if cause := ctl.end(); cause != sandbox.TimedOut {
			t.Fatalf("it was stopped because of %v", cause)
		}
		all.Wait()
	}
}

func TestFuelIsCountedToTheLast(t *testing.T) {
	for name, limit := range map[string]uint64{
		"less than a portion": 1000, "one": 1, "exactly a portion": quantum, "one more than a portion": quantum + 1,
		"one less": quantum - 1, "many portions": 1_000_000, "none": 0,
	} {
		t.Run(name, func(t *testing.T) {
			m := meter{limit: limit}
			if m.empty() {
				t.Fatal("it is empty before anything has run")
			}
			for range 100 {
				left := m.portion()
				if left < 0 || left >= quantum {
					t.Fatalf("a portion of %d", left)
				}
				// The guest ticks when its counter falls below zero.
				before := m.used
				m.spend(-1)
				if m.used-before != uint64(left)+1 {
					t.Fatalf("%d were given and %d counted", left+1, m.used-before)
				}
				if m.empty() {
					break
				}
			}
			if limit == 0 && (m.empty() || m.used != 100*quantum) {
				t.Errorf("without a limit it is empty after %d", m.used)
			} else if limit > 0 && m.used != limit {
				t.Errorf("it is empty after %d of %d", m.used, limit)
			}
		})
	}
}

func TestAProgramThatIsOutOfFuelMayCleanUpInWholePortions(t *testing.T) {
	m := meter{limit: 10}
	m.portion()
	m.spend(-1)
	if left := m.portion(); left != quantum-1 || !m.empty() {
		t.Errorf("it gets %d", left)
	}
}

func TestAPortionThatIsNotUsedUpIsNotCounted(t *testing.T) {
	m := meter{limit: 100}
	m.portion()
	m.spend(m.portion())
	if m.used != 0 {
		t.Errorf("%d were counted of a portion that was not touched", m.used)
	}
	m.spend(-1) // the end after a tick, with nothing given in between
	if m.used != 0 {
		t.Errorf("%d were counted of no portion at all", m.used)
	}
	var done uint64
	for !m.empty() {
		left := m.portion()
		used := rand.Int32N(left + 2) // 0 … the whole portion
		m.spend(left - used)
		if done += uint64(used); m.used != done {
			t.Fatalf("%d were done and %d counted", done, m.used)
		}
	}
	if done != 100 {
		t.Errorf("it is empty after %d", done)
	}
}
