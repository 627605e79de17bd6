package session

import (
	"context"
	"errors"
	"io/fs"
	"strconv"

	"paddock/internal/fault"
	"paddock/internal/history"
)

// Checkpoints lists what can be gone back to, the oldest first. It opens no
// session and wakes none: of one that is not open here it reads what is on disk,
// whoever has it.
func (m *Manager) Checkpoints(owner Owner, id ID) ([]Checkpoint, error) {
	if err := id.check(); err != nil {
		return nil, err
	}
	k := key{owner, id}
	m.mu.Lock()
	s, closed := m.sessions[k], m.closed
	m.mu.Unlock()
	if closed {
		return nil, errShutdown
	}
	if s != nil {
		if <-s.opened; s.openErr == nil {
			all, err := s.checkpoints()
			if !errors.Is(err, errAsleep) {
				return all, err
			}
			<-s.closed
		}
	}
	return m.checkpointsOnDisk(k)
}

func (s *session) checkpoints() ([]Checkpoint, error) {
	done, err := s.hold()
	if err != nil {
		return nil, err
	}
	defer done()
	s.keeping.Lock()
	defer s.keeping.Unlock()
	all, err := s.kept.describe(s.kept.head)
	if err != nil {
		return nil, unusable(err)
	}
	return all, nil
}

// mostReadings bounds how often a line is read that somebody changes meanwhile.
const mostReadings = 10

// checkpointsOnDisk is Checkpoints for a session that this process does not have
// open: the one that has it may be giving some up just now.
func (m *Manager) checkpointsOnDisk(k key) (all []Checkpoint, err error) {
	for range mostReadings {
		if _, err := m.readRecord(k); err != nil {
			return nil, err
		}
		s := newSession(m, k)
		if err := s.openKept(); err != nil {
			return nil, unusable(err)
		}
		head, _, err := s.kept.line.Head(s.kept.usable)
		if err == nil {
			all, err = s.kept.describe(head)
		}
		switch {
		case err == nil:
			return all, nil
		case !errors.Is(err, fs.ErrNotExist):
			return nil, unusable(err)
		}
	}
	return nil, fault.New(fault.Conflict, "the checkpoints of the session %q change while they are read", k.id).WithHint("try again")
}

// describe describes all that can be gone back to; head is where the session is,
// nil: nowhere.
func (k *kept) describe(head *history.Manifest) (all []Checkpoint, err error) {
	if head == nil {
		head = new(history.Manifest)
	}
	for _, n := range k.line.Numbers() {
		c, err := k.at(n)
		switch {
		case errors.Is(err, history.ErrDamaged):
			k.log.Warn("a checkpoint cannot be read", "checkpoint", n, "cause", err)
			continue
		case err != nil:
			return nil, err
		case c.Of == c.Number:
			all = append(all, describeCheckpoint(c, head))
		}
	}
	return all, nil
}

// Unlabel takes a label off: of all checkpoints that have it, or of the one that
// is named by its id. From then on they may be given up as others are. It gives
// their ids, the oldest first, and waits for no program.
func (m *Manager) Unlabel(ctx context.Context, owner Owner, id ID, checkpoint string) (ids []string, err error) {
	if checkpoint == "" {
		return nil, fault.New(fault.Invalid, "it is not said which label").WithHint("list the checkpoints and give the label or the id of one")
	}
	s, done, err := m.use(owner, id)
	if err != nil {
		return nil, err
	}
	defer done()
	if s.passing() {
		return nil, errPassing
	}
	defer func() { m.told(ctx, Unlabelling, s, err) }()
	s.keeping.Lock()
	defer s.keeping.Unlock()
	if s.kept.closed {
		return nil, errNotFound(id)
	}
	numbers, err := s.kept.labelled(checkpoint)
	if err != nil {
		return nil, err
	}
	for _, n := range numbers {
		if err := s.kept.line.Unlabel(n); err != nil {
			return ids, unusable(err)
		}
		ids = append(ids, strconv.FormatInt(n, 10))
	}
	s.pruneLocked(m.config.Checkpoints)
	return ids, nil
}

// labelled gives the numbers of the checkpoints with a label, or that of the one
// with this number if it has any.
func (k *kept) labelled(name string) (numbers []int64, err error) {
	for _, n := range k.line.Numbers() {
		if !k.line.Labelled(n) {
			continue
		}
		if name == strconv.FormatInt(n, 10) { // which is no label; it need not be whole
			return []int64{n}, nil
		}
		c, err := k.at(n)
		switch {
		case errors.Is(err, history.ErrDamaged):
			continue
		case err != nil:
			return nil, unusable(err)
		case c.Label == name:
			numbers = append(numbers, n)
		}
	}
	if len(numbers) == 0 {
		return nil, fault.New(fault.NotFound, "there is no checkpoint with the label %q", name).WithHint("list the checkpoints and give the label or the id of one")
	}
	return numbers, nil
}
