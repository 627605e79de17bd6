package mcpserver

import (
	"context"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/approval"
	"paddock/internal/mcpserver/execution"
	"paddock/internal/mcpserver/transport"
	"paddock/internal/session"
	"paddock/internal/textsafe"
)

// canElicit reports whether clients are asked at all.
func (s *Server) canElicit() bool { return s.config.Approvals != nil && s.config.AskClient }

// askBy says how a request's client can be asked about calls, if it can.
func (s *Server) askBy(c *call, req *mcp.CallToolRequest) {
	can := req.ClientCapabilities()
	switch {
	case can == nil || !execution.CanElicit(can.Elicitation):
	case transport.IsModern(req.ProtocolVersion()):
		c.Inputs = &execution.InputResponses{Responses: req.Params.InputResponses, State: req.Params.RequestState}
	default:
		c.Elicitor = s.elicitOverSession(req.Session)
	}
}

// elicitOverSession asks over the SDK's connection to a client of an era with such requests.
func (s *Server) elicitOverSession(session *mcp.ServerSession) execution.Elicitor {
	return func(ctx context.Context, a approval.Approval) execution.Verdict {
		res, err := session.Elicit(ctx, execution.Question(a))
		if err != nil {
			if ctx.Err() == nil {
				s.log.InfoContext(ctx, "a client could not be asked", "approval", a.ID, "cause", err)
			}
			return execution.Dismissed
		}
		return execution.VerdictOf(a, res)
	}
}

// request is what the call's execution is made for, when it has to be; before is its
// earlier part, nil when there is none.
func (c *call) request(before *execution.Execution) execution.Request {
	q := execution.Request{Owner: c.bound.Owner, Program: c, Task: c.Task, Before: before}
	if c.server.config.AskClient {
		q.Elicitor = c.Elicitor
	}
	return q
}

// claim makes ready to go on with an execution: it finds its session, and waits for what
// goes on with it in the background, which it gives; nil: nothing does.
func (c *call) claim(ctx context.Context, in *executeInput) (before *execution.Execution, err error) {
	if in.execution == "" {
		return nil, nil
	}
	before, err = c.server.executions.Claim(ctx, c.bound.Owner, in.execution)
	switch {
	case err != nil:
		return nil, err
	case before == nil:
		in.session, err = c.sessionOf(in.session, in.execution)
		return nil, err
	case before.Waits():
		part, _ := before.Outcome()
		in.session = part.Result.Session
	}
	return before, nil
}

// sessionOf finds the session in which an execution waits.
func (c *call) sessionOf(given session.ID, execution string) (session.ID, error) {
	id, err := c.server.executions.SessionOf(c.bound.Owner, given, execution)
	if err == nil {
		c.session = id
		c.server.Named(c.bound.Owner, id)
	}
	return id, err
}

// executeInRounds is executeCode for clients that are asked by rounds.
func (c *call) executeInRounds(ctx context.Context, in executeInput) (Execution, answer, error) {
	x, err := c.nextRound(ctx, in)
	if err != nil {
		return Execution{}, answer{}, err
	}
	round := x.Round(ctx)
	if round.Questions == nil {
		return c.outcome(x.Outcome())
	}
	c.session, c.execution = round.Session, round.Execution
	return Execution{}, answer{inputs: round.Questions, state: round.State}, nil
}

// nextRound begins an execution, or takes in what the client's user said and goes on.
func (c *call) nextRound(ctx context.Context, in executeInput) (*execution.Execution, error) {
	if c.Inputs.State == "" {
		before, err := c.claim(ctx, &in)
		if err != nil || before != nil && !before.Waits() {
			return before, err
		}
		return c.startRound(ctx, in, before, nil), nil
	}
	turn, err := c.server.executions.Answer(c.bound.Owner, *c.Inputs)
	if err != nil || turn.Running != nil {
		return turn.Running, err
	}
	next := executeInput{execution: turn.Execution, session: turn.Session, timeout: in.timeout}
	if turn.Before == nil { // this process knows nothing of it
		if next.session, err = c.sessionOf(turn.Session, turn.Execution); err != nil {
			return nil, err
		}
	}
	return c.startRound(ctx, next, turn.Before, turn.Decided), nil
}

