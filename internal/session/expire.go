package session

import (
	"context"
	"fmt"
	"time"

	"paddock/internal/fault"
)

const (
	// The janitor looks at the open sessions at least and at most so often.
	minRest, maxRest = 100 * time.Millisecond, time.Minute
	// sweepEvery is how often it looks at what other processes left.
	sweepEvery = 10 * time.Minute
	// searchEvery is how often it searches all folders for that.
	searchEvery = time.Hour
)

var (
	errReset     = fault.New(fault.Cancelled, "the session was reset")
	errDestroyed = fault.New(fault.Cancelled, "the session was destroyed")
	errExpired   = fault.New(fault.Cancelled, "the session has expired")
)

// Reset stops what runs or waits, ends the interpreters and deletes all files.
// The session and its settings stay. It gives the number of files deleted.
func (m *Manager) Reset(ctx context.Context, owner Owner, id ID) (files int, err error) {
	s, t, err := m.takeTurn(ctx, owner, id, errReset)
	if err != nil {
		return 0, fmt.Errorf("waiting to reset the session: %w", err)
	}
	defer s.turns.leave(t)
	defer func() { m.recordAction(ctx, Resetting, s, err) }()
	waited := s.waits()
	stopped := s.residence.stopAll("its machine was stopped to reset the session, and " + filesOnly)
	if files, err = s.empty(t.ctx); err != nil {
		s.addNotice(stopped)
		return files, fmt.Errorf("clearing the workspace: %w", err)
	}
	s.over(waited)
	clear(s.lostReasons)
	s.pending = "" // of what was before
	s.mu.Lock()
	s.record.Runtimes, s.record.Unkept = nil, nil // there is nothing of them to miss
	s.mu.Unlock()
	if err := s.save(); err != nil {
		return files, unusable(err)
	}
	s.residence.refill()
	return files, nil
}

// empty deletes all files and makes that a checkpoint, which can be undone. It
// gives the number of files of the workspace. All interpreters have ended.
func (s *session) empty(ctx context.Context) (int, error) {
	ctx, cancel := lasting(ctx)
	defer cancel()
	s.checkpointMu.Lock()
	defer s.checkpointMu.Unlock()
	files, err := s.repo.Empty(ctx)
	if err != nil || s.isEphemeral() {
		return len(files), err
	}
	clear(s.dirtyRuntimes)
	s.setKept(nil)
	return len(files), nil
}

// expired tells of a session that the janitor began to remove.
func (m *Manager) expired(s *session) {
	m.log.Info("session expired", "session", s.id)
	m.record(m.ctx, Event{Action: Destroying, Expired: true, Owner: s.owner, Session: s.id, Isolation: s.backendName()})
}

// janitor destroys sessions that were not used for too long, and puts others to
// sleep. It ends with the Manager.
func (m *Manager) janitor() {
	began := time.Now()
	var wall clock
	swept, searched, tidied := time.Time{}, began, began
	for {
		now := time.Now()
		whole := now.Sub(searched) >= searchEvery
		believed := wall.believable(now, now.Sub(began))
		if now.Sub(swept) >= sweepEvery {
			if believed {
				m.sweep(now, whole)
			}
			m.gc(whole)
			if swept, tidied = now, now; whole {
				searched = now
			}
		} else if now.Sub(tidied) >= tidyEvery && m.needsGC() {
			m.gc(false)
			tidied = time.Now()
		}
		rest := time.NewTimer(max(min(m.expire(now), m.eachResidence(residence.enforceLifetime, now), m.sleepIdle(now), m.eachResidence(residence.saveIdle, now)), minRest))
		select {
		case <-rest.C:
		case <-m.wake:
			rest.Stop()
		case <-m.ctx.Done():
			rest.Stop()
			return
		}
	}
}

// expire destroys the open sessions whose time is over, and gives the time
// until it should look again.
func (m *Manager) expire(now time.Time) time.Duration {
	rest := maxRest
	for _, s := range m.sessions.list("") {
		overdue := func() bool { return s.turns.unusedLocked() && !now.Before(s.expiresAt()) }
		if m.destroy(s, errExpired, overdue) {
			m.expired(s)
			continue
		}
		if s.turns.isIdle() {
			rest = min(rest, s.expiresAt().Sub(now))
		}
	}
	return rest
}

// sweep destroys the expired sessions that no process has open, which the index names, or
// a search through all of them where it does not know or whole is asked for. It returns
// how many sessions it destroyed.
func (m *Manager) sweep(now time.Time, whole bool) (expired int) {
	for k := range m.store.Expired(m.ctx, now, whole) {
		if m.removeExpired(keyOf(k), now) {
			expired++
		}
	}
	return expired
}

func (m *Manager) removeExpired(k key, now time.Time) bool {
	if m.store.Held(k.stored()) {
		return false
	}
	err := m.remove(m.ctx, k, errExpired, func(r record) bool {
		// The record does not know of what was written from outside of programs
		// before a crash.
		if newest, err := m.store.Newest(k.stored()); err == nil && newest != nil && newest.At.After(r.LastUsedAt) {
			r.LastUsedAt = newest.At
		}
		return !now.Before(m.records.expiresAt(r))
	})
	if err == nil {
		m.log.Info("session expired", "session", k.id)
	}
	return err == nil
}
