package session

import (
	"context"
	"errors"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sessionstore"
)

// muchGarbage is how many checkpoints and sessions of an owner are removed before
// it is tidied up after them, at most every tidyEvery; fewer wait for the sweep.
const (
	muchGarbage = 1000
	tidyEvery   = 30 * time.Second
)

// garbageBytes is how much of a saved machine weighs as much as a checkpoint: no more
// than a GiB of such is left until the next sweep.
const garbageBytes = 1 << 20

// note notes that an owner has something to collect.
func (j *janitor) note(o Owner) { j.noteBytes(o, 0) }

// noteBytes is note of so many bytes of a saved machine.
func (j *janitor) noteBytes(o Owner, bytes int64) {
	n := 1 + int(bytes/garbageBytes)
	j.mu.Lock()
	was := j.garbage[o]
	j.garbage[o] += n
	much := was < muchGarbage && was+n >= muchGarbage
	j.mu.Unlock()
	if much {
		j.wakeUp()
	}
}

// hasMuch reports whether an owner has much to collect.
func (j *janitor) hasMuch() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, n := range j.garbage {
		if n >= muchGarbage {
			return true
		}
	}
	return false
}

// gc collects what this process left of those who have something to collect;
// whole: what any process left. What does not work now is done the next time.
func (j *janitor) gc(whole bool) {
	m := j.m
	j.mu.Lock()
	garbage := j.garbage
	j.garbage = map[Owner]int{}
	j.mu.Unlock()
	places := map[sessionstore.Place]bool{}
	for o := range garbage {
		places[m.store.PlaceOf(string(o))] = true
	}
	if whole {
		m.scratch.Sweep()
		m.sweepPools()
		for _, p := range m.store.Places() {
			places[p] = true
		}
	}
	for p := range places {
		_, err := m.store.RemoveOrphans(p)
		if err == nil {
			_, _, _, err = m.store.RemoveContents(m.ctx, p)
		}
		if err != nil && m.ctx.Err() == nil {
			m.log.Info("what is no longer needed was not collected", "cause", fault.CauseOf(err))
		}
	}
	for o := range garbage {
		m.disk.forget(o)
	}
}

// Collect removes expired sessions and what no checkpoint refers to any more,
// beside running processes, which it lets in between where there is much.
func (m *Manager) Collect(ctx context.Context) (Collected, error) { return m.janitor.collect(ctx) }

func (j *janitor) collect(ctx context.Context) (Collected, error) {
	m := j.m
	var sum Collected
	sum.Sessions = j.sweep(time.Now(), true)
	m.scratch.Sweep()
	m.sweepPools()
	var errs []error
	for _, place := range m.store.Places() {
		if err := context.Cause(ctx); err != nil {
			return sum, errors.Join(append(errs, err)...)
		}
		n, err := m.store.RemoveOrphans(place)
		sum.Checkpoints += n
		if err == nil {
			var blobs int
			var bytes int64
			for more := true; more && err == nil; {
				blobs, bytes, more, err = m.store.RemoveContents(ctx, place)
				sum.Blobs, sum.Bytes = sum.Blobs+blobs, sum.Bytes+bytes
			}
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return sum, errors.Join(errs...)
}
