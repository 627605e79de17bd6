package session

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/session/hostcalls"
	"paddock/internal/workspace"
)

// run is a program that is going on. It is the turn's.
type run struct {
	s      *session
	t      *turn
	p      plan
	req    Request
	in     sandbox.Instance
	before workspace.Snapshot // where nothing is kept right after the run
	calls  *hostcalls.Calls   // nil: nothing answers them, so it never waits for a person
	number int64              // among the session's executions

	from    *suspended // what it goes on from; nil: it begins
	counted bool       // among the session's executions
	inPlace bool       // it waits for a person where it is
	stdout  recorder
	stderr  recorder
	earlier [2]string // what an earlier result had of the two
	shown   displays
	used    sandbox.Usage // of what has run, but for what an earlier call saw
	waited  time.Duration // at its end, for a person
	began   Traffic       // of the session, when it began, or went on
	refused string        // what it was refused, as far as that was asked for
}

// runProgram runs the program, or goes on with it; it is the caller's turn.
func (s *session) runProgram(t *turn, p plan, req Request) (Result, error) {
	if err := s.reconcile(t.ctx); err != nil {
		return Result{}, err
	}
	in, err := s.interpreters.live(t, p.runtime)
	if err != nil {
		return Result{}, err
	}
	s.mounts.refresh(t.ctx, req.Code)
	r := &run{s: s, t: t, p: p, req: req, in: in, began: s.egress.total()}
	if answer := r.answering(); answer != nil {
		r.calls = hostcalls.New(answer)
	}
	r.inPlace = s.manager.config.WaitInPlace < 0 || s.isEphemeral() || !s.residence.suspends(in)
	if s.manager.config.AsyncCheckpoint || s.isEphemeral() {
		if r.before, err = s.tree.Snapshot(); err != nil {
			return Result{}, fmt.Errorf("looking at the workspace: %w", err)
		}
	}
	if err := r.begin(); err != nil {
		return Result{}, err
	}
	defer r.stdout.spool.close()
	defer r.stderr.spool.close()
	return r.runUntilDone()
}

// begin makes the program ready to run, and what waits in its interpreter another's.
func (r *run) begin() error {
	s, limits := r.s, r.p.command.Limits
	var err error
	if r.req.Continue == "" {
		err = r.supersede()
	} else if r.from, err = s.suspension.resume(r.t.ctx, r.req.Continue, s.lostReasons); err == nil {
		limits = r.from.Limits
	}
	if err != nil {
		return err
	}
	r.stdout = recorder{limit: limits.StdoutBytes, also: r.req.Stdout, spool: r.spool()}
	r.stderr = recorder{limit: limits.StderrBytes, also: r.req.Stderr, spool: r.spool()}
	s.mu.Lock()
	r.number = s.record.Executions + 1
	s.mu.Unlock()
	c := &r.p.command
	c.Stdout, c.Stderr, c.Display = &r.stdout, &r.stderr, r.shown.add
	if r.calls != nil {
		c.Call = r.calls.Call
	}
	if r.from != nil {
		r.resume()
	}
	return nil
}

// runUntilDone runs the program until it has ended, or waits for a person and is kept so.
func (r *run) runUntilDone() (Result, error) {
	s, t := r.s, r.t
	ctx, cancel := context.WithTimeout(t.ctx, r.p.timeout)
	defer cancel()
	ctx, span := s.span(ctx, "sandbox.run")
	began := time.Now()
	var exit sandbox.Exit
	var err error
	defer func() {
		describeRun(span, r.p, exit)
		endSpan(span, err)
	}()
	for {
		var reasons map[int]string
		exit, reasons, err = r.runOnce(ctx)
		s.turns.setUncancellable(t)
		if err != nil {
			err = r.broken(err)
			r.noteLost()
			return Result{}, err
		}
		wall := time.Since(began)
		if exit.Cause != sandbox.Waiting {
			return r.end(exit, wall), nil
		}
		res, failed := r.wait(exit, reasons, wall)
		if failed == nil {
			return res, nil
		}
		s.manager.log.WarnContext(ctx, "a run that waits cannot be kept, and waits in place", "session", s.id, "execution", t.execution, "cause", fault.CauseOf(failed))
		if errors.Is(failed, errMustNotContinue) {
			s.addNotice("The run had to wait for a person, could not be kept for that, and was stopped.")
			cancel()
		}
		s.turns.setCancellable(t)
		r.inPlace = true
		r.p.command.Continue = &sandbox.Continuation{Calls: exit.Calls, Open: exit.Open}
	}
}

