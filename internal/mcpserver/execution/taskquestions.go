package execution

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

// TaskQuestions are the questions of a call that may become a task. A task goes on for as long
// as it takes somebody to decide.
type TaskQuestions struct {
	news      chan struct{} // holds a token when there is a new one
	elicits   bool          // the client can ask its user
	execution atomic.Pointer[Execution]
}

// NewTaskQuestions makes those of one call, whose client can ask its user or not.
func NewTaskQuestions(elicits bool) *TaskQuestions {
	return &TaskQuestions{news: make(chan struct{}, 1), elicits: elicits}
}

// News holds a token when there is a new question.
func (t *TaskQuestions) News() <-chan struct{} { return t.news }

// open are the calls that wait for a person now.
func (t *TaskQuestions) open() []approval.Approval {
	if t == nil {
		return nil
	}
	x := t.execution.Load()
	if x == nil || x.hasEnded() {
		return nil
	}
	return x.registry.pending(x.open())
}

// describe adds to a task that runs what it waits for.
func (t *TaskQuestions) describe(fields map[string]any) {
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
func (t *TaskQuestions) hear(raw json.RawMessage) *jsonrpc.Error {
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
		x := t.execution.Load()
		x.registry.decide(x.ctx, a, VerdictOf(a, said[a.ID]))
	}
	return nil
}
