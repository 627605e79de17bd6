package session

import (
	"context"

	"paddock/internal/fault"
)

// Destroy stops what runs or waits and removes the session with its files and
// checkpoints. ctx bounds the wait; what has begun is ended all the same.
func (m *Manager) Destroy(ctx context.Context, owner Owner, id ID) error {
	if err := id.check(); err != nil {
		return err
	}
	k := key{owner, id}
	for {
		s, err := m.sessions.lookup(k)
		if err != nil {
			return err
		}
		if s == nil {
			return m.remove(ctx, k, errDestroyed, nil)
		}
		if <-s.opened; s.openErr != nil {
			continue
		}
		if !m.destroy(s, errDestroyed, nil) {
			if !s.turns.isSleeping() {
				return errNotFound(id)
			}
			<-s.turns.closed
			continue
		}
		select {
		case <-s.turns.closed:
			err = s.endErr
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		m.recordAction(ctx, Destroying, s, err)
		return err
	}
}

// remove removes a session that nobody has open, unless allow says no when its
// record is read. It need not be whole for that.
func (m *Manager) remove(ctx context.Context, k key, cause error, allow func(record) bool) (err error) {
	claim, err := m.store.Claim(k.stored())
	if err != nil {
		return err
	}
	r, err := m.records.read(k) // it may have been used just now
	if allow != nil && (err != nil || !allow(r)) {
		claim.Release()
		return errNotFound(k.id)
	}
	s := newSession(m, k)
	s.claim, s.record = claim, r
	err = s.erase()
	m.record(ctx, Event{Action: Destroying, Expired: cause == errExpired, Owner: k.owner, Session: k.id, Isolation: r.Isolation, Err: err})
	return err
}

// erase removes what is on disk of a session that this process has claimed, and releases
// it. The record goes first: from then on the session does not exist, whatever is left of
// it.
func (s *session) erase() error {
	m := s.manager
	err := s.claim.Remove()
	if w := s.record.Waiting; w != nil {
		s.suspension.notifyAbandoned(w.Execution)
	}
	if err != nil {
		s.claim.Release()
	} else {
		s.notifyRemoved() // while no other session can have its name
		err = s.claim.Discard()
	}
	m.disk.forget(s.owner)
	m.janitor.note(s.owner)
	if err != nil {
		m.log.Warn("a session was not removed whole", "session", s.id, "cause", err)
		return fault.New(fault.Unavailable, "the session's files cannot be removed").WithHint("the server's log says more").WithCause(err)
	}
	return nil
}

// destroy begins to remove a session, unless it is ending already or allow
// says no. s.turns.closed tells when it is done.
func (m *Manager) destroy(s *session, cause error, allow func() bool) bool {
	if !s.turns.end(cause, allow) {
		return false
	}
	dismantle := func() { m.dismantle(s, true) }
	if !m.sessions.unlessClosed(func() { m.jobs.Go(dismantle) }) {
		go dismantle() // Close waits for the session, but may be past adding jobs
	}
	return true
}

// dismantle takes a session apart whose end was ordered.
func (m *Manager) dismantle(s *session, remove bool) {
	<-s.turns.drained
	clean, saved := false, false
	if !remove {
		if clean, saved = s.atLast(); !saved {
			s.noteStoppedProcesses("The session left memory")
		}
		m.disk.note(s)
	}
	s.interpreters.dropAll()
	s.noteTraffic()
	s.egress.disconnect()
	s.closeTrees()
	var err error
	if remove {
		err = s.erase()
	} else {
		if err = s.writeReleased(clean); err != nil {
			m.log.Warn("a session was not ended cleanly", "session", s.id, "cause", err)
		}
		if !s.isEphemeral() {
			m.store.Index(s.rowNow())
		}
		s.unlock()
	}
	m.sessions.remove(s)
	s.mu.Lock()
	s.endErr = err
	s.mu.Unlock()
	s.turns.finishEnd()
}
