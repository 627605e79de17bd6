package session

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// Action is what an Event tells of.
type Action string

// The actions.
const (
	Executing       Action = "execute"
	Creating        Action = "create_session"
	Destroying      Action = "destroy_session"
	Resetting       Action = "reset"
	Checkpointing   Action = "checkpoint"
	Unlabelling     Action = "remove_label"
	Restoring       Action = "restore"
	Forking         Action = "fork"
	Exporting       Action = "export"
	Importing       Action = "import"
	Renaming        Action = "rename"
	OpeningTerminal Action = "open_terminal"
)

// Event is one action in a session, for a record of who did what.
type Event struct {
	Action Action
	// Begun says that a program is about to run; another Event tells how it
	// ended. The other actions have one Event, when they are over.
	Begun               bool
	Owner               Owner
	Session             ID
	Language, Isolation string
	// Parent is the session that a new one is a fork of; empty: it is none.
	Parent ID
	// Expired says that a session was destroyed because nobody used it.
	Expired bool
	// Err is why it did not come to its end; nil: it did.
	Err error

	// What follows tells of an execution.
	Execution string
	Code      string
	// Continued says that it had waited for a person, and went on: its program was told
	// when it began.
	Continued bool
	// Waits says that it waits for a person, and can be gone on with, as well after an
	// Err: going on with it may have failed before its program did.
	Waits bool
	// Queued is how long it waited in its session; Start what starting an
	// interpreter took, zero where one lived.
	Queued, Start time.Duration
	// Wall and Exit tell how the program ended, where Err is nil.
	Wall time.Duration
	Exit sandbox.Exit
	// Egress is Result.Egress.
	Egress int64
}

// Stats is what a Manager has at one moment.
type Stats struct {
	Sessions, Interpreters, Running, Queued int
	// Memory and Disk are bytes, as the limits count them: an interpreter that
	// runs has all that it may take, and what programs write counts when they
	// have ended.
	Memory, Disk int64
	// Pooled machines are booted for sessions that will be made; so many sessions
	// were made with one, and without although there could have been one.
	Pooled               int
	PoolHits, PoolMisses int64
}

// Stats counts what this process has open. It asks no interpreter and looks at
// no file.
func (m *Manager) Stats() Stats {
	all := m.sessions.open("")
	sum := Stats{Sessions: len(all)}
	sum.Memory = m.memory.Total()
	sum.Pooled, sum.PoolHits, sum.PoolMisses = m.pool.Counts()
	for _, s := range all {
		sum.Disk += s.tree.Used()
		sum.Interpreters += s.interpreters.count()
		running, queued := s.turns.counts()
		sum.Running, sum.Queued = sum.Running+running, sum.Queued+queued
	}
	return sum
}

// backendName is the isolation's name; the session may be without its backend.
func (s *session) backendName() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.Isolation
}

// span begins a span below the one in ctx.
func (s *session) span(ctx context.Context, name string) (context.Context, trace.Span) {
	return s.manager.config.Tracer.Start(ctx, name)
}

// endSpan ends a span; err is why what it measured did not come to its end.
func endSpan(span trace.Span, err error) {
	if err != nil && span.IsRecording() {
		kind := string(fault.KindOf(err))
		span.SetAttributes(attribute.String("error.type", kind))
		span.SetStatus(codes.Error, kind)
	}
	span.End()
}

// describeRun says in a span what ran and how it ended: in paddock's own words.
func describeRun(span trace.Span, p plan, exit sandbox.Exit) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(
		attribute.String("paddock.language", p.command.Language), attribute.String("paddock.engine", exit.Engine),
		attribute.String("paddock.cause", exit.Cause.String()), attribute.Int("process.exit.code", exit.Code),
		attribute.Int64("paddock.fuel", int64(min(exit.Usage.Fuel, 1<<62))), attribute.Int64("paddock.memory", exit.Usage.Memory),
	)
}

// executeAudited runs a program between the two Events about it.
func (s *session) executeAudited(t *turn, p plan, req Request) (Result, error) {
	if len(s.manager.config.Observers) == 0 {
		return s.runProgram(t, p, req)
	}
	e := Event{
		Action: Executing, Begun: true, Owner: s.owner, Session: s.id, Execution: t.execution,
		Language: p.command.Language, Isolation: s.backend.Name(), Code: p.code, Queued: t.queued, Continued: req.Continue != "",
	}
	for _, o := range s.manager.config.Observers {
		if err := o.Record(t.ctx, e); err != nil {
			return Result{}, fmt.Errorf("recording the execution: %w", err)
		}
	}
	res, err := s.runProgram(t, p, req)
	e.Begun, e.Start, e.Wall, e.Exit, e.Egress, e.Err = false, t.start, res.Wall, res.Exit, res.Egress, err
	if err != nil || res.Exit.Cause == sandbox.Waiting {
		w := s.suspension.waits()
		e.Waits = w != nil && w.Execution == t.execution
	}
	s.manager.record(t.ctx, e)
	return res, err
}

// record passes on an Event of what is over: nothing can be undone any more.
func (m *Manager) record(ctx context.Context, e Event) {
	for _, o := range m.config.Observers {
		if err := o.Record(context.WithoutCancel(ctx), e); err != nil {
			m.log.ErrorContext(ctx, "what happened was not recorded", "action", e.Action, "session", e.Session, "execution", e.Execution, "cause", fault.CauseOf(err))
		}
	}
}

// notifyRemoved tells the observers that the session is no more.
func (s *session) notifyRemoved() {
	for _, o := range s.manager.config.Observers {
		_, err := guard("forgetting a session", func() (struct{}, error) { o.Removed(s.owner, s.id); return struct{}{}, nil })
		if err != nil {
			s.manager.log.Error("a session's resources were not released", "session", s.id, "cause", fault.CauseOf(err))
		}
	}
}
