package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/workspace"
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
	defer s.leave(t)
	defer func() { m.told(ctx, Resetting, s, err) }()
	stopped := s.endMachine("its machine was stopped to reset the session, and "+filesOnly, nil)
	if files, err = s.empty(t.ctx); err != nil {
		s.tell(stopped)
		return files, fmt.Errorf("clearing the workspace: %w", err)
	}
	clear(s.lost)
	s.news = "" // of what was before
	s.mu.Lock()
	s.record.Runtimes, s.record.Unkept = nil, nil // there is nothing of them to miss
	s.mu.Unlock()
	if err := s.save(); err != nil {
		return files, unusable(err)
	}
	return files, nil
}

// empty deletes all files and makes that a checkpoint, which can be undone. It
// gives the number of files of the workspace. All interpreters have ended.
func (s *session) empty(ctx context.Context) (int, error) {
	ctx, cancel := lasting(ctx)
	defer cancel()
	s.keeping.Lock()
	defer s.keeping.Unlock()
	files, err := s.kept.Empty(ctx)
	if err != nil || s.passing() {
		return len(files), err
	}
	clear(s.unsure)
	s.setKept(nil)
	return len(files), nil
}

// Destroy stops what runs or waits and removes the session with its files and
// checkpoints. ctx bounds the wait; what has begun is ended all the same.
func (m *Manager) Destroy(ctx context.Context, owner Owner, id ID) error {
	if err := id.check(); err != nil {
		return err
	}
	k := key{owner, id}
	for {
		m.mu.Lock()
		s, closed := m.sessions[k], m.closed
		m.mu.Unlock()
		if closed {
			return errShutdown
		}
		if s == nil {
			return m.remove(ctx, k, errDestroyed, nil)
		}
		if <-s.opened; s.openErr != nil {
			continue
		}
		if !m.destroy(s, errDestroyed, nil) {
			if !s.isSleeping() {
				return errNotFound(id)
			}
			<-s.closed
			continue
		}
		var err error
		select {
		case <-s.closed:
			err = s.endErr
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		m.told(ctx, Destroying, s, err)
		return err
	}
}

// remove removes a session that nobody has open, unless allow says no when its
// record is read. It need not be whole for that.
func (m *Manager) remove(ctx context.Context, k key, cause error, allow func(record) bool) (err error) {
	s := newSession(m, k)
	if s.record, err = m.readRecord(k); err != nil && fault.KindOf(err) == fault.NotFound {
		return err
	}
	if err := s.acquire(); err != nil {
		return err
	}
	r, err := m.readRecord(k) // it may have been removed, or used, just now
	if fault.KindOf(err) == fault.NotFound || allow != nil && (err != nil || !allow(r)) {
		s.unlock()
		return errNotFound(k.id)
	}
	s.record = r
	err = s.erase()
	m.record(ctx, Event{Action: Destroying, Expired: cause == errExpired, Owner: k.owner, Session: k.id, Isolation: r.Isolation, Err: err})
	return err
}

// erase removes what is on disk of a session whose lock we hold, and lets go of
// that. The record goes first: from then on the session does not exist, whatever
// is left of it.
func (s *session) erase() error {
	m := s.manager
	err := m.config.files().Remove(filepath.Join(s.dir, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil { // or it might come back, without what belongs to it
		err = m.config.files().SyncDir(s.dir)
	}
	if err != nil {
		s.unlock()
	} else {
		err = history.RemoveAll(m.checkpointsFolder(s.key), m.config.files())
		err = errors.Join(err, workspace.RemoveLocked(s.dir, lockFile, s.unlock))
	}
	m.index.DeleteSession(string(s.owner), string(s.id))
	m.disk.Forget(string(s.owner))
	m.littered(s.owner)
	if err != nil {
		m.log.Warn("a session was not removed whole", "session", s.id, "cause", err)
		return fault.New(fault.Unavailable, "the session's files cannot be removed").WithHint("the server's log says more").WithCause(err)
	}
	return nil
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

// dismantle takes a session apart whose end was ordered.
func (m *Manager) dismantle(s *session, remove bool) {
	<-s.drained
	clean, saved := false, false
	if !remove {
		if clean, saved = s.atLast(); !saved {
			s.partWithProcesses("The session left memory")
		}
		m.counted(s)
	}
	s.dropAll()
	s.closeTrees()
	var err error
	if remove {
		err = s.erase()
	} else {
		if err = s.letGoOf(clean); err != nil {
			m.log.Warn("a session was not ended cleanly", "session", s.id, "cause", err)
		}
		if !s.passing() {
			m.index.PutSession(s.rowNow())
		}
		s.unlock()
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
			m.tidy(whole)
			if swept, tidied = now, now; whole {
				searched = now
			}
		} else if now.Sub(tidied) >= tidyEvery && m.messy() {
			m.tidy(false)
			tidied = time.Now()
		}
		rest := time.NewTimer(max(min(m.expire(now), m.retire(now), m.rest(now), m.saveIdle(now)), minRest))
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
		overdue := func() bool { return s.phase == free && s.users == 0 && !now.Before(m.expiresAt(s.record)) }
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
	return rest
}

// sweep destroys the expired sessions that nobody has open, which the index
// names, or a search through the folders where it does not know or whole is
// asked for; that removes folders that hold no session any more, too. It gives
// how many sessions it destroyed.
func (m *Manager) sweep(now time.Time, whole bool) (expired int) {
	rows, err := m.index.Expired(now, mostExpired)
	if whole || err != nil {
		return m.search(now)
	}
	for _, r := range rows {
		if m.ctx.Err() != nil {
			break
		}
		if m.removeExpired(key{Owner(r.Owner), ID(r.ID)}, now) {
			expired++
		} else if _, err := os.Lstat(m.folder(key{Owner(r.Owner), ID(r.ID)})); errors.Is(err, fs.ErrNotExist) {
			m.index.DeleteSession(r.Owner, r.ID)
		}
	}
	return expired
}

// mostExpired bounds what one sweep destroys by the index.
const mostExpired = 10_000

func (m *Manager) removeExpired(k key, now time.Time) bool {
	if held(m.folder(k)) {
		return false
	}
	err := m.remove(m.ctx, k, errExpired, func(r record) bool {
		// The record does not know of what was written from outside of programs
		// before a crash.
		if at, err := history.Latest(m.checkpointsFolder(k), m.config.files()); err == nil && at.After(r.LastUsedAt) {
			r.LastUsedAt = at
		}
		return !now.Before(m.expiresAt(r))
	})
	if err == nil {
		m.log.Info("session expired", "session", k.id)
	}
	return err == nil
}

func (m *Manager) search(now time.Time) (expired int) {
	locks, err := filepath.Glob(filepath.Join(m.config.Dir, "owners", "*", "*", lockFile))
	if err != nil {
		m.log.Error("the state folder cannot be searched", "cause", err)
	}
	for _, path := range locks {
		if m.ctx.Err() != nil {
			return expired
		}
		dir := filepath.Dir(path)
		r, there := m.recordIn(dir)
		if !there {
			m.sweepRest(dir, now)
			continue
		}
		if r.ID == "" || now.Before(m.expiresAt(r)) {
			continue
		}
		if k := (key{r.Owner, r.ID}); m.folder(k) == dir && m.removeExpired(k, now) {
			expired++
		}
	}
	return expired
}

// sweepRest removes what is left of a session whose removal was interrupted.
func (m *Manager) sweepRest(dir string, now time.Time) {
	info, err := os.Stat(dir)
	if err != nil || now.Sub(info.ModTime()) < sweepEvery {
		return // it may be in the making
	}
	unlock, err := tryLock(filepath.Join(dir, lockFile), os.O_RDWR)
	if err != nil || unlock == nil {
		return
	}
	if _, there := m.recordIn(dir); there {
		unlock()
		return
	}
	if err := workspace.RemoveLocked(dir, lockFile, unlock); err != nil {
		m.log.Warn("the rest of a session cannot be removed", "cause", err)
	}
}
