package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/approval"
	"paddock/internal/fault"
	"paddock/internal/session"
	"paddock/internal/textsafe"
)

// elicitor asks a client's user about one call, and waits for as long as ctx.
type elicitor func(ctx context.Context, a approval.Approval) verdict

// verdict is what a client's user said.
type verdict string

const (
	dismissed verdict = "" // nothing
	allowed   verdict = "allow"
	refused   verdict = "deny"
)

// decide keeps what a client's user said. Whoever was faster counts.
func (s *Server) decide(ctx context.Context, a approval.Approval, v verdict) {
	if v == dismissed {
		return
	}
	_, err := s.config.Approvals.Decide(context.WithoutCancel(ctx), a.Owner, a.ID, approval.Decision{By: a.Owner, Grant: v == allowed, Reason: approval.ThroughClient})
	if err != nil && fault.KindOf(err) != fault.Conflict {
		s.log.WarnContext(ctx, "what a person decided cannot be kept", "approval", a.ID, "cause", fault.CauseOf(err))
	}
}

// maxShown bounds how much of a call a question shows, in characters: what a person cannot
// read at a glance they read elsewhere, and decide there.
const maxShown = 4000

// shownWhole tells whether a question shows all that its call is. Of any other one the
// client's user can only deny: a person allows what they have seen.
func shownWhole(a approval.Approval) bool {
	return utf8.RuneCountInString(textsafe.Escape(a.Server)+textsafe.Escape(a.Tool)+textsafe.Escape(string(a.Arguments))) <= maxShown
}

// elicitParams is the question as every era of the protocol has it. What the call's server and
// the program say in it is data, each on lines of its own.
func elicitParams(a approval.Approval) *mcp.ElicitParams {
	message, decisions := "A program wants to call a tool of another server. Allow this call, once?", []any{string(refused), string(allowed)}
	arguments := textsafe.Escape(string(a.Arguments))
	if !shownWhole(a) {
		message = fmt.Sprintf("A program wants to call a tool of another server, with more than can be shown here. Here it can be denied. To allow it, read all of it with paddock approvals show %s, then: paddock approvals grant %s", a.ID, a.ID)
		arguments = ends(arguments, maxShown/2)
		decisions = decisions[:1]
	}
	message += fmt.Sprintf("\n\nserver: %s\ntool: %s\narguments: %s", ends(textsafe.Escape(a.Server), maxShown/4), ends(textsafe.Escape(a.Tool), maxShown/4), arguments)
	return &mcp.ElicitParams{
		Mode: "form", Message: message,
		RequestedSchema: &jsonschema.Schema{
			Type: "object", Required: []string{decisionField},
			Properties: map[string]*jsonschema.Schema{decisionField: {
				Type: "string", Title: "Decision", Description: "Whether the call is made", Enum: decisions,
			}},
		},
	}
}

// ends is a text of at most n characters, or the beginning and the end of a longer one,
// on lines that say so, with its size.
func ends(text string, n int) string {
	r := []rune(text)
	if len(r) <= n {
		return text
	}
	return fmt.Sprintf("(%d characters)\nbegins: %s\nends: %s", len(r), string(r[:n-n/4]), string(r[len(r)-n/4:]))
}

const decisionField = "decision"

// verdictOf reads a client's answer. Only what says so allows, and only what was offered.
func verdictOf(a approval.Approval, r *mcp.ElicitResult) verdict {
	switch {
	case r == nil:
		return dismissed
	case r.Action == "accept" && r.Content[decisionField] == string(allowed) && !shownWhole(a):
		return dismissed
	case r.Action == "accept" && r.Content[decisionField] == string(allowed):
		return allowed
	case r.Action == "accept", r.Action == "decline":
		return refused
	}
	return dismissed
}

// supportsElicitation tells whether a client can show a form. One that says nothing of kinds can.
func supportsElicitation(c *mcp.ElicitationCapabilities) bool {
	return c != nil && (c.Form != nil || c.URL == nil)
}

// elicitOverSession asks over the SDK's connection to a client of an era with such requests.
func (s *Server) elicitOverSession(session *mcp.ServerSession) elicitor {
	return func(ctx context.Context, a approval.Approval) verdict {
		res, err := session.Elicit(ctx, elicitParams(a))
		if err != nil {
			if ctx.Err() == nil {
				s.log.InfoContext(ctx, "a client could not be asked", "approval", a.ID, "cause", err)
			}
			return dismissed
		}
		return verdictOf(a, res)
	}
}

// elicitOverStream asks on the stream of an HTTP reply.
func (s *Server) elicitOverStream(r *reply) elicitor {
	return func(ctx context.Context, a approval.Approval) verdict {
		data, err := r.ask(ctx, "elicitation/create", elicitParams(a))
		var res mcp.ElicitResult
		if err == nil {
			err = json.Unmarshal(data, &res)
		}
		if err != nil {
			if ctx.Err() == nil {
				s.log.InfoContext(ctx, "a client could not be asked", "approval", a.ID, "cause", err)
			}
			return dismissed
		}
		return verdictOf(a, &res)
	}
}

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
func (s *Server) waitingFor(r partialResult, owner string) *Waiting {
	w := &Waiting{ExecutionID: r.res.Execution, Approvals: []WaitingFor{}}
	for _, id := range r.res.Waiting {
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
// that nobody decided about; empty: there is none.
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
