package session

import (
	"context"
	"errors"
	"io/fs"
	"strconv"

	"paddock/internal/fault"
)

// Checkpoints lists what can be gone back to, the oldest first. It opens no
// session and wakes none: of one that is not open here it reads what is on disk,
// whoever has it.
func (m *Manager) Checkpoints(owner Owner, id ID) (all []Checkpoint, err error) {
	err = m.look(owner, id, func(c *checkpoints) (err error) {
		all, err = c.describe()
		return err
	})
	return all, err
}

// look has read look at a session's checkpoints, without opening or waking it. It may be
// called again where somebody changes them meanwhile.
func (m *Manager) look(owner Owner, id ID, read func(*checkpoints) error) error {
	if err := id.check(); err != nil {
		return err
	}
	k := key{owner, id}
	s, err := m.sessions.lookup(k)
	if err != nil {
		return err
	}
	if s != nil {
		if <-s.opened; s.openErr == nil {
			err := s.checkpoints.look(read)
			if !errors.Is(err, errAsleep) {
				return err
			}
			<-s.turns.closed
		}
	}
	return m.lookAsleep(k, read)
}

func (c *checkpoints) look(read func(*checkpoints) error) error {
	s := c.s
	done, err := s.turns.hold()
	if err != nil {
		return err
	}
	defer done()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := read(c); err != nil {
		return unusable(err)
	}
	return nil
}

// mostReadings bounds how often a line is read that somebody changes meanwhile.
const mostReadings = 10

// lookAsleep is look for a session that this process does not have open: the one that has
// it may be giving some up just now.
func (m *Manager) lookAsleep(k key, read func(*checkpoints) error) error {
	for range mostReadings {
		if _, err := m.store.Read(k.stored()); err != nil {
			return err
		}
		s := newSession(m, k)
		if err := s.checkpoints.open(); err != nil {
			return unusable(err)
		}
		err := s.checkpoints.repo.Check()
		if err == nil {
			err = read(&s.checkpoints)
		}
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, fs.ErrNotExist):
			return unusable(err)
		}
	}
	return fault.New(fault.Conflict, "the checkpoints of the session %q change while they are read", k.id).WithHint("try again")
}

// describe describes all that can be gone back to. The caller holds s.checkpoints.mu.
func (c *checkpoints) describe() (all []Checkpoint, err error) {
	steps, err := c.repo.History()
	for _, step := range steps {
		all = append(all, describeCheckpoint(step, c.repo.Head()))
	}
	return all, err
}

// prune gives up the oldest checkpoints that have no label, where there are more
// than most.
func (c *checkpoints) prune(most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.repo.Prune(most)
}

// Unlabel takes a label off: of all checkpoints that have it, or of the one that
// is named by its id. From then on they may be given up as others are. It gives
// their ids, the oldest first, and waits for no program.
func (m *Manager) Unlabel(ctx context.Context, owner Owner, id ID, name string) (ids []string, err error) {
	if name == "" {
		return nil, fault.New(fault.Invalid, "it is not said which label").WithHint("list the checkpoints and give the label or the id of one")
	}
	s, done, err := m.use(owner, id)
	if err != nil {
		return nil, err
	}
	defer done()
	if s.isEphemeral() {
		return nil, errEphemeral
	}
	defer func() { m.recordAction(ctx, Unlabelling, s, err) }()
	s.checkpoints.mu.Lock()
	defer s.checkpoints.mu.Unlock()
	numbers, err := s.checkpoints.repo.Unlabel(name)
	for _, n := range numbers {
		ids = append(ids, strconv.FormatInt(n, 10))
	}
	if err != nil {
		return ids, unusable(err)
	}
	return ids, nil
}
