package transport

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/approval"
	"paddock/internal/mcpserver/execution"
)

// elicitOverStream asks on the stream of an HTTP reply.
func (h *Handler) elicitOverStream(r *reply) execution.Elicitor {
	return func(ctx context.Context, a approval.Approval) execution.Verdict {
		data, err := r.ask(ctx, "elicitation/create", execution.Question(a))
		var res mcp.ElicitResult
		if err == nil {
			err = json.Unmarshal(data, &res)
		}
		if err != nil {
			if ctx.Err() == nil {
				h.base.Log.InfoContext(ctx, "a client could not be asked", "approval", a.ID, "cause", err)
			}
			return execution.Dismissed
		}
		return execution.VerdictOf(a, &res)
	}
}

// reaction is what a client answers to a request of ours.
type reaction struct {
	id     json.RawMessage
	result json.RawMessage // nil: it is an error
}

// errNotAsked says that a client could not be asked, or would not say.
var errNotAsked = errors.New("the client was not asked, or gave an error")

// ask sends the client a request on the stream of this reply, and waits for its answer.
// When ctx ends the client is told that nobody waits for it any more.
func (a *reply) ask(ctx context.Context, method string, params any) (json.RawMessage, error) {
	id := Encoded("paddock-" + rand.Text())
	came := a.session.expect(string(id))
	defer a.session.unexpect(string(id))
	if !a.tell(Encoded(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})) {
		return nil, errNotAsked
	}
	select {
	case one := <-came:
		if one.result == nil {
			return nil, errNotAsked
		}
		return one.result, nil
	case <-ctx.Done():
		a.tell(Encoded(map[string]any{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": map[string]any{"requestId": id}}))
		return nil, context.Cause(ctx)
	}
}

// tell sends a message before the result, unless that is sent already.
func (a *reply) tell(data json.RawMessage) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return false
	}
	a.openLocked()
	a.eventLocked(data)
	return true
}

// expect gives what the answer to a request with this id will come over.
func (m *mcpSession) expect(id string) <-chan reaction {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.expected == nil {
		m.expected = map[string]chan reaction{}
	}
	came := make(chan reaction, 1)
	m.expected[id] = came
	return came
}

func (m *mcpSession) unexpect(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.expected, id)
}

// take takes an answer, and reports whether it is one to a request of ours: another client's
// is not, and a second one neither.
func (m *mcpSession) take(one *reaction) bool {
	if one == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	came := m.expected[string(one.id)]
	if came == nil {
		return false
	}
	delete(m.expected, string(one.id))
	came <- *one
	return true
}
