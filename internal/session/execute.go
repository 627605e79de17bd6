package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"paddock/internal/checkpoint"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/sandbox"
	"paddock/internal/workspace"
)

var errStopped = fault.New(fault.Cancelled, "the execution was cancelled before it began")

// Execute runs a program in a session, after all that came before it. The
// program's own failure is in Result.Exit; an error says that it was not run,
// or not to its end. When ctx ends, the program is stopped or leaves the queue.
// What the program left is on disk when Execute returns, but for
// Config.KeepLater; where it could not be kept, the result's notice says so.
func (m *Manager) Execute(ctx context.Context, owner Owner, id ID, req Request) (Result, error) {
	if err := m.checkRequest(req); err != nil {
		return Result{}, err
	}
	for {
		s, err := m.find(owner, id)
		if err != nil {
			return Result{}, err
		}
		res, err := s.inTurn(ctx, req)
		if !errors.Is(err, errAsleep) {
			return res, err
		}
		<-s.closed // it is opened again
	}
}

// inTurn runs a program when its turn has come.
func (s *session) inTurn(ctx context.Context, req Request) (Result, error) {
	m := s.manager
	p, err := s.plan(ctx, req)
	if err != nil {
		return Result{}, err
	}
	_, queue := s.span(ctx, "session.queue")
	defer queue.End() // the first End counts
	began := time.Now()
	t, err := s.takeTurn(ctx, mint("x-"), nil)
	if err != nil {
		return Result{}, fmt.Errorf("waiting in the session: %w", err)
	}
	defer func() { s.finish(t) }()
	if err := cmp.Or(s.running(), m.shed(t.ctx, s.owner)); err != nil { // it may have been stopped meanwhile
		return Result{}, err
	}
	release, err := m.admit(t.ctx, s.owner)
	if err != nil {
		return Result{}, fmt.Errorf("waiting to run: %w", err)
	}
	defer release()
	t.queued = time.Since(began)
	queue.End()
	if req.Started != nil {
		req.Started(t.execution)
	}
	return s.recorded(t, p, req)
}

// finish ends a turn, after what is left to do in it.
func (s *session) finish(t *turn) {
	if t.later == nil {
		s.leave(t)
		return
	}
	go func() { // the session's end waits for the turn's
		t.later()
		s.leave(t)
	}()
}

// execute runs the program; it is the caller's turn.
func (s *session) execute(t *turn, p plan, req Request) (Result, error) {
	if err := s.catchUp(t.ctx); err != nil {
		return Result{}, err
	}
	in, err := s.interpreter(t, p.runtime)
	if err != nil {
		return Result{}, err
	}
	s.fill(t.ctx)
	var before workspace.Snapshot
	if s.manager.config.KeepLater || s.passing() {
		if before, err = s.tree.Snapshot(); err != nil {
			return Result{}, fmt.Errorf("looking at the workspace: %w", err)
		}
	}
	stdout := recorder{limit: p.command.Limits.StdoutBytes, also: req.Stdout}
	stderr := recorder{limit: p.command.Limits.StderrBytes, also: req.Stderr}
	var shown displays
	p.command.Stdout, p.command.Stderr, p.command.Display, p.command.Call = &stdout, &stderr, shown.add, s.answering(t)
	ctx, cancel := context.WithTimeout(t.ctx, p.timeout)
	defer cancel()
	ctx, running := s.span(ctx, "sandbox.run")
	began := time.Now()
	exit, err := guard("running", func() (sandbox.Exit, error) { return in.Run(ctx, p.command) })
	wall := time.Since(began)
	describeRun(running, p, exit)
	endSpan(running, err)
	s.tooLate(t)
	if err != nil {
		return Result{}, s.broken(t, p.runtime.Name, in, err)
	}
	gone, notice := overtaken(context.Cause(t.ctx)), ""
	if gone == "" {
		notice = s.notice(p.runtime.Name, exit, s.rollBackFiles(t, exit))
		switch context.Cause(t.ctx) {
		case errRestored:
			notice = joinNotices(notice, "The session was then taken back to an earlier state.")
		case errHalted:
			notice = joinNotices(notice, "The session was then stopped: nothing runs in it any more. Files in /workspace are there.")
		}
	} else {
		exit.State, notice = sandbox.Fresh, gone
	}
	exit.StdoutTruncated = exit.StdoutTruncated || stdout.cut
	exit.StderrTruncated = exit.StderrTruncated || stderr.cut
	res := Result{
		Session: s.id, Execution: t.execution, Isolation: s.backend.Name(), Exit: exit,
		Stdout: string(stdout.data), Stderr: string(stderr.data), Displays: shown.take(), Wall: wall, Notice: notice,
	}
	live := s.account(p.runtime.Name, in, exit)
	if gone == "" {
		if req.Ended != nil {
			req.Ended(res, s.put)
		}
		s.keepRun(t, p, live, before, &res)
	}
	return res, nil
}

