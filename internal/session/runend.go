package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"paddock/internal/checkpoint"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// end deals with a program that has ended.
func (r *run) end(exit sandbox.Exit, wall time.Duration) Result {
	s, t := r.s, r.t
	gone, notice := overtaken(context.Cause(t.ctx)), ""
	if gone == "" {
		notice = s.notice(r.p.runtime.Name, exit, r.rollBackFiles(exit))
		switch context.Cause(t.ctx) {
		case errRestored:
			notice = joinNotices(notice, "The session was then taken back to an earlier state.")
		case errHalted:
			notice = joinNotices(notice, "The session was then stopped: nothing runs in it any more. Files in /workspace are there.")
		}
	} else {
		exit.State, notice = sandbox.Fresh, gone
	}
	res := r.result(exit, wall, notice)
	live := r.accountFor(exit)
	if gone == "" {
		r.ended(&res)
		r.keep(live, &res)
	}
	return res
}

// ended puts away what the result has no room for.
func (r *run) ended(res *Result) {
	r.file(&r.stdout, &res.StdoutStream, "stdout.txt", res.Stdout)
	r.file(&r.stderr, &res.StderrStream, "stderr.txt", res.Stderr)
	if r.req.Ended != nil {
		r.req.Ended(*res, r.putFile)
	}
}

// keep makes the checkpoint after a run, now or later, and fills in what it says. live are
// the interpreters whose state is to be kept.
func (r *run) keep(live map[string]sandbox.Instance, res *Result) {
	s, t := r.s, r.t
	if s.isEphemeral() || r.req.Look {
		r.noteChanges(res)
		return
	}
	if s.manager.config.AsyncCheckpoint {
		r.noteChanges(res)
		out := r.output(res)
		t.later = func() {
			if _, err := r.checkpointOver(live, out); err != nil {
				s.addNotice(r.noticeNotSaved(err))
			} else if told := s.checkpoints.noteMissing(); told != "" {
				s.addNotice(told)
			}
		}
		return
	}
	changes, err := r.checkpointOver(live, r.output(res))
	res.Changes = changes
	switch {
	case err == nil:
		res.Notice = joinNotices(res.Notice, s.checkpoints.noteMissing())
	case !r.interpreterDied(live, res):
		res.Notice = joinNotices(res.Notice, r.noticeNotSaved(err))
	}
}

// noteChanges fills in the files that differ since the run began, where no checkpoint says so.
func (r *run) noteChanges(res *Result) {
	after, err := r.s.tree.Snapshot()
	if err != nil {
		r.s.manager.log.WarnContext(r.t.ctx, "the workspace cannot be looked at", "session", r.s.id, "execution", r.t.execution, "cause", fault.CauseOf(err))
		return
	}
	res.Changes = changesOf(r.before.Changes(after))
}

// checkpointOver makes the checkpoint of a run that is over.
func (r *run) checkpointOver(live map[string]sandbox.Instance, out *checkpoint.Output) ([]Change, error) {
	n := r.p.note(r.t)
	n.Output = out
	n.Over = r.s.suspension.isIn(r.p.runtime.Name)
	return r.checkpoint(n, live)
}

// checkpoint makes a checkpoint of the run, and gives the files that it changed.
func (r *run) checkpoint(n checkpoint.Note, live map[string]sandbox.Instance) ([]Change, error) {
	s, t := r.s, r.t
	_, keeping := s.span(t.ctx, "checkpoint")
	ctx, cancel := lasting(t.ctx)
	defer cancel()
	files, err := s.checkpoints.keep(ctx, n, live)
	endSpan(keeping, err)
	s.noteUnsaved()
	s.noteTraffic()
	if err := s.save(); err != nil {
		s.manager.log.Warn("a session's record cannot be written", "session", s.id, "cause", err)
	}
	return changesOf(files), err
}

// interpreterDied reports whether an interpreter ended before what its run left was kept. Then
// all is as it was before the run, and the result says so.
func (r *run) interpreterDied(live map[string]sandbox.Instance, res *Result) bool {
	s, t, runtime := r.s, r.t, r.p.runtime.Name
	in := live[runtime]
	if in == nil || !hasEnded(in) {
		return false
	}
	s.interpreters.drop(runtime, in)
	s.interpreters.mustReseed[runtime] = true
	s.interpreters.lost(t.ctx, runtime, "its interpreter ended before what it held was kept")
	s.pending = ""
	res.Exit.Cause, res.Exit.Code, res.Exit.State = sandbox.Crashed, max(res.Exit.Code, 1), sandbox.Restored
	res.Changes = nil
	if res.Exit.Error == nil {
		res.Exit.Error = &sandbox.ProgramError{Type: "Crash", Message: "the interpreter ended right after the program"}
	}
	res.Notice = joinNotices(res.Notice, "The interpreter ended right after the program, before what that left could be kept: variables and files are as they were before this call.")
	if _, lost := s.lostReasons[runtime]; lost {
		res.Exit.State = sandbox.Fresh
		delete(s.lostReasons, runtime)
	}
	return true
}

