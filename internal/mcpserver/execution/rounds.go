package execution

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/approval"
	"paddock/internal/fault"
	"paddock/internal/session"
	"paddock/internal/textsafe"
)

// InputResponses is how a client is asked that has no connection to be asked over: the
// answer to its call is that its user is needed (input_required), and it makes the call
// again with what they said.
//
// What comes back from a client proves nothing. The state names an execution and its
// session; whether they are the owner's is looked up, and an approval has an id that
// nobody can guess, is decided once, and belongs to that execution.
type InputResponses struct {
	Responses mcp.InputResponseMap
	State     string // empty: it is the first round
}

// collectTime is how long it is waited for further questions, so that they come as one.
const collectTime = 50 * time.Millisecond

// Claim makes an execution this request's that goes on, or has gone on, without one, and
// waits for what it comes to; nil: there is none.
func (r *Registry) Claim(ctx context.Context, owner session.Owner, execution string) (*Execution, error) {
	x, err := r.take(runKey{owner, execution})
	if x == nil || err != nil {
		return nil, err
	}
	select {
	case <-x.done:
		r.remove(x)
		return x, nil
	case <-ctx.Done():
		x.detach() // it goes on
		return nil, context.Cause(ctx)
	}
}

// take makes an execution a request's; nil: there is none.
func (r *Registry) take(k runKey) (*Execution, error) {
	x := r.get(k)
	if x != nil && !x.attach() {
		return nil, fault.New(fault.Conflict, "another call waits for this execution").WithHint("wait for that one's result")
	}
	return x, nil
}

// SessionOf finds the session in which an execution waits; given is the one that the
// client names, if it is not empty.
func (r *Registry) SessionOf(owner session.Owner, given session.ID, execution string) (session.ID, error) {
	waiting, err := r.config.Waiting(owner)
	if err != nil {
		return "", err
	}
	for _, w := range waiting {
		if w.Execution == execution && (given == "" || given == w.Session) {
			return w.Session, nil
		}
	}
	return "", fault.New(fault.NotFound, "no execution %s waits", textsafe.QuoteShort(execution)).
		WithHint("it has ended, or was given up when other code ran in its session; get_workspace_info tells what is there")
}

// Turn is what a round begins with.
type Turn struct {
	Session   session.ID
	Execution string
	// Running is the execution where it goes on meanwhile; nil: StartRound goes on with it.
	Running *Execution
	// Before is its earlier part, and Decided what is not to be asked again, for StartRound.
	Before  *Execution
	Decided []approval.Approval
}

// Answer keeps what a client's user said in a round that is not the first, and finds the
// execution that it is about.
func (r *Registry) Answer(owner session.Owner, in InputResponses) (Turn, error) {
	execution, id, _ := strings.Cut(in.State, " ")
	turn := Turn{Session: session.ID(id), Execution: execution}
	decided, err := r.keepAnswers(owner, turn, in.Responses)
	if err != nil {
		return Turn{}, err
	}
	x, err := r.take(runKey{owner, execution})
	switch {
	case err != nil:
		return Turn{}, err
	case x == nil: // this process knows nothing of it
		turn.Decided = decided
		return turn, nil
	}
	x.recordDecisions(decided)
	if x.hasEnded() && x.Waits() {
		r.remove(x)
		turn.Before = x
	} else {
		turn.Running = x
	}
	return turn, nil
}

// keepAnswers keeps what the client's user said about approvals of an execution, and gives
// them.
func (r *Registry) keepAnswers(owner session.Owner, turn Turn, responses mcp.InputResponseMap) (all []approval.Approval, err error) {
	for one, said := range responses {
		a, err := r.config.Approvals.Get(string(owner), one)
		if err != nil || a.Session != string(turn.Session) || a.Execution != turn.Execution {
			return nil, fault.New(fault.Invalid, "the answer is not to a question of this call").WithHint("make the call again without inputResponses and requestState")
		}
		all = append(all, a)
		if answer, ok := said.(*mcp.ElicitResult); ok {
			r.decide(context.Background(), a, VerdictOf(a, answer))
		}
	}
	return all, nil
}

// StartRound runs an execution beside its request, which may be answered before: the client
// is asked by the answer ([Execution.Round]). What was decided is not asked again. first
// says that it is not the answer to a question.
func (r *Registry) StartRound(ctx context.Context, q Request, decided []approval.Approval, first bool, begin Begin) *Execution {
	x := r.newExecution(context.WithoutCancel(ctx), q)
	x.recordDecisions(decided)
	x.whole = !first // of earlier rounds the client has heard nothing
	r.start(x, begin)
	return x
}

// Round is what a client is asked.
type Round struct {
	Questions mcp.InputRequestMap // nil: the execution has an outcome
	State     string              // what the client makes the call again with
	Session   session.ID
	Execution string
}

// Round waits until there is something to ask the client about, or the execution has an
// outcome. When ctx ends first, the execution is stopped.
func (x *Execution) Round(ctx context.Context) Round {
	stop := context.AfterFunc(ctx, func() { x.cancel(context.Cause(ctx)) }) // nobody waits for it
	open := x.awaitApprovals()
	if x.hasEnded() && !x.Waits() || len(open) == 0 || !stop() {
		<-x.done
		stop()
		x.leave()
		return Round{}
	}
	x.markShown(open)
	id, execution := open[0].Session, open[0].Execution
	x.detach()
	return Round{Questions: questionsOf(open), State: execution + " " + id, Session: session.ID(id), Execution: execution}
}

// awaitApprovals waits until there is something to ask the client about, or nothing will be
// any more.
func (x *Execution) awaitApprovals() []approval.Approval {
	for {
		open := x.registry.pending(x.open())
		if len(open) > 0 || x.hasEnded() {
			return open
		}
		select {
		case <-x.done:
		case <-x.changed:
			timer := time.NewTimer(collectTime)
			select {
			case <-timer.C:
			case <-x.done:
			}
			timer.Stop()
		}
	}
}

// questionsOf are approvals as a client is asked about them.
func questionsOf(open []approval.Approval) mcp.InputRequestMap {
	all := mcp.InputRequestMap{}
	for _, a := range open {
		all[a.ID] = Question(a)
	}
	return all
}

// pending leaves out what was decided meanwhile.
func (r *Registry) pending(all []approval.Approval) (some []approval.Approval) {
	for _, a := range all {
		if now, err := r.config.Approvals.Get(a.Owner, a.ID); err == nil && now.State == approval.Pending {
			some = append(some, now)
		}
	}
	return some
}

// markShown says what the client is asked in this round.
func (x *Execution) markShown(open []approval.Approval) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, q := range x.approvals {
		q.shown = q.shown || slices.ContainsFunc(open, func(a approval.Approval) bool { return a.ID == q.ID })
	}
}

// recordDecisions takes in that a round of questions is over: what has no answer was dismissed, and
// is not asked again.
func (x *Execution) recordDecisions(answers []approval.Approval) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, q := range x.approvals {
		q.done = q.done || q.shown
	}
	for _, a := range answers {
		x.approvals = append(x.approvals, &pendingApproval{Approval: a, done: true})
	}
}
