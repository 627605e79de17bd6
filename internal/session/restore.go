package session

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"unicode/utf8"

	"paddock/internal/checkpoint"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/sandbox"
	"paddock/internal/workspace"
)

var errEphemeral = fault.New(fault.Unsupported, "nothing is kept of this session").WithHint("it was made for one program; make another one with create_session, or with paddock run --keep")

var errRestored = fault.New(fault.Cancelled, "the session was taken back to an earlier state")

// Checkpoint keeps the session's state under a label, which may be empty; it
// waits for its turn. A labelled checkpoint stays until its session goes, or its
// label is taken off.
func (m *Manager) Checkpoint(ctx context.Context, owner Owner, id ID, label string) (c Checkpoint, err error) {
	if !utf8.ValidString(label) || utf8.RuneCountInString(label) > maxLabel {
		return Checkpoint{}, fault.New(fault.Invalid, "a label has at most %d characters", maxLabel)
	}
	if _, err := strconv.ParseInt(label, 10, 64); err == nil {
		return Checkpoint{}, fault.New(fault.Invalid, "a label that is a number would be taken for a checkpoint's id").WithHint("put a word into it")
	}
	s, t, err := m.takeTurn(ctx, owner, id, nil)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("waiting to make a checkpoint: %w", err)
	}
	defer s.turns.leave(t)
	if s.isEphemeral() {
		return Checkpoint{}, errEphemeral
	}
	defer func() { m.recordAction(ctx, Checkpointing, s, err) }()
	s.interpreters.reapDead(t.ctx)
	if err := s.checkpoints.checkLabels(label); err != nil {
		return Checkpoint{}, err
	}
	lasting, cancel := lasting(t.ctx)
	defer cancel()
	n, notice := checkpoint.Note{Cause: history.CauseAsked, Label: label, Always: true, Save: s.residence.saver()}, ""
	_, err = s.checkpoints.keep(lasting, n, s.interpreters.list())
	if err != nil && n.Save != nil {
		s.manager.log.WarnContext(t.ctx, "a machine could not be saved", "session", s.id, "cause", fault.CauseOf(err))
		notice = "Only files are in this checkpoint: " + fault.Of(err).Message + "."
		n.Save = nil
		_, err = s.checkpoints.keep(lasting, n, s.interpreters.list())
	}
	if err != nil {
		return Checkpoint{}, err
	}
	s.interpreters.mustReseed[machineKey] = true // it goes on, so that what was saved is never simply gone on with
	s.noteUnsaved()
	if err := s.save(); err != nil {
		s.manager.log.WarnContext(t.ctx, "a session's record cannot be written", "session", s.id, "cause", err)
	}
	s.checkpoints.mu.Lock()
	defer s.checkpoints.mu.Unlock()
	c = describeCheckpoint(s.checkpoints.repo.Head(), s.checkpoints.repo.Head())
	c.Notice = notice
	return c, nil
}

// maxLabel bounds a label, in characters; maxLabels how many labelled
// checkpoints a session has.
const (
	maxLabel  = 100
	maxLabels = 200
)

func (c *checkpoints) checkLabels(label string) error {
	s := c.s
	if label == "" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.repo.Labels()
	if n >= maxLabels {
		return fault.New(fault.Exhausted, "the session has %d checkpoints with labels, and no more are allowed", n).WithHint("leave the label away, or take one off: paddock session checkpoint %s --remove LABEL", s.id)
	}
	return nil
}

// recordAction tells of an action that is over.
func (m *Manager) recordAction(ctx context.Context, a Action, s *session, err error) {
	m.record(ctx, Event{Action: a, Owner: s.owner, Session: s.id, Isolation: s.backendName(), Err: err})
}

