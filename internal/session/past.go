package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/sandbox"
	"paddock/internal/workspace"
)

var errPassing = fault.New(fault.Unsupported, "nothing is kept of this session").WithHint("it was made for one program; make another one with create_session, or with paddock run --keep")

var errRestored = fault.New(fault.Cancelled, "the session was taken back to an earlier state")

// Checkpoint keeps the session's state under a label, which may be empty; it
// waits for its turn. A labelled checkpoint stays until its session goes.
func (m *Manager) Checkpoint(ctx context.Context, owner Owner, id ID, label string) (c Checkpoint, err error) {
	if !utf8.ValidString(label) || utf8.RuneCountInString(label) > maxLabel {
		return Checkpoint{}, fault.New(fault.Invalid, "a label has at most %d characters", maxLabel)
	}
	if _, err := strconv.ParseInt(label, 10, 64); err == nil {
		return Checkpoint{}, fault.New(fault.Invalid, "a label that is a number would be taken for a checkpoint's id").WithHint("put a word into it")
	}
	s, t, err := m.join(ctx, owner, id, nil)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("waiting to make a checkpoint: %w", err)
	}
	defer s.leave(t)
	if s.passing() {
		return Checkpoint{}, errPassing
	}
	defer func() { m.told(ctx, Checkpointing, s, err) }()
	s.bury(t.ctx)
	if err := s.checkLabels(label); err != nil {
		return Checkpoint{}, err
	}
	lasting, cancel := lasting(t.ctx)
	defer cancel()
	if _, err := s.keep(lasting, note{cause: causeAsked, label: label, always: true}, s.live()); err != nil {
		return Checkpoint{}, err
	}
	s.keeping.Lock()
	defer s.keeping.Unlock()
	return describeCheckpoint(s.kept.head, s.kept.head), nil
}

// maxLabel bounds a label, in characters; maxLabels how many labelled
// checkpoints a session has.
const (
	maxLabel  = 100
	maxLabels = 200
)

func (s *session) checkLabels(label string) error {
	if label == "" {
		return nil
	}
	s.keeping.Lock()
	defer s.keeping.Unlock()
	n := s.kept.line.Labels()
	if n >= maxLabels {
		return fault.New(fault.Exhausted, "the session has %d checkpoints with labels, and no more are allowed", n).WithHint("fork the session, or leave the label away")
	}
	return nil
}

// live are the interpreters that live now.
func (s *session) live() map[string]sandbox.Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.interpreters)
}

// told tells of an action that is over.
func (m *Manager) told(ctx context.Context, a Action, s *session, err error) {
	m.record(ctx, Event{Action: a, Owner: s.owner, Session: s.id, Isolation: s.backendName(), Err: err})
}

// Checkpoints lists what can be gone back to, the oldest first.
func (m *Manager) Checkpoints(owner Owner, id ID) ([]Checkpoint, error) {
	s, done, err := m.use(owner, id)
	if err != nil {
		return nil, err
	}
	defer done()
	s.keeping.Lock()
	defer s.keeping.Unlock()
	var all []Checkpoint
	for _, n := range s.kept.line.Numbers() {
		c, err := s.checkpoint(n)
		switch {
		case errors.Is(err, history.ErrDamaged):
			m.log.Warn("a checkpoint cannot be read", "session", s.id, "checkpoint", n, "cause", err)
			continue
		case err != nil:
			return nil, unusable(err)
		case c.Of == c.Number:
			all = append(all, describeCheckpoint(c, s.kept.head))
		}
	}
	return all, nil
}

func describeCheckpoint(m, head *history.Manifest) Checkpoint {
	c := Checkpoint{
		ID: strconv.FormatInt(m.Number, 10), Label: m.Label, CreatedAt: m.At, Cause: m.Cause, Current: m.Number == head.Of,
		Execution: m.Execution, Language: m.Language, Code: m.Code, Bytes: m.Bytes,
		Variables: variableChangesOf(m.Variables), Files: fileChangesOf(m.Files),
	}
	if m.Previous > 0 {
		c.Previous = strconv.FormatInt(m.Previous, 10)
	}
	return c
}

func variableChangesOf(list []history.Change) []VariableChange {
	changes := make([]VariableChange, 0, len(list))
	for _, c := range list {
		changes = append(changes, VariableChange{Name: c.Name, Change: c.Change})
	}
	return changes
}

