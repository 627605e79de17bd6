package mcpserver

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/approval"
)

// taskInput is the state of a task that a person is needed for.
const taskInput = "input_required"

// taskAsks are the questions of a call that may become a task. A task goes on for as long
// as it takes somebody to decide.
type taskAsks struct {
	news    chan struct{} // holds a token when there is a new one
	elicits bool          // the client can ask its user
	pursuit atomic.Pointer[execution]
}

// open are the calls that wait for a person now.
func (t *taskAsks) open() []approval.Approval {
	if t == nil {
		return nil
	}
	p := t.pursuit.Load()
	if p == nil || p.hasEnded() {
		return nil
	}
	return p.server.pending(p.open())
}

// describe adds to a task that runs what it waits for.
func (t *taskAsks) describe(fields map[string]any) {
	open := t.open()
	if len(open) == 0 {
		return
	}
	var ids []string
	for _, a := range open {
		ids = append(ids, a.ID)
	}
	fields["statusMessage"] = fmt.Sprintf("a person has to decide: paddock approvals grant %s", strings.Join(ids, " "))
	if t.elicits {
		fields["status"], fields["inputRequests"] = taskInput, questionsOf(open)
	}
}

// hear takes what a client's user said about what a task asked.
func (t *taskAsks) hear(raw json.RawMessage) *jsonrpc.Error {
	var said map[string]*mcp.ElicitResult
	if len(raw) == 0 {
		return nil
	}
	if err := json.Unmarshal(raw, &said); err != nil {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "invalid params: inputResponses"}
	}
	if t == nil || !t.elicits {
		return nil // nothing was asked
	}
	for _, a := range t.open() {
		p := t.pursuit.Load()
		p.server.decide(p.ctx, a, verdictOf(a, said[a.ID]))
	}
	return nil
}