func describeCheckpoint(m, head *history.Manifest) Checkpoint {
	c := Checkpoint{
		ID: strconv.FormatInt(m.Number, 10), Label: m.Label, CreatedAt: m.At, Cause: m.Cause, Current: m.Number == head.Of,
		Execution: m.Execution, Language: m.Language, Code: m.Code, Bytes: m.Bytes,
		Variables: variableChangesOf(m.Variables), Files: fileChangesOf(m.Files),
	}
	c.Memory = m.Machine != nil
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
func (m *Manager) Restore(ctx context.Context, owner Owner, id ID, name string) (Restored, error) {
	if name == "" {
		return Restored{}, fault.New(fault.Invalid, "no checkpoint was specified").WithHint("list the checkpoints and give the id or the label of one")
	}
	return m.restoreTo(ctx, owner, id, func(k *checkpoint.Repo) (*history.Manifest, error) { return k.Find(name) })
}

// Undo restores the checkpoint before the current one.
func (m *Manager) Undo(ctx context.Context, owner Owner, id ID) (Restored, error) {
	return m.restoreTo(ctx, owner, id, (*checkpoint.Repo).Previous)
}

// restoreTo takes a session to the checkpoint that choose gives.
func (m *Manager) restoreTo(ctx context.Context, owner Owner, id ID, choose func(*checkpoint.Repo) (*history.Manifest, error)) (r Restored, err error) {
	s, t, err := m.takeTurn(ctx, owner, id, errRestored)
	if err != nil {
		return Restored{}, fmt.Errorf("waiting to restore the session: %w", err)
	}
	defer s.turns.leave(t)
	if s.isEphemeral() {
		return Restored{}, errEphemeral
	}
	defer func() { m.recordAction(ctx, Restoring, s, err) }()
	// What has begun is done whole, whoever hangs up.
	ctx, cancel := lasting(t.ctx)
	defer cancel()
	waited := s.suspension.waits()
	if r, err = s.restoreTo(ctx, choose); err != nil {
		return Restored{}, err
	}
	if waited != nil {
		s.suspension.notifyAbandoned(waited.Execution)
		r.Notice = joinNotices(r.Notice, fmt.Sprintf("The run %s, which waited for a person, was given up.", waited.Execution))
	}
	return r, nil
}

// restoreTo is restoreTo's where what has begun is done.
func (s *session) restoreTo(ctx context.Context, choose func(*checkpoint.Repo) (*history.Manifest, error)) (r Restored, err error) {
	notice := ""
	if s.checkpoints.keepLast(ctx) != nil { // else undo leads to before what was done last
		notice = "What the call before this left could not be kept: it is gone, and cannot be restored."
	}
	s.checkpoints.mu.Lock()
	defer s.checkpoints.mu.Unlock()
	target, err := choose(s.checkpoints.repo)
	if err != nil {
		return Restored{}, unusable(err)
	}
	if err := s.checkpoints.repo.Verify(target); err != nil {
		return Restored{}, err
	}
	was := s.checkpoints.repo.Head()
	back, stopped := s.residence.beforeRestore(target)
	files, err := s.checkpoints.repo.RestoreTo(ctx, target, s.checkpoints.dirty)
	if err != nil {
		s.addNotice(stopped)
		for runtime := range back {
			if !s.checkpoints.repo.Head().Holds(runtime) && runtime != sandbox.CommandRuntime {
				s.lostReasons[runtime] = "its machine was stopped to go back to an earlier state, which did not work"
			}
		}
		return Restored{}, err
	}
	maps.DeleteFunc(s.lostReasons, func(runtime, _ string) bool { _, comes := back[runtime]; return comes })
	notice = joinNotices(joinNotices(notice, stopped), notInCheckpoint(s.checkpoints.repo.Missing()))
	s.residence.afterRestore(ctx, was, target)
	s.noteTraffic()
	s.egress.disconnect() // connections are not what the interpreters of then take them for
	s.interpreters.refresh(ctx)
	s.checkpoints.setKept(nil)
	notice = joinNotices(s.drainNotices(), notice)
	r = Restored{Checkpoint: describeCheckpoint(target, s.checkpoints.repo.Head()), Undone: strconv.FormatInt(was.Of, 10), Changes: changesOf(files), Variables: variableChangesOf(s.checkpoints.repo.Head().Variables), Notice: notice}
	return r, nil
}

// undone deals with files that were made different and are the head's again, or torn,
// as going elsewhere failed. What an earlier call left is not in the head, so it is
// not in the files either: it is given up. The caller holds checkpoints.mu.
func (c *checkpoints) undone(ctx context.Context) {
	s := c.s
	if c.repo.NeedsRepair() {
		defer s.interpreters.refresh(ctx)
	}
	if c.err == nil {
		return
	}
	s.interpreters.discardDirty("")
	s.addNotice("What an earlier call left could not be kept, and is gone: variables and files are as they were before that call.")
	c.setKept(nil)
}

// discardDirty ends the live interpreters that are not what head says, but for
// one: the next call begins from what is on disk. The caller holds checkpoints.mu.
func (i *interpreters) discardDirty(but string) {
	s := i.s
	for runtime, in := range i.list() {
		if s.checkpoints.dirty[runtime] && runtime != but {
			i.drop(runtime, in)
			i.mustReseed[runtime] = true
		}
	}
	clear(s.checkpoints.dirty)
}

// repairFiles brings files back to the head that a failure left torn, and has live
// interpreters see them.
func (c *checkpoints) repairFiles(ctx context.Context) error {
	s := c.s
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.repo.RepairFiles(); err != nil {
		return err
	}
	if c.repo.NeedsRepair() {
		s.interpreters.refresh(ctx)
	}
	return nil
}

// changesOf are changes as results show them.
func changesOf(list []workspace.Change) []Change {
	var all []Change
	for _, c := range list {
		all = append(all, Change{Path: c.Path, Change: c.Change, Size: c.Size})
	}
	return all
}

// onlyFilesIn is why variables are gone that a checkpoint did not bring back.
func onlyFilesIn(target *history.Manifest) string {
	if target.Machine != nil {
		return filesOnly
	}
	return fmt.Sprintf("checkpoint %d has only files; one that is asked for, before what may have to be undone, has variables too", target.Number)
}
