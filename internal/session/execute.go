package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"paddock/internal/fault"
)

var errInterrupted = fault.New(fault.Cancelled, "another call interrupted the execution")

var errStopped = fault.New(fault.Cancelled, "the execution was cancelled before it began")

// Execute runs a program in a session, after all that came before it. The
// program's own failure is in Result.Exit; an error says that it was not run,
// or not to its end. When ctx ends, the program is stopped or leaves the queue.
// What the program left is on disk when Execute returns, but for
// Config.AsyncCheckpoint; where it could not be kept, the result's notice says so.
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
	s.interpreters.reapDead(ctx)
	s.residence.beforeRun(ctx)
	return s.checkpoints.repairFiles(ctx)
}