// runOnce runs the program until it has ended or does nothing but wait for a person, and
// gives for what, by the numbers of its calls.
func (r *run) runOnce(ctx context.Context) (exit sandbox.Exit, reasons map[int]string, err error) {
	if r.calls != nil {
		defer r.calls.End(nil)
	}
	for {
		cmd := r.p.command
		cmd.Limits = r.remaining(cmd.Limits)
		if r.calls != nil && !r.inPlace {
			cmd.Suspend = r.calls.Begin(func() time.Duration { return r.waitInPlace(ctx) })
		}
		exit, err = guard("running", func() (sandbox.Exit, error) { return r.in.Run(ctx, cmd) })
		r.addEarlier(&exit)
		if err != nil || exit.Cause != sandbox.Waiting || r.calls == nil {
			return exit, nil, err
		}
		reasons, r.waited = r.calls.Drain(ctx, exit.Open)
		if len(reasons) > 0 {
			return exit, reasons, nil
		}
		r.p.command.Continue = &sandbox.Continuation{Calls: exit.Calls, Open: exit.Open}
	}
}

// waitInPlace is how long the program waits in place for a person, if that begins now.
func (r *run) waitInPlace(ctx context.Context) time.Duration {
	most := r.s.manager.config.WaitInPlace
	if at, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(at)/2)
	}
	return max(most, 0)
}

// remaining is what is left of the limits of a run, of which a part has run.
func (r *run) remaining(l sandbox.RunLimits) sandbox.RunLimits {
	rest := func(limit, used int64) int64 {
		if limit == 0 {
			return 0
		}
		return max(limit-used, 1)
	}
	l.Fuel = uint64(rest(int64(l.Fuel), int64(r.used.Fuel)+int64(r.fuel())))
	l.StdoutBytes = rest(spooled*l.StdoutBytes, r.stdout.bytes)
	l.StderrBytes = rest(spooled*l.StderrBytes, r.stderr.bytes)
	l.DisplayBytes = rest(l.DisplayBytes, r.displayed())
	return l
}

// addEarlier makes an exit's Usage that of all that has run.
func (r *run) addEarlier(exit *sandbox.Exit) {
	u := &exit.Usage
	u.CPU, u.Fuel, u.Wall, u.Peak = u.CPU+r.used.CPU, u.Fuel+r.used.Fuel, u.Wall+r.used.Wall, max(u.Peak, r.used.Peak)
	r.stdout.cut, r.stderr.cut = r.stdout.cut || exit.StdoutTruncated, r.stderr.cut || exit.StderrTruncated
	exit.StdoutTruncated, exit.StderrTruncated = r.stdout.cut || r.stdout.more(), r.stderr.cut || r.stderr.more()
	r.used = *u
}

// result is what there is to tell of the program.
func (r *run) result(exit sandbox.Exit, wall time.Duration, notice string) Result {
	r.refused = lines(r.refused, r.s.egress.refused())
	res := Result{
		Session: r.s.id, Execution: r.t.execution, Isolation: r.s.backend.Name(), Exit: exit,
		Displays: r.shown.take(), Wall: wall, Notice: notice,
		Egress: r.s.egress.total().since(r.began), Refused: r.refused, ToolCalls: max(exit.Calls-r.backgroundCalls(), 0),
	}
	res.Stdout, res.StdoutStream = r.stdout.text()
	res.Stderr, res.StderrStream = r.stderr.text()
	if r.from != nil {
		res.Earlier = Earlier{sameStart(r.earlier[0], res.Stdout), sameStart(r.earlier[1], res.Stderr)}
	}
	return res
}

// answering gives what answers the calls of a run's program; nil: nothing does.
func (r *run) answering() hostcalls.Answer {
	s, t := r.s, r.t
	tools := s.manager.config.Tools
	if tools == nil {
		return nil
	}
	return func(ctx context.Context, c sandbox.Call, suspend func(string)) (answer []byte) {
		defer func() {
			if p := recover(); p != nil {
				answer = nil
				s.manager.log.ErrorContext(ctx, "answering a call panicked", "session", s.id, "execution", t.execution, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			}
		}()
		return tools.Call(ctx, Run{Owner: s.owner, Session: s.id, Execution: t.execution, Put: r.putFile, Suspend: suspend, InBackground: r.calls.CountBackground}, c)
	}
}
