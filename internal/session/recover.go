package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"paddock/internal/blob"
	"paddock/internal/history"
	"paddock/internal/sandbox"
	"paddock/internal/workspace"
)

// recover makes a session that is being opened what its last checkpoint says.
// clean tells that the process that had it let go of it: then files that are
// different were changed by a person, and are taken up. Else a program may have
// been running: what it wrote is taken back.
func (s *session) recover(clean bool) error {
	s.keeping.Lock()
	defer s.keeping.Unlock()
	if s.passing() {
		s.kept.head = new(history.Manifest)
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), keepTime)
	defer cancel()
	head, skipped, err := s.kept.line.Head(s.usable)
	if err != nil {
		return err
	}
	if last := s.record.Head; skipped == nil && (head == nil && last > 0 || head != nil && last > head.Number) {
		skipped = fmt.Errorf("checkpoint %d: %w: it is not there", last, history.ErrDamaged)
	}
	if skipped != nil {
		s.manager.log.Error("a session's newest checkpoint is damaged", "session", s.id, "cause", skipped)
		s.news = "The session's newest checkpoint is damaged: this is its state of an earlier call, as far as that is there."
	}
	s.kept.head = head
	if head != nil && head.At.After(s.record.LastUsedAt) { // or it expires before the call that opens it
		s.record.LastUsedAt = head.At
	}
	if err := s.readLists(); err != nil {
		return err
	}
	d, err := s.draft(ctx, causeFiles)
	if err != nil {
		return err
	}
	defer d.close()
	switch {
	case head == nil: // nothing was ever kept, or nothing is left of it
		for runtime := range s.record.Runtimes {
			s.lost[runtime] = "no checkpoint of it is there"
		}
		d.next.Cause = causeCreate
		err = d.capture(nil)
		d.changed = true
	case clean && skipped == nil:
		err = d.capture(nil)
	default:
		err = s.takeBack(d, head)
	}
	if err != nil || !d.changed {
		return err
	}
	return d.commit(ctx)
}

// takeFilesBack makes the files what they were before a run that was stopped by
// force or crashed, as its interpreter is, and tells whether it did. A program
// that ended its interpreter by itself meant to leave what it wrote.
func (s *session) takeFilesBack(t *turn, exit sandbox.Exit) bool {
	if exit.State == sandbox.Kept || exit.Cause == sandbox.Exited || s.passing() {
		return false
	}
	s.keeping.Lock()
	defer s.keeping.Unlock()
	if s.kept.failed != nil {
		return false // head is older than what the interpreter went back to
	}
	if err := s.filesBack(true); err != nil {
		s.manager.log.ErrorContext(t.ctx, "files could not be brought back after a run", "session", s.id, "execution", t.execution, "cause", causeOf(err))
		s.kept.torn = true
		return false
	}
	s.refresh(t.ctx)
	return true
}

// refresh has live interpreters open their files anew, after files were brought
// back: what they have open may be what lay there before. One that cannot ends,
// and the next call goes on from the checkpoint. The caller holds s.keeping.
func (s *session) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refreshTime)
	defer cancel()
	for runtime, in := range s.live() {
		snapshotter, ok := in.(sandbox.Snapshotter)
		if !ok {
			continue
		}
		_, err := guard("refreshing", func() (struct{}, error) { return struct{}{}, snapshotter.Refresh(ctx) })
		if err == nil {
			continue
		}
		s.manager.log.WarnContext(ctx, "an interpreter could not open its files anew", "session", s.id, "runtime", runtime, "cause", causeOf(err))
		if s.kept.unsure[runtime] {
			s.news = join(s.news, "What the last call left in an interpreter ("+runtime+") is gone: its variables are as they were before it.")
			delete(s.kept.unsure, runtime)
		}
		s.drop(runtime, in)
		s.anew[runtime] = true
	}
}

// refreshTime bounds how long an interpreter may take to open its files anew: it
// may be being made anew just now.
const refreshTime = 10 * time.Second

// filesBack makes the files what they are at head; untorn: what looks as it did
// then is what it was then. The caller holds s.keeping.
func (s *session) filesBack(untorn bool) error {
	for name, tree := range s.trees() {
		want := s.kept.lists[name]
		if want == nil {
			continue // what it was cannot be read: nil would be an empty tree's
		}
		var known *workspace.Listing
		if untorn {
			known = want
		}
		list, _, err := tree.Apply(want, known, s.kept.blobs.Open)
		if err != nil {
			return err
		}
		s.kept.lists[name] = list
	}
	return nil
}

// readLists reads what the trees were at head. A list that is damaged is as
// good as none: the files are taken as they are.
func (s *session) readLists() error {
	s.kept.lists = map[string]*workspace.Listing{}
	if s.kept.head == nil {
		return nil
	}
	for name, ref := range s.kept.head.Trees {
		list, err := s.listing(ref)
		switch {
		case errors.Is(err, blob.ErrDamaged) || errors.Is(err, history.ErrDamaged):
			s.manager.log.Error("a list of files is damaged", "session", s.id, "cause", err)
			s.news = "The list of this session's files is damaged: the files are as they were found."
		case err != nil:
			return err
		default:
			s.kept.lists[name] = list
		}
	}
	return nil
}

// takeBack makes the files what head says, after a process that did not end as
// it should. What the interpreters drew from their generators of random numbers
// since may be out, so they get new seeds.
func (s *session) takeBack(d *draft, head *history.Manifest) error {
	d.next.Cause, d.next.Of, d.next.Previous = causeRecover, head.Of, head.Previous
	for name, tree := range s.trees() {
		want := s.kept.lists[name]
		if want == nil {
			if err := d.capture(nil); err != nil {
				return err
			}
			break
		}
		list, changes, err := tree.Apply(want, want, s.kept.blobs.Open)
		if errors.Is(err, blob.ErrDamaged) || errors.Is(err, blob.ErrMissing) {
			s.manager.log.Error("a file cannot be brought back", "session", s.id, "cause", causeOf(err))
			s.news = "The server ended unexpectedly, and not all files could be brought back: some are as they were found."
			if err := d.capture(nil); err != nil {
				return err
			}
			break
		}
		if err != nil {
			return fmt.Errorf("bringing the files back: %w", err)
		}
		d.lists[name] = list
		if len(changes) > 0 {
			if err := d.list(name, list); err != nil {
				return err
			}
			if s.news == "" {
				s.news = "The server ended unexpectedly: files and variables are as they were after the last call that was answered."
			}
		}
	}
	d.next.Interpreters = maps.Clone(head.Interpreters)
	for runtime, in := range d.next.Interpreters {
		in.Anew = true
		d.next.Interpreters[runtime], d.changed = in, true
	}
	return nil
}