// catchUp deals with what ended or failed since the last call: after that a program
// finds interpreters and files that belong together.
func (s *session) catchUp(ctx context.Context) error {
	s.bury(ctx)
	s.retire(ctx, time.Now())
	return s.whole(ctx)
}

// put writes a file that shows what the present execution, which is counted
// already, printed or showed.
func (s *session) put(name string, data []byte) (string, error) { return s.putOf(0, name, data) }

// putNow does so while it runs, and is not counted yet.
func (s *session) putNow(name string, data []byte) (string, error) { return s.putOf(1, name, data) }

func (s *session) putOf(later int64, name string, data []byte) (string, error) {
	s.mu.Lock()
	number := s.record.Executions + later
	s.mu.Unlock()
	f, err := s.tree.Put(fmt.Sprintf("%s/%d-%s", Shown, number, name), data)
	return f.Path, err
}

// keepRun makes the checkpoint after a run, now or later, and fills in what it
// says.
func (s *session) keepRun(t *turn, p plan, live map[string]sandbox.Instance, before workspace.Snapshot, res *Result) {
	keep := func() ([]workspace.Change, error) {
		_, keeping := s.span(t.ctx, "checkpoint")
		ctx, cancel := lasting(t.ctx)
		defer cancel()
		files, err := s.keep(ctx, checkpoint.Note{Cause: history.CauseExecute, Execution: t.execution, Language: p.command.Language, Code: p.command.Code}, live)
		endSpan(keeping, err)
		s.noteUnkept()
		if err := s.save(); err != nil {
			s.manager.log.Warn("a session's record cannot be written", "session", s.id, "cause", err)
		}
		return files, err
	}
	if !s.manager.config.KeepLater && !s.passing() {
		files, err := keep()
		res.Changes = changesOf(files)
		if err != nil && !s.died(t, p.runtime.Name, live, res) {
			res.Notice = joinNotices(res.Notice, s.notKept(t, err))
		}
		return
	}
	if after, err := s.tree.Snapshot(); err != nil {
		s.manager.log.WarnContext(t.ctx, "the workspace cannot be looked at", "session", s.id, "execution", t.execution, "cause", fault.CauseOf(err))
	} else {
		res.Changes = changesOf(before.Changes(after))
	}
	if s.passing() {
		return
	}
	t.later = func() {
		if _, err := keep(); err != nil {
			s.tell(s.notKept(t, err))
		}
	}
}

// died tells whether an interpreter ended before what its run left was kept. Then
// all is as it was before the run, and the result says so.
func (s *session) died(t *turn, runtime string, live map[string]sandbox.Instance, res *Result) bool {
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
	s.anew[runtime] = true
	s.lose(t.ctx, runtime, "its interpreter ended before what it held was kept")
	s.news = ""
	res.Exit.Cause, res.Exit.Code, res.Exit.State, res.Changes = sandbox.Crashed, max(res.Exit.Code, 1), sandbox.Restored, nil
	if res.Exit.Error == nil {
		res.Exit.Error = &sandbox.ProgramError{Type: "Crash", Message: "the interpreter ended right after the program"}
	}
	res.Notice = joinNotices(res.Notice, "The interpreter ended right after the program, before what that left could be kept: variables and files are as they were before this call.")
	if _, lost := s.lost[runtime]; lost {
		res.Exit.State = sandbox.Fresh
		delete(s.lost, runtime)
	}
	return true
}

// account counts a run, and gives the interpreter whose state is to be kept: nil
// for one that is gone with its state.
func (s *session) account(runtime string, in sandbox.Instance, exit sandbox.Exit) map[string]sandbox.Instance {
	if exit.Usage.Memory > 0 { // else it counts what it may take
		s.manager.memory.Set(s.holder(runtime), s.memoryNow(exit.Usage.Memory))
	}
	live := map[string]sandbox.Instance{runtime: in}
	if exit.State == sandbox.Fresh {
		if keeps(in) {
			s.keeping.Lock()
			s.unsure[runtime] = true
			s.keeping.Unlock()
		}
		select {
		case <-in.Done(): // the run took the interpreter with it
			s.drop(runtime, in)
			s.anew[runtime] = true
			live[runtime] = nil
		default:
		}
	}
	s.mu.Lock()
	s.record.Executions++
	if s.record.Runtimes == nil {
		s.record.Runtimes = map[string]int64{}
	}
	s.record.Runtimes[runtime]++
	s.record.LastUsedAt = time.Now()
	s.mu.Unlock()
	s.unsaved()
	return live
}