// startRound runs an execution beside its request.
func (c *call) startRound(ctx context.Context, in executeInput, before *execution.Execution, decided []approval.Approval) *execution.Execution {
	own := *c // the request may be answered before the run has ended
	return c.server.executions.StartRound(ctx, own.request(before), decided, c.Inputs.State == "", func(ctx context.Context) (execution.Part, error) {
		return own.begin(ctx, in)
	})
}

// unattended goes on with an execution without a request.
type unattended struct{ *call }

// Ended implements [execution.Unattended].
func (u unattended) Ended(ctx context.Context, took time.Duration, err error) {
	u.server.record(ctx, "execute_code", u.call, took, err)
}

// Resume goes on with executions of an owner (empty: of everybody) that wait for a person,
// when somebody has decided and no request is there to do it, until ctx ends. What comes of
// them is kept for an hour for who asks.
func (s *Server) Resume(ctx context.Context, owner session.Owner) { s.executions.Resume(ctx, owner) }

// Close stops what runs without a request, and waits for it. It works twice.
func (s *Server) Close() { s.executions.Close() }

// Waiting is what an execution waits for.
type Waiting struct {
	ExecutionID string       `json:"execution_id"`
	Approvals   []WaitingFor `json:"approvals"`
}

// WaitingFor is a call that a person has to allow. What its server calls the tool, and the
// arguments, are the beginnings of them, as people are shown them.
type WaitingFor struct {
	ID        string `json:"id"`
	Server    string `json:"server"`
	Tool      string `json:"tool"`
	Arguments string `json:"arguments"` // as JSON
}

// waitingFor tells what an execution waits for.
func (s *Server) waitingFor(res session.Result, owner string) *Waiting {
	w := &Waiting{ExecutionID: res.Execution, Approvals: []WaitingFor{}}
	for _, id := range res.Waiting {
		one := WaitingFor{ID: id}
		if s.config.Approvals != nil {
			if a, err := s.config.Approvals.Get(owner, id); err == nil {
				one.Server, one.Tool, one.Arguments = a.Server, shortened(textsafe.Escape(a.Tool), 200, a.ID), shortened(textsafe.Escape(string(a.Arguments)), 500, a.ID)
			}
		}
		w.Approvals = append(w.Approvals, one)
	}
	return w
}

// shortened is the beginning of a text, which says where all of it is read.
func shortened(text string, n int, id string) string {
	if len(text) <= n {
		return text
	}
	return fmt.Sprintf("%s… (%d bytes; before somebody allows it: paddock approvals show %s)", textsafe.Cut(text, n), len(text), id)
}

// unansweredHint is for a program that waited in a call of the tool until its time was up.
const unansweredHint = "it waited for a person to allow %s until its time was up: call it as await NAME.aio(...), which waits without a limit, or give a larger timeout and decide meanwhile with paddock approvals ls"

// describeUnanswered names the tool of a call that a run which has ended waited for last, and
// that is still undecided; it is empty where there is none.
func (s *Server) describeUnanswered(res session.Result, owner string) (called string) {
	if s.config.Approvals == nil {
		return ""
	}
	all, err := s.config.Approvals.List(owner)
	if err != nil {
		return "" // the hint says less then
	}
	for _, a := range all {
		if a.Execution == res.Execution && a.State == approval.Withdrawn {
			called = textsafe.Escape(a.Server + "." + a.Tool)
		}
	}
	return called
}

// lines tell a model what a person can do, and how it goes on.
func (w *Waiting) lines() []string {
	lines := []string{"waiting: the program has stopped at calls that a person has to allow, and goes on from there"}
	ids := ""
	for _, a := range w.Approvals {
		lines = append(lines, fmt.Sprintf("- %s: %s.%s %s", a.ID, a.Server, a.Tool, a.Arguments))
		ids += " " + a.ID
	}
	return append(lines, fmt.Sprintf("Ask the person to decide: paddock approvals grant%s (or deny). Then call execute_code with execution_id %q and no code; do not run the code again.", ids, w.ExecutionID))
}
