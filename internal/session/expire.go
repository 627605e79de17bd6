package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"paddock/internal/fault"
)

const (
	// The janitor looks at the open sessions at least and at most so often.
	minRest, maxRest = 100 * time.Millisecond, time.Minute
	// sweepEvery is how often it looks at what other processes left.
	sweepEvery = 10 * time.Minute
)

var (
	errReset     = fault.New(fault.Cancelled, "the session was reset")
	errDestroyed = fault.New(fault.Cancelled, "the session was destroyed")
	errExpired   = fault.New(fault.Cancelled, "the session has expired")
)

// Reset stops what runs or waits, ends the interpreters and deletes all files.
// The session and its settings stay. It gives the number of files deleted.
func (m *Manager) Reset(ctx context.Context, owner Owner, id ID) (files int, err error) {
	s, err := m.find(owner, id)
	if err != nil {
		return 0, err
	}
	t, err := s.join(ctx, "", errReset)
	if err != nil {
		return 0, fmt.Errorf("waiting to reset the session: %w", err)
	}
	defer s.leave(t)
	s.dropAll()
	clear(s.lost)
	defer func() {
		m.record(ctx, Event{Action: Resetting, Owner: owner, Session: id, Isolation: s.backendName(), Err: err})
	}()
	files, err = s.tree.Clear()
	if err != nil {
		return files, fmt.Errorf("clearing the workspace: %w", err)
	}
	if _, err := s.tmp.Clear(); err != nil {
		return files, fmt.Errorf("clearing the folder for temporary files: %w", err)
	}
	s.mu.Lock()
	s.record.Runtimes = nil // there is nothing of them to miss
	s.mu.Unlock()
	if err := s.save(); err != nil {
		return files, unusable(err)
	}
	return files, nil
}

// Destroy stops what runs or waits and removes the session and its files.
// ctx bounds the wait; what has begun is ended all the same.
func (m *Manager) Destroy(ctx context.Context, owner Owner, id ID) error {
	s, err := m.find(owner, id)
	if err != nil {
		return err
	}
	if !m.destroy(s, errDestroyed, nil) {
		return errNotFound(id)
	}
	select {
	case <-s.closed:
		err = s.endErr
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	m.record(ctx, Event{Action: Destroying, Owner: owner, Session: id, Isolation: s.backendName(), Err: err})
	return err
}

// expired tells of a session that the janitor began to remove.
func (m *Manager) expired(s *session) {
	m.log.Info("session expired", "session", s.id)
	m.record(m.ctx, Event{Action: Destroying, Expired: true, Owner: s.owner, Session: s.id, Isolation: s.backendName()})
}

// destroy begins to remove a session, unless it is ending already or allow
// says no. s.closed tells when it is done.
func (m *Manager) destroy(s *session, cause error, allow func() bool) bool {
	if !s.end(cause, allow) {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		// Close waits for s.closed, but may be past adding jobs.
		go m.dismantle(s, true)
	} else {
		m.jobs.Go(func() { m.dismantle(s, true) })
	}
	return true
}

// dismantle takes a session apart whose end was ordered. The record goes
// first: from then on the session does not exist, whatever is left of it.
func (m *Manager) dismantle(s *session, remove bool) {
	<-s.drained
	s.dropAll()
	s.closeTrees()
	var err error
	if !remove {
		s.mu.Lock()
		s.record.Process = 0
		s.mu.Unlock()
		err = s.save()
		s.unlock()
	} else if err = os.Remove(filepath.Join(s.dir, recordFile)); err == nil {
		err = removeFolder(s.dir, s.unlock)
	} else {
		s.unlock()
	}
	if err != nil {
		m.log.Warn("a session was not ended cleanly", "session", s.id, "removed", remove, "cause", err)
		err = fault.New(fault.Unavailable, "the session's files cannot be removed").WithHint("the server's log says more").WithCause(err)
	}
	m.mu.Lock()
	delete(m.sessions, s.key)
	m.mu.Unlock()
	s.mu.Lock()
	s.endErr = err
	s.shiftLocked(gone)
	s.mu.Unlock()
	close(s.closed)
}

// janitor destroys sessions that were not used for too long. It ends with the
// Manager.
func (m *Manager) janitor() {
	swept := time.Time{}
	for {
		now := time.Now()
		if now.Sub(swept) >= sweepEvery {
			m.sweep(now)
			swept = now
		}
		rest := time.NewTimer(m.expire(now))
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
	m.mu.Lock()
	var all []*session
	for _, s := range m.sessions {
		all = append(all, s)
	}
	m.mu.Unlock()
	rest := maxRest
	for _, s := range all {
		overdue := func() bool { return s.phase == free && !now.Before(m.expiresAt(s.record)) }
		if m.destroy(s, errExpired, overdue) {
			m.expired(s)
			continue
		}
		s.mu.Lock()
		if s.phase == free {
			rest = min(rest, m.expiresAt(s.record).Sub(now))
		}
		s.mu.Unlock()
	}
	return max(rest, minRest)
}

// sweep destroys the expired sessions that nobody has open, and removes
// folders that hold no session any more.
func (m *Manager) sweep(now time.Time) {
	records, err := filepath.Glob(filepath.Join(m.config.Dir, "owners", "*", "*", lockFile))
	if err != nil {
		m.log.Error("the state folder cannot be searched", "cause", err)
	}
	for _, path := range records {
		if m.ctx.Err() != nil {
			return
		}
		dir := filepath.Dir(path)
		data, err := os.ReadFile(filepath.Join(dir, recordFile))
		if errors.Is(err, fs.ErrNotExist) {
			m.sweepRest(dir, now)
			continue
		}
		var r record
		if err != nil || json.Unmarshal(data, &r) != nil || now.Before(m.expiresAt(r)) || held(dir) {
			continue
		}
		s, err := m.find(r.Owner, r.ID)
		if err != nil {
			continue // somebody else was faster
		}
		if m.destroy(s, errExpired, func() bool { return s.phase == free && !now.Before(m.expiresAt(s.record)) }) {
			m.expired(s)
		}
	}
}

// sweepRest removes what is left of a session whose removal was interrupted.
func (m *Manager) sweepRest(dir string, now time.Time) {
	info, err := os.Stat(dir)
	if err != nil || now.Sub(info.ModTime()) < sweepEvery {
		return // it may be in the making
	}
	lock := flock.New(filepath.Join(dir, lockFile), flock.SetFlag(os.O_RDWR))
	unlock := func() { _ = lock.Close() } // it goes away with its file
	if ok, err := lock.TryLock(); err != nil || !ok {
		unlock()
		return
	}
	if _, err := os.Lstat(filepath.Join(dir, recordFile)); err == nil {
		unlock()
		return
	}
	if err := removeFolder(dir, unlock); err != nil {
		m.log.Warn("the rest of a session cannot be removed", "cause", err)
	}
}