// accountFor counts a run, once, and gives the interpreter whose state is to be kept: nil
// for one that is gone with its state.
func (r *run) accountFor(exit sandbox.Exit) map[string]sandbox.Instance {
	s, in, runtime := r.s, r.in, r.p.runtime.Name
	if exit.Usage.Memory > 0 { // else it counts what it may take
		s.manager.memory.Set(s.residence.holder(runtime), s.residence.memoryNow(exit.Usage.Memory))
	}
	live := map[string]sandbox.Instance{runtime: in}
	if exit.State == sandbox.Fresh {
		if keeps(in) {
			s.checkpoints.mu.Lock()
			s.checkpoints.dirty[runtime] = true
			s.checkpoints.mu.Unlock()
		}
		if hasEnded(in) { // the run took the interpreter with it
			s.interpreters.drop(runtime, in)
			s.interpreters.mustReseed[runtime] = true
			live[runtime] = nil
		}
	}
	s.mu.Lock()
	if !r.counted && !r.req.Look {
		s.record.Executions++
		if s.record.Runtimes == nil {
			s.record.Runtimes = map[string]int64{}
		}
		s.record.Runtimes[runtime]++
	}
	s.record.LastUsedAt = time.Now()
	s.mu.Unlock()
	r.counted = true
	s.residence.afterRun()
	return live
}

// rollBackFiles makes the files what they were before a run that was stopped by
// force or crashed, as its interpreter is, and reports whether it did. A program
// that ended its interpreter by itself meant to leave what it wrote.
func (r *run) rollBackFiles(exit sandbox.Exit) bool {
	s, t := r.s, r.t
	if exit.State == sandbox.Kept || exit.Cause == sandbox.Exited || s.isEphemeral() {
		return false
	}
	s.checkpoints.mu.Lock()
	defer s.checkpoints.mu.Unlock()
	if s.checkpoints.err != nil {
		return false // the head is older than what the interpreter went back to
	}
	if err := s.checkpoints.repo.RestoreFiles(); err != nil {
		s.manager.log.ErrorContext(t.ctx, "files could not be brought back after a run", "session", s.id, "execution", t.execution, "cause", fault.CauseOf(err))
		return false
	}
	s.interpreters.refresh(t.ctx)
	return true
}

// broken deals with a run that did not come to an end, and gives the fault.
func (r *run) broken(err error) error {
	s, t, runtime := r.s, r.t, r.p.runtime.Name
	s.interpreters.drop(runtime, r.in)
	s.interpreters.lost(t.ctx, runtime, "its interpreter failed in an earlier call")
	s.interpreters.mustReseed[runtime] = true
	rolledBack := r.rollBackFiles(sandbox.Exit{Cause: sandbox.Crashed, State: sandbox.Restored})
	s.manager.log.WarnContext(t.ctx, "an interpreter failed", "session", s.id, "execution", t.execution, "runtime", runtime, "cause", fault.CauseOf(err))
	err = failed("running a program", err)
	var f *fault.Error
	if _, lost := s.lostReasons[runtime]; rolledBack && !lost && errors.As(err, &f) {
		err = f.WithHint("run it again: variables and files are as they were before this call")
	}
	return err
}

// noticeNotSaved deals with a failure to keep after a run.
func (r *run) noticeNotSaved(err error) string {
	s, t := r.s, r.t
	s.manager.log.ErrorContext(t.ctx, "a checkpoint could not be kept", "session", s.id, "execution", t.execution, "cause", errors.Join(err, fault.CauseOf(err)))
	return describeUnsaved(err)
}

// putFile writes a file that shows what the run printed, showed or was given. It may be called
// from several goroutines.
func (r *run) putFile(name string, data []byte) (string, error) {
	return r.putFileFrom(name, bytes.NewReader(data), int64(len(data)))
}

// putFileFrom is putFile of so many bytes that src has.
func (r *run) putFileFrom(name string, src io.Reader, size int64) (string, error) {
	f, err := r.s.tree.Put(fmt.Sprintf("%s/%d-%s", Shown, r.number, name), src, size)
	return f.Path, err
}
