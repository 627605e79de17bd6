package mcpserver

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/approval"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/session"
	"paddock/internal/textsafe"
)

// inputResponses is how a client is asked that has no connection to be asked over: the answer to
// its call is that its user is needed (input_required), and it makes the call again with
// what they said.
//
// What comes back from a client proves nothing. The state names an execution and its
// session; whether they are the owner's is looked up, and an approval has an id that
// nobody can guess, is decided once, and belongs to that execution.
type inputResponses struct {
	responses mcp.InputResponseMap
	state     string // empty: it is the first round
}

// collectTime is how long it is waited for further questions, so that they come as one.
const collectTime = 50 * time.Millisecond

// canElicit tells whether clients are asked at all.
func (s *Server) canElicit() bool { return s.config.Approvals != nil && s.config.AskClient }

// isWaiting tells whether what a pursuit came to is an execution that waits.
func isWaiting(p *execution) bool { return p.err == nil && p.out.res.Exit.Cause == sandbox.Waiting }

// claim makes ready to go on with an execution: it finds its session, and waits for what
// goes on with it in the background, whose pursuit it gives; nil: there is none.
func (c *call) claim(ctx context.Context, in *executeInput) (before *execution, err error) {
	if in.execution == "" {
		return nil, nil
	}
	before, err = c.take(runKey{c.bound.Owner, in.execution})
	if err != nil {
		return nil, err
	}
	if before != nil {
		select {
		case <-before.done:
			c.server.executions.remove(before)
		case <-ctx.Done():
			before.detach() // it goes on
			return nil, context.Cause(ctx)
		}
		if !isWaiting(before) {
			return before, nil
		}
		in.session = before.out.res.Session
		return before, nil
	}
	in.session, err = c.sessionOf(in.session, in.execution)
	return nil, err
}

// take makes the pursuit of an execution this request's; nil: there is none.
func (c *call) take(k runKey) (*execution, error) {
	p := c.server.executions.get(k)
	if p != nil && !p.attach() {
		return nil, fault.New(fault.Conflict, "another call waits for this execution").WithHint("wait for that one's result")
	}
	return p, nil
}

// sessionOf finds the session in which an execution waits.
func (c *call) sessionOf(given session.ID, execution string) (session.ID, error) {
	waiting, err := c.server.config.Sessions.WaitingRuns(c.bound.Owner)
	if err != nil {
		return "", err
	}
	for _, w := range waiting {
		if w.Execution == execution && (given == "" || given == w.Session) {
			c.session = w.Session
			c.server.Named(c.bound.Owner, w.Session)
			return w.Session, nil
		}
	}
	return "", fault.New(fault.NotFound, "no execution %s waits", textsafe.Quote(execution)).
		WithHint("it has ended, or was given up when other code ran in its session; get_workspace_info tells what is there")
}

// executeInputRequired is executeCode for clients that are asked by rounds.
func (c *call) executeInputRequired(ctx context.Context, in executeInput) (Execution, answer, error) {
	p, err := c.nextRound(ctx, in)
	if err != nil {
		return Execution{}, answer{}, err
	}
	stop := context.AfterFunc(ctx, func() { p.cancel(context.Cause(ctx)) }) // nobody waits for it
	open := c.awaitApprovals(p)
	if p.hasEnded() && !isWaiting(p) || len(open) == 0 || !stop() {
		<-p.done
		stop()
		p.leave()
		return c.outcome(p)
	}
	p.markShown(open)
	c.session, c.execution = session.ID(open[0].Session), open[0].Execution
	p.detach()
	return Execution{}, answer{inputs: questionsOf(open), state: c.execution + " " + string(c.session)}, nil
}

// awaitApprovals waits until there is something to ask the client about, or nothing will be
// any more.
func (c *call) awaitApprovals(p *execution) []approval.Approval {
	for {
		open := c.server.pending(p.open())
		if len(open) > 0 || p.hasEnded() {
			return open
		}
		select {
		case <-p.done:
		case <-p.changed:
			timer := time.NewTimer(collectTime)
			select {
			case <-timer.C:
			case <-p.done:
			}
			timer.Stop()
		}
	}
}

// questionsOf are approvals as a client is asked about them.
func questionsOf(open []approval.Approval) mcp.InputRequestMap {
	all := mcp.InputRequestMap{}
	for _, a := range open {
		all[a.ID] = elicitParams(a)
	}
	return all
}

// pending leaves out what was decided meanwhile.
func (s *Server) pending(all []approval.Approval) (some []approval.Approval) {
	for _, a := range all {
		if now, err := s.config.Approvals.Get(a.Owner, a.ID); err == nil && now.State == approval.Pending {
			some = append(some, now)
		}
	}
	return some
}

// nextRound begins an execution, or takes in what the client's user said and goes on.
func (c *call) nextRound(ctx context.Context, in executeInput) (*execution, error) {
	if c.inputs.state == "" {
		before, err := c.claim(ctx, &in)
		if err != nil || before != nil && !isWaiting(before) {
			return before, err
		}
		return c.startExecution(ctx, in, before, nil), nil
	}
	execution, id, _ := strings.Cut(c.inputs.state, " ")
	answers, err := c.answers(session.ID(id), execution)
	if err != nil {
		return nil, err
	}
	before, err := c.take(runKey{c.bound.Owner, execution})
	if err != nil {
		return nil, err
	}
	next := executeInput{execution: execution, session: session.ID(id), timeout: in.timeout}
	switch {
	case before == nil: // this process knows nothing of it
		if next.session, err = c.sessionOf(next.session, execution); err != nil {
			return nil, err
		}
		p := c.startExecution(ctx, next, nil, answers)
		return p, nil
	case before.hasEnded() && isWaiting(before):
		before.recordDecisions(answers)
		c.server.executions.remove(before)
		return c.startExecution(ctx, next, before, nil), nil
	}
	before.recordDecisions(answers)
	return before, nil
}

// answers keeps what the client's user said about approvals of an execution, and gives
// them.
func (c *call) answers(id session.ID, execution string) (all []approval.Approval, err error) {
	for one, said := range c.inputs.responses {
		a, err := c.server.config.Approvals.Get(string(c.bound.Owner), one)
		if err != nil || a.Session != string(id) || a.Execution != execution {
			return nil, fault.New(fault.Invalid, "the answer is not to a question of this call").WithHint("make the call again without inputResponses and requestState")
		}
		all = append(all, a)
		if r, ok := said.(*mcp.ElicitResult); ok {
			c.server.decide(context.Background(), a, verdictOf(a, r))
		}
	}
	return all, nil
}

// markShown says what the client is asked in this round.
func (x *execution) markShown(open []approval.Approval) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, q := range x.approvals {
		q.shown = q.shown || slices.ContainsFunc(open, func(a approval.Approval) bool { return a.ID == q.ID })
	}
}

// recordDecisions takes in that a round of questions is over: what has no answer was dismissed, and
// is not asked again.
func (x *execution) recordDecisions(answers []approval.Approval) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, q := range x.approvals {
		q.done = q.done || q.shown
	}
	for _, a := range answers {
		x.approvals = append(x.approvals, &pendingApproval{Approval: a, done: true})
	}
}

// startExecution runs an execution beside its request, after what another pursuit came to; nil:
// there is none. What was answered is not asked again.
func (c *call) startExecution(ctx context.Context, in executeInput, before *execution, answers []approval.Approval) *execution {
	p := c.newExecution(context.WithoutCancel(ctx))
	p.follow(before)
	p.recordDecisions(answers)
	p.whole = c.inputs.state != "" // of earlier rounds the client has heard nothing
	c.server.start(p, in)
	return p
}
