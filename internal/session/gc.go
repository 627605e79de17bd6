package session

import (
	"context"
	"errors"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sessionstore"
)

// pruneTo gives up the oldest checkpoints that have no label, where there are more
// than most.
func (s *session) pruneTo(most int) {
	s.checkpointMu.Lock()
	defer s.checkpointMu.Unlock()
	s.repo.Prune(most)
}

// muchLitter is how many checkpoints and sessions of an owner are removed before
// it is tidied up after them, at most every tidyEvery; fewer wait for the sweep.
const (
	muchLitter = 1000
	tidyEvery  = 30 * time.Second
)

// gcThreshold is how much of a saved machine weighs as much as a checkpoint: no more
// than a GiB of such is left until the next sweep.
const gcThreshold = 1 << 20

// noteGarbage notes that an owner has something to collect.
func (m *Manager) noteGarbage(o Owner) { m.noteGarbageBytes(o, 0) }

// noteGarbageBytes is littered with so many bytes of a saved machine.
func (m *Manager) noteGarbageBytes(o Owner, bytes int64) {
	n := 1 + int(bytes/gcThreshold)
	m.storing.Lock()
	was := m.garbage[o]
	m.garbage[o] += n
	much := was < muchLitter && was+n >= muchLitter
	m.storing.Unlock()
	if much {
		select {
		case m.wake <- struct{}{}:
		default:
		}
	}
}

// needsGC tells whether somebody has much to collect.
func (m *Manager) needsGC() bool {
	m.storing.Lock()
	defer m.storing.Unlock()
	for _, n := range m.garbage {
		if n >= muchLitter {
			return true
		}
	}
	return false
}

// gc collects what this process left of those who have something to collect;
// whole: what any process left. What does not work now is done the next time.
func (m *Manager) gc(whole bool) {
	m.storing.Lock()
	litter := m.garbage
	m.garbage = map[Owner]int{}
	m.storing.Unlock()
	places := map[sessionstore.Place]bool{}
	for o := range litter {
		places[m.store.PlaceOf(string(o))] = true
	}
	if whole {
		m.sweepScratch()
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
	for o := range litter {
		m.disk.Forget(string(o))
	}
}

// Collect removes expired sessions and what no checkpoint refers to any more,
// beside running processes, which it lets in between where there is much.
func (m *Manager) Collect(ctx context.Context) (Collected, error) {
	var sum Collected
	sum.Sessions = m.sweep(time.Now(), true)
	m.sweepScratch()
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

// removeContents removes what no checkpoint of an owner names, as much as it can without
// keeping others waiting for long.
func (m *Manager) removeContents(ctx context.Context, o Owner) error {
	_, _, _, err := m.store.RemoveContents(ctx, m.store.PlaceOf(string(o)))
	return err
}
