package session

import (
	"errors"
	"time"

	"paddock/internal/fault"
	"paddock/internal/lock"
)

// Life shows other processes that this one, or one that it started, may still
// write into sessions' files: whoever takes over a session of a process that was
// killed waits until its life has ended.
type Life = lock.Liveness

// NewLife begins one in a state folder.
func NewLife(dir string) (*Life, error) { return lock.NewLiveness(dir) }

// lifeTimeout bounds the wait for the workers of a process that was killed:
// they end when they notice, within milliseconds as a rule. Where a machine's memory goes
// back while others want the processor, that takes seconds.
const lifeTimeout = 20 * time.Second

// waitForEnd waits until nothing is left of the process that had a session.
func (m *Manager) waitForEnd(r record) error {
	if r.Life == m.config.Life.Name() {
		return nil
	}
	err := lock.Await(m.config.Dir, r.Life, lifeTimeout)
	if errors.Is(err, lock.ErrHeld) {
		return fault.New(fault.Conflict, "the session %q was another process's, which has ended, but not all that it started has", r.ID).
			WithHint("try again; if it stays so, end the processes called paddock-worker")
	}
	return err
}
