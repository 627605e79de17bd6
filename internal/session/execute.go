package session

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"paddock/internal/checkpoint"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/workspace"
)

var errInterrupted = fault.New(fault.Cancelled, "another call interrupted the execution")

var errStopped = fault.New(fault.Cancelled, "the execution was cancelled before it began")

// Execute runs a program in a session, after all that came before it. The
// program's own failure is in Result.Exit; an error says that it was not run,
// or not to its end. When ctx ends, the program is stopped or leaves the queue.
// What the program left is on disk when Execute returns, but for
// Config.KeepLater; where it could not be kept, the result's notice says so.
func (m *Manager) Execute(ctx context.Context, owner Owner, id ID, req Request) (Result, error) {
	if err := m.config.checkRequest(req); err != nil {
		return Result{}, err
	}
	for {
		s, err := m.find(owner, id)
		if err != nil {
			return Result{}, err
		}
		res, err := s.executeInTurn(ctx, req)
		if !errors.Is(err, errAsleep) {
			return res, err
		}
		<-s.turns.closed // it is opened again
	}
}

// executeInTurn runs a program when its turn has come.
func (s *session) executeInTurn(ctx context.Context, req Request) (Result, error) {
	m := s.manager
	p, err := s.plan(ctx, req)
	if err != nil {
		return Result{}, err
	}
	_, queue := s.span(ctx, "session.queue")
	defer queue.End() // the first End counts
	began := time.Now()
	var stop error
	if req.Interrupt {
		stop = errInterrupted
	} else if err := s.turns.errBusy(req.QueueTimeout); err != nil {
		return Result{}, err
	}
	t, err := s.turns.take(ctx, cmp.Or(req.Continue, newID("x-")), stop)
	if err != nil {
		return Result{}, fmt.Errorf("waiting in the session: %w", err)
	}
	defer func() { s.turns.finish(t) }()
	if err := cmp.Or(s.checkNotHalted(), m.disk.reclaim(t.ctx, s.owner)); err != nil { // it may have been stopped meanwhile
		return Result{}, err
	}
	release, err := m.config.admit(t.ctx, s.owner)
	if err != nil {
		return Result{}, fmt.Errorf("waiting to run: %w", err)
	}
	defer release()
	t.queued = time.Since(began)
	queue.End()
	if req.Started != nil {
		req.Started(t.execution)
	}
	return s.executeAudited(t, p, req)
}

// reconcile deals with what ended or failed since the last call: after that a program
// finds interpreters and files that belong together.
func (s *session) reconcile(ctx context.Context) error {
	s.reapDead(ctx)
	s.residence.beforeRun(ctx)
	return s.repairFiles(ctx)
}

// putFile writes a file that shows what the present execution printed, showed or was given.
func (s *session) putFile(name string, data []byte) (string, error) {
	return s.putFileFrom(name, bytes.NewReader(data), int64(len(data)))
}

// putFileFrom is put of so many bytes that src has.
func (s *session) putFileFrom(name string, src io.Reader, size int64) (string, error) {
	s.mu.Lock()
	number := s.number
	s.mu.Unlock()
	f, err := s.tree.Put(fmt.Sprintf("%s/%d-%s", Shown, number, name), src, size)
	return f.Path, err
}

// checkpointRun makes the checkpoint after a run, now or later, and fills in what it
// says.
func (s *session) checkpointRun(t *turn, p plan, live map[string]sandbox.Instance, before workspace.Snapshot, res *Result) {
	keep := func() ([]Change, error) {
		n := p.note(t)
		n.Over = s.waitsIn(p.runtime.Name)
		return s.checkpointNow(t, n, live)
	}
	if !s.manager.config.AsyncCheckpoint && !s.isEphemeral() {
		changes, err := keep()
		res.Changes = changes
		switch {
		case err == nil && !s.isEphemeral():
			res.Notice = joinNotices(res.Notice, s.notInCheckpoints())
		case err != nil && !s.interpreterDied(t, p.runtime.Name, live, res):
			res.Notice = joinNotices(res.Notice, s.noticeNotSaved(t, err))
		}
		return
	}
	if after, err := s.tree.Snapshot(); err != nil {
		s.manager.log.WarnContext(t.ctx, "the workspace cannot be looked at", "session", s.id, "execution", t.execution, "cause", fault.CauseOf(err))
	} else {
		res.Changes = changesOf(before.Changes(after))
	}
	if s.isEphemeral() {
		return
	}
	t.later = func() {
		if _, err := keep(); err != nil {
			s.addNotice(s.noticeNotSaved(t, err))
		} else if told := s.notInCheckpoints(); told != "" {
			s.addNotice(told)
		}
	}
}

// checkpointNow makes the checkpoint of a run, and gives the files that it changed.
func (s *session) checkpointNow(t *turn, n checkpoint.Note, live map[string]sandbox.Instance) ([]Change, error) {
	_, keeping := s.span(t.ctx, "checkpoint")
	ctx, cancel := lasting(t.ctx)
	defer cancel()
	files, err := s.keep(ctx, n, live)
	endSpan(keeping, err)
	s.noteUnsaved()
	s.noteTraffic()
	if err := s.save(); err != nil {
		s.manager.log.Warn("a session's record cannot be written", "session", s.id, "cause", err)
	}
	return changesOf(files), err
}

// interpreterDied tells whether an interpreter ended before what its run left was kept. Then
// all is as it was before the run, and the result says so.
func (s *session) interpreterDied(t *turn, runtime string, live map[string]sandbox.Instance, res *Result) bool {
	in := live[runtime]
	if in == nil {
		return false
	}
	select {
	case <-in.Done():
	default:
		return false
	}
	s.drop(runtime, in)
	s.mustReseed[runtime] = true
	s.interpreterLost(t.ctx, runtime, "its interpreter ended before what it held was kept")
	s.pending = ""
	res.Exit.Cause, res.Exit.Code, res.Exit.State, res.Changes = sandbox.Crashed, max(res.Exit.Code, 1), sandbox.Restored, nil
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
func (s *session) accountFor(r *run, exit sandbox.Exit) map[string]sandbox.Instance {
	in, runtime := r.in, r.p.runtime.Name
	if exit.Usage.Memory > 0 { // else it counts what it may take
		s.manager.memory.Set(s.residence.holder(runtime), s.residence.memoryNow(exit.Usage.Memory))
	}
	live := map[string]sandbox.Instance{runtime: in}
	if exit.State == sandbox.Fresh {
		if keeps(in) {
			s.checkpointMu.Lock()
			s.dirtyRuntimes[runtime] = true
			s.checkpointMu.Unlock()
		}
		select {
		case <-in.Done(): // the run took the interpreter with it
			s.drop(runtime, in)
			s.mustReseed[runtime] = true
			live[runtime] = nil
		default:
		}
	}
	s.mu.Lock()
	if !r.counted {
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