func fileChangesOf(list []history.Change) []Change {
	changes := make([]Change, 0, len(list))
	for _, c := range list {
		changes = append(changes, Change{Path: c.Name, Change: c.Change, Size: c.Size})
	}
	return changes
}

// Restore brings variables and files back to what they were at a checkpoint,
// named by its id or its label (the latest of that label), after stopping what
// runs and waits. What was current can be restored in turn.
func (m *Manager) Restore(ctx context.Context, owner Owner, id ID, checkpoint string) (Restored, error) {
	if checkpoint == "" {
		return Restored{}, fault.New(fault.Invalid, "it is not said which checkpoint").WithHint("list the checkpoints and give the id or the label of one")
	}
	return m.back(ctx, owner, id, func(s *session) (*history.Manifest, error) { return s.find(checkpoint) })
}

// Undo restores the checkpoint before the current one.
func (m *Manager) Undo(ctx context.Context, owner Owner, id ID) (Restored, error) {
	return m.back(ctx, owner, id, func(s *session) (*history.Manifest, error) {
		if s.kept.head.Previous == 0 {
			return nil, fault.New(fault.Conflict, "there is nothing to undo").WithHint("the session is at its first checkpoint")
		}
		target, err := s.checkpoint(s.kept.head.Previous)
		if fault.KindOf(err) == fault.NotFound {
			return nil, fault.New(fault.Conflict, "the checkpoint before this one is no longer kept").WithHint("restore one that is listed")
		}
		if errors.Is(err, history.ErrDamaged) {
			return nil, damaged(err)
		}
		return target, err
	})
}

// checkpoint reads one of the session's; one of another session is a
// history.ErrDamaged. The caller holds s.keeping.
func (s *session) checkpoint(number int64) (*history.Manifest, error) {
	m, err := s.kept.line.Get(number)
	if err == nil {
		err = s.mine(m)
	}
	return m, err
}

func (s *session) mine(m *history.Manifest) error {
	if m.Owner != string(s.owner) || m.Session != string(s.id) {
		return fmt.Errorf("%w: it is another session's", history.ErrDamaged)
	}
	return nil
}

// find gives the checkpoint that is called so. The caller holds s.keeping.
func (s *session) find(name string) (*history.Manifest, error) {
	if n, err := strconv.ParseInt(name, 10, 64); err == nil {
		target, err := s.checkpoint(n)
		switch {
		case errors.Is(err, history.ErrDamaged):
			return nil, damaged(err)
		case err == nil && target.Of != n: // it only says that the session went back
			return nil, fault.New(fault.NotFound, "there is no checkpoint %d", n).WithHint("list the checkpoints")
		}
		return target, err
	}
	for _, n := range slices.Backward(s.kept.line.Numbers()) {
		if !s.kept.line.Labelled(n) {
			continue
		}
		target, err := s.checkpoint(n)
		switch {
		case errors.Is(err, history.ErrDamaged):
			return nil, damaged(err) // its label may be this one
		case err != nil:
			return nil, unusable(err)
		case target.Label == name:
			return target, nil
		}
	}
	return nil, fault.New(fault.NotFound, "there is no checkpoint with the label %q", name).WithHint("list the checkpoints and give the id or the label of one")
}

func damaged(err error) error {
	return fault.New(fault.Unavailable, "the checkpoint is damaged and cannot be used").WithHint("restore another one; the server's log says more").WithCause(err)
}

