package execution

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/approval"
	"paddock/internal/fault"
	"paddock/internal/textsafe"
)

// Elicitor asks a client's user about one call, and waits for as long as ctx.
type Elicitor func(ctx context.Context, a approval.Approval) Verdict

// Verdict is what a client's user said.
type Verdict string

// What a client's user can say.
const (
	Dismissed Verdict = "" // nothing
	allowed   Verdict = "allow"
	refused   Verdict = "deny"
)

// decide keeps what a client's user said. Whoever was faster counts.
func (r *Registry) decide(ctx context.Context, a approval.Approval, v Verdict) {
	if v == Dismissed {
		return
	}
	_, err := r.config.Approvals.Decide(context.WithoutCancel(ctx), a.Owner, a.ID, approval.Decision{By: a.Owner, Grant: v == allowed, Reason: approval.ThroughClient})
	if err != nil && fault.KindOf(err) != fault.Conflict {
		r.config.Log.WarnContext(ctx, "what a person decided cannot be kept", "approval", a.ID, "cause", fault.CauseOf(err))
	}
}

// maxShown bounds how much of a call a question shows, in characters: what a person cannot
// read at a glance they read elsewhere, and decide there.
const maxShown = 4000

// shownWhole reports whether a question shows its whole call. Of any other one the
// client's user can only deny: a person allows what they have seen.
func shownWhole(a approval.Approval) bool {
	return utf8.RuneCountInString(textsafe.Escape(a.Server)+textsafe.Escape(a.Tool)+textsafe.Escape(string(a.Arguments))) <= maxShown
}

// Question is what a client is asked about an approval, in every era of the protocol. What the call's server and
// the program say in it is data, each on lines of its own.
func Question(a approval.Approval) *mcp.ElicitParams {
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

// VerdictOf reads a client's answer. Only what says so allows, and only what was offered.
func VerdictOf(a approval.Approval, r *mcp.ElicitResult) Verdict {
	switch {
	case r == nil:
		return Dismissed
	case r.Action == "accept" && r.Content[decisionField] == string(allowed) && !shownWhole(a):
		return Dismissed
	case r.Action == "accept" && r.Content[decisionField] == string(allowed):
		return allowed
	case r.Action == "accept", r.Action == "decline":
		return refused
	}
	return Dismissed
}

// CanElicit reports whether a client can show a form. One that says nothing of kinds can.
func CanElicit(c *mcp.ElicitationCapabilities) bool {
	return c != nil && (c.Form != nil || c.URL == nil)
}
