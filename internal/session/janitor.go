package session

import (
	"sync"
	"time"
)

const (
	// The janitor looks at the open sessions at least and at most so often.
	minRest, maxRest = 100 * time.Millisecond, time.Minute
	// sweepEvery is how often it looks at what other processes left.
	sweepEvery = 10 * time.Minute
	// searchEvery is how often it searches all folders for that.
	searchEvery = time.Hour
)

// janitor looks after the sessions that no call is at work in: it destroys those that have
// expired, puts others to sleep, and collects what is no longer needed. It is safe for
// concurrent use.
type janitor struct {
	m    *Manager
	wake chan struct{} // holds a token when it should look again

	mu      sync.Mutex    // guards garbage; nothing else is locked while it is held
	garbage map[Owner]int // how much was removed of whose, since it was collected
}

func newJanitor(m *Manager) *janitor {
	return &janitor{m: m, wake: make(chan struct{}, 1), garbage: map[Owner]int{}}
}

// wakeUp has the janitor look again now: what is due has changed.
func (j *janitor) wakeUp() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// run destroys sessions that were not used for too long, and puts others to
// sleep. It ends with the Manager.
func (j *janitor) run() {
	m := j.m
	began := time.Now()
	var wall clock
	swept, searched, tidied := time.Time{}, began, began
	for {
		now := time.Now()
		whole := now.Sub(searched) >= searchEvery
		believed := wall.believable(now, now.Sub(began))
		if now.Sub(swept) >= sweepEvery {
			if believed {
				j.sweep(now, whole)
			}
			j.gc(whole)
			if swept, tidied = now, now; whole {
				searched = now
			}
		} else if now.Sub(tidied) >= tidyEvery && j.hasMuch() {
			j.gc(false)
			tidied = time.Now()
		}
		next := min(j.expire(now), m.eachResidence(residence.enforceLifetime, now))
		next = min(next, j.sleepIdle(now), m.eachResidence(residence.saveIdle, now))
		rest := time.NewTimer(max(next, minRest))
		select {
		case <-rest.C:
		case <-j.wake:
			rest.Stop()
		case <-m.ctx.Done():
			rest.Stop()
			return
		}
	}
}

// sleepIdle puts those to sleep that nobody has used for long, and gives the time
// until it should look again.
func (j *janitor) sleepIdle(now time.Time) time.Duration {
	m := j.m
	next := maxRest
	if m.config.SleepAfter < 0 {
		return next
	}
	for _, s := range m.sessions.open("") {
		due := func() time.Time { return s.lastUsed().Add(m.config.SleepAfter) }
		if s.canSleep() && !now.Before(due()) && len(s.interpreters.background(m.ctx)) > 0 {
			next = min(next, m.config.SleepAfter) // it may be done by then
			continue
		}
		if m.sleep(s, func() bool { return !now.Before(due()) }) {
			continue
		}
		if s.canSleep() {
			next = min(next, due().Sub(now))
		} else if !s.isEphemeral() {
			next = min(next, m.config.SleepAfter) // it is in use, and may rest by then
		}
	}
	return next
}