// back takes a session to the checkpoint that choose gives, with s.keeping held.
func (m *Manager) back(ctx context.Context, owner Owner, id ID, choose func(*session) (*history.Manifest, error)) (r Restored, err error) {
	s, t, err := m.join(ctx, owner, id, errRestored)
	if err != nil {
		return Restored{}, fmt.Errorf("waiting to restore the session: %w", err)
	}
	defer s.leave(t)
	if s.passing() {
		return Restored{}, errPassing
	}
	defer func() { m.told(ctx, Restoring, s, err) }()
	notice := ""
	if s.lastKeep(t.ctx) != nil { // else undo leads to before what was done last
		notice = "What the call before this left could not be kept: it is gone, and cannot be restored."
	}
	// What has begun is done whole, whoever hangs up.
	ctx, cancel := lasting(t.ctx)
	defer cancel()
	s.keeping.Lock()
	defer s.keeping.Unlock()
	target, err := choose(s)
	if err != nil {
		return Restored{}, err
	}
	if err := s.usable(target); err != nil {
		return Restored{}, damaged(err)
	}
	was := s.kept.head
	d, err := s.draftOver(ctx, causeRestore)
	if err != nil {
		return Restored{}, err
	}
	defer d.close()
	if err := d.become(target, was); err != nil {
		d.undo()
		if errors.Is(err, blob.ErrDamaged) || errors.Is(err, blob.ErrMissing) {
			err = damaged(err)
		}
		return Restored{}, fmt.Errorf("restoring the session: %w", err)
	}
	if err := d.commit(ctx); err != nil {
		d.undo()
		return Restored{}, err
	}
	s.goBack(ctx, was, target)
	s.refresh(ctx)
	s.setKept(nil)
	notice, s.news = join(s.news, notice), ""
	r = Restored{Checkpoint: describeCheckpoint(target, s.kept.head), Undone: strconv.FormatInt(was.Of, 10), Changes: changesOf(d.files), Variables: variableChangesOf(s.kept.head.Variables), Notice: notice}
	return r, nil
}

// usable tells whether all that a checkpoint needs is there.
func (s *session) usable(m *history.Manifest) error {
	if err := s.mine(m); err != nil {
		return err
	}
	return s.kept.blobs.Check(slices.Collect(m.Refs()))
}

// mend brings files back to the head that a failure left torn. The caller holds
// s.keeping.
func (s *session) mend() error {
	if !s.kept.torn {
		return nil
	}
	if err := s.filesBack(false); err != nil {
		return fault.New(fault.Unavailable, "the session's files are not whole since a restore failed, and cannot be brought back now").
			WithHint("try again; restore another checkpoint if it stays so; the server's log says more").WithCause(err)
	}
	s.kept.torn = false
	return nil
}

// whole is mend for who does not hold s.keeping.
func (s *session) whole() error {
	s.keeping.Lock()
	defer s.keeping.Unlock()
	return s.mend()
}

// listing reads a kept one; that of the zero Ref is empty.
func (s *session) listing(ref blob.Ref) (*workspace.Listing, error) {
	if ref == (blob.Ref{}) {
		return new(workspace.Listing), nil
	}
	return readListing(s.kept.blobs, ref)
}

// maxListing bounds a list of files: some hundred thousand of usual names.
const maxListing = 64 << 20

func readListing(store *blob.Store, ref blob.Ref) (*workspace.Listing, error) {
	data, err := store.Load(ref, maxListing)
	if err != nil {
		return nil, fmt.Errorf("reading a list of files: %w", err)
	}
	list := new(workspace.Listing)
	if err := list.UnmarshalBinary(data); err != nil {
		return nil, fmt.Errorf("reading a list of files: %w: %w", history.ErrDamaged, err)
	}
	return list, nil
}

// sameState tells whether two interpreters hold the same.
func sameState(a, b history.Interpreter) bool { return slices.Equal(a.Layers, b.Layers) }

// goBack brings the live interpreters to where the session is now. One that
// cannot go there by itself ends: the next call begins from what is on disk.
func (s *session) goBack(ctx context.Context, was, target *history.Manifest) {
	for runtime, in := range s.live() {
		want, there := target.Interpreters[runtime]
		if there && !s.kept.unsure[runtime] && sameState(want, was.Interpreters[runtime]) {
			continue
		}
		delete(s.lost, runtime)
		delete(s.kept.unsure, runtime)
		snapshotter, ok := in.(sandbox.Snapshotter)
		if there && ok {
			_, err := guard("rewinding", func() (struct{}, error) { return struct{}{}, snapshotter.Rewind(ctx, want.Mark) })
			if err == nil {
				continue
			}
		}
		s.drop(runtime, in)
	}
	clear(s.kept.unsure)
	clear(s.lost) // what was gone is here again, or was not here yet
}

// changesOf are changes as results show them.
func changesOf(list []workspace.Change) []Change {
	var all []Change
	for _, c := range list {
		all = append(all, Change{Path: c.Path, Change: c.Change, Size: c.Size})
	}
	return all
}
