package session

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"paddock/internal/fault"
)

// errAsleep says that a session has been put to sleep, or is being: whoever
// opens it again finds it as it was.
var errAsleep = errors.New("session: it is asleep")

// takeTurn finds a session and waits for a turn in it that is not an execution. See
// [turns.take].
func (m *Manager) takeTurn(ctx context.Context, owner Owner, id ID, stop error) (*session, *turn, error) {
	for {
		s, err := m.find(owner, id)
		if err != nil {
			return nil, nil, err
		}
		t, err := s.turns.take(ctx, "", stop)
		if !errors.Is(err, errAsleep) {
			return s, t, err
		}
		<-s.turns.closed
	}
}

// use finds a session and keeps it awake until done is called, which works
// twice.
func (m *Manager) use(owner Owner, id ID) (s *session, done func(), err error) {
	for {
		if s, err = m.find(owner, id); err != nil {
			return nil, nil, err
		}
		if done, err = s.turns.hold(); !errors.Is(err, errAsleep) {
			return s, done, err
		}
		<-s.turns.closed
	}
}

// canSleepLocked reports whether a session may be put to sleep: nothing runs or waits,
// nobody uses its files, and all of it is on disk. The caller holds turns.mu.
func (s *session) canSleepLocked() bool {
	if !s.turns.unusedLocked() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.checkpoints.unsaved.Load() && !s.record.Settings.Ephemeral
}

// canSleep is canSleepLocked for who does not hold the lock.
func (s *session) canSleep() bool {
	s.turns.mu.Lock()
	defer s.turns.mu.Unlock()
	return s.canSleepLocked()
}

// sleep lets go of a session that may rest: its interpreters end, and what it
// is stays on disk. It reports whether it did, and has waited for it.
func (m *Manager) sleep(s *session, allow func() bool) bool {
	if !s.turns.end(nil, func() bool {
		if !s.canSleepLocked() || allow != nil && !allow() {
			return false
		}
		s.turns.sleeping = true
		return true
	}) {
		return false
	}
	m.dismantle(s, false)
	m.log.Debug("session asleep", "session", s.id)
	return true
}

// Sleep puts a session to sleep that is open here: its interpreters leave
// memory, and the next call wakes it. It is a fault.Conflict while something runs
// in it or its files are in use.
func (m *Manager) Sleep(owner Owner, id ID) error {
	if err := id.check(); err != nil {
		return err
	}
	s := m.sessions.get(key{owner, id})
	if s == nil {
		_, err := m.records.info(key{owner, id})
		return err
	}
	if <-s.opened; s.openErr != nil {
		return s.openErr
	}
	if !m.sleep(s, nil) {
		return fault.New(fault.Conflict, "the session %q is in use", id).WithHint("wait for what runs in it")
	}
	return nil
}

// makeRoom puts the session to sleep that was not used for longest, of an owner
// or of all when it is "", and reports whether there was one.
func (m *Manager) makeRoom(o Owner, but *session) bool {
	all := slices.DeleteFunc(m.sessions.open(o), func(s *session) bool { return s == but })
	used := map[*session]time.Time{}
	for _, s := range all {
		used[s] = s.lastUsed()
	}
	slices.SortFunc(all, func(a, b *session) int { return cmp.Or(used[a].Compare(used[b]), cmp.Compare(a.id, b.id)) })
	return slices.ContainsFunc(all, func(s *session) bool { return m.sleep(s, nil) })
}

// room makes sure that one more session may be open, putting others to sleep
// for it. It does not hold the place.
func (m *Manager) room(o Owner) error {
	for {
		mine, all := m.sessions.count(o)
		switch {
		case mine >= m.config.MaxPerOwner:
			if m.makeRoom(o, nil) {
				continue
			}
			full := *fault.New(fault.Exhausted, "%d sessions are in use at once, and no more are allowed", mine).
				WithHint("wait until what runs in one of them has ended; the operator can raise sessions.max_sessions_per_client")
			full.RetryAfter = retrySoon
			return &full
		case all >= m.config.MaxSessions:
			if m.makeRoom("", nil) {
				continue
			}
			full := *fault.New(fault.Exhausted, "the server has %d sessions in use already, and no more are allowed", all).
				WithHint("use a session that you have, or try again later; the operator can raise limits.max_sessions")
			full.RetryAfter = retrySoon
			return &full
		}
		return nil
	}
}
