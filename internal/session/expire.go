package session

import "time"

// tellExpired tells of a session that the janitor began to remove.
func (j *janitor) tellExpired(s *session) {
	m := j.m
	m.log.Info("session expired", "session", s.id)
	m.record(m.ctx, Event{Action: Destroying, Expired: true, Owner: s.owner, Session: s.id, Isolation: s.backendName()})
}

// expire destroys the open sessions whose time is over, and gives the time
// until it should look again.
func (j *janitor) expire(now time.Time) time.Duration {
	m := j.m
	rest := maxRest
	for _, s := range m.sessions.list("") {
		overdue := func() bool { return s.turns.unusedLocked() && !now.Before(s.expiresAt()) }
		if m.destroy(s, errExpired, overdue) {
			j.tellExpired(s)
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
func (j *janitor) sweep(now time.Time, whole bool) (expired int) {
	for k := range j.m.store.Expired(j.m.ctx, now, whole) {
		if j.removeExpired(keyOf(k), now) {
			expired++
		}
	}
	return expired
}

func (j *janitor) removeExpired(k key, now time.Time) bool {
	m := j.m
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
