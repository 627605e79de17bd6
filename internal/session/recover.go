package session

import (
	"context"
	"fmt"
	"strings"
	"time"

	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/sandbox"
)

// recoverState makes a session that is being opened what its last checkpoint
// says. clean tells that the process that had it let go of it: then files that are
// different were changed by a person, and are taken up. Else a program may have
// been running: what it wrote is taken back.
func (s *session) recoverState(clean bool) error {
	s.checkpoints.mu.Lock()
	defer s.checkpoints.mu.Unlock()
	if s.isEphemeral() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), keepTime)
	defer cancel()
	skipped, unlisted, err := s.checkpoints.repo.OpenHead(s.record.Head)
	if err != nil {
		return err
	}
	switch {
	case unlisted:
		s.addNotice("The list of this session's files is damaged: the files are as they were found.")
	case skipped != nil:
		s.addNotice("The session's newest checkpoint is damaged: this is its state of an earlier call, as far as that is there.")
	}
	head := s.checkpoints.repo.Head()
	if head.At.After(s.record.LastUsedAt) { // or it expires before the call that opens it
		s.record.LastUsedAt = head.At
	}
	for _, runtime := range s.record.Unkept {
		if s.residence.comesBack(head, runtime) {
			continue
		}
		s.lostReasons[runtime] = "its machine was stopped meanwhile, and " + filesOnly
	}
	if head.Number == 0 { // nothing was ever kept, or nothing is left of it
		for runtime := range s.record.Runtimes {
			s.lostReasons[runtime] = "no checkpoint of it is there"
		}
	}
	changed, partly, err := s.checkpoints.repo.Recover(ctx, clean && skipped == nil)
	s.noteWaiting()
	s.interrupted(head)
	switch {
	case partly:
		s.addNotice("The server ended unexpectedly, and not all files could be brought back: some are as they were found.")
	case !changed || unlisted || skipped != nil: // that it is another state was said already
	case !s.residence.keepsVariables():
		s.addNotice("The server ended unexpectedly: files are as they were after the last call that was answered.")
	default:
		s.addNotice("The server ended unexpectedly: files and variables are as they were after the last call that was answered.")
	}
	return err
}

// interrupted deals with a run that waited, or was gone on with, at the checkpoint that
// the session was opened at, if there was one. The caller holds checkpoints.mu.
func (s *session) interrupted(head *history.Manifest) {
	w := head.Waiting
	if w == nil || s.checkpoints.repo.Head().Waits() != nil {
		return
	}
	s.ended = w.Execution
	if w.Begun {
		s.addNotice(fmt.Sprintf("The run %s, which had waited for a person and went on, was interrupted when the server ended: it does not go on, and what it called since may have been done.", w.Execution))
	} else if !head.Holds(w.Runtime) {
		s.addNotice(fmt.Sprintf("The run %s, which waited for a person, cannot go on: other code ran in its machine since, and that was not saved when the server ended.", w.Execution))
	} else {
		s.addNotice(fmt.Sprintf("The run %s, which waited for a person, cannot go on: the session's newest checkpoint is damaged.", w.Execution))
	}
}

// askInterruptedCalls has the next result tell what runs called that ended with the process which
// had the session before: it is nobody else's now, so none of them goes on. told is to be
// called when the session's record is on disk.
func (s *session) askInterruptedCalls() (told func()) {
	tools := s.manager.config.Tools
	if tools == nil {
		return func() {}
	}
	waiting := ""
	if w := s.suspension.waits(); w != nil {
		waiting = w.Execution
	}
	told, err := guard("asking for runs that were cut short", func() (func(), error) {
		news, told := tools.Interrupted(s.owner, s.id, waiting)
		if !strings.Contains(s.calls, news) {
			s.calls = joinNotices(s.calls, news)
		}
		return told, nil
	})
	if err != nil {
		s.manager.log.Error("what runs called that were cut short cannot be told", "session", s.id, "cause", fault.CauseOf(err))
		return func() {}
	}
	return told
}

// refresh has live interpreters open their files again, after files were brought
// back: what they have open may be what lay there before. One that cannot ends,
// and the next call goes on from the checkpoint. The caller holds checkpoints.mu.
func (i *interpreters) refresh(ctx context.Context) {
	s := i.s
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refreshTime)
	defer cancel()
	s.checkpoints.repo.NeedsRepair() // it is done now
	for runtime, in := range i.list() {
		snapshotter, ok := in.(sandbox.Snapshotter)
		if !ok {
			continue
		}
		_, err := guard("refreshing", func() (struct{}, error) { return struct{}{}, snapshotter.Refresh(ctx) })
		if err == nil {
			continue
		}
		s.manager.log.WarnContext(ctx, "an interpreter could not reopen its files", "session", s.id, "runtime", runtime, "cause", fault.CauseOf(err))
		if s.checkpoints.dirty[runtime] {
			s.addNotice("What the last call left in an interpreter (" + runtime + ") is gone: its variables are as they were before it.")
			delete(s.checkpoints.dirty, runtime)
		}
		i.drop(runtime, in)
		if w := s.checkpoints.repo.Head().Waits(); w == nil || w.Runtime != runtime { // else nothing has run in it
			i.mustReseed[runtime] = true
		}
	}
}

// refreshTime bounds how long an interpreter may take to open its files again: it
// may be being made again just now.
const refreshTime = 10 * time.Second
