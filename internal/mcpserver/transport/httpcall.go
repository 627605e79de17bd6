package transport

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/fault"
	"paddock/internal/mcpserver/execution"
	"paddock/internal/session"
)

const (
	// streamAfter is when a call that is still running becomes a stream, so that
	// nobody in between takes the silence for a broken connection.
	streamAfter = 200 * time.Millisecond
	// taskAfter is when one becomes a task, for a client that knows tasks.
	taskAfter = 10 * time.Second
	// resumeTime is how long a call goes on whose stream has broken. Then it is
	// cancelled: nobody waits for it.
	resumeTime = time.Minute
)

var errGone = fault.New(fault.Cancelled, "the client went away")

// call runs one of paddock's own tools for a request. ms is the client's MCP
// session; nil: it has none. The request is owner's.
//
// A client that goes away stops the run, at once or, where its stream could be
// resumed, after resumeTime.
func (h *Handler) call(w http.ResponseWriter, r *http.Request, m *message, ms *mcpSession, owner session.Owner) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	defer cancel(nil)
	defer context.AfterFunc(h.ctx, func() { cancel(context.Cause(h.ctx)) })()
	a := newReply(w, r, m, ms)
	a.kept = &h.kept
	if m.isModern() {
		a.serverInfo = h.base.Implementation
	}
	if ms != nil {
		if !ms.begin(m.ID, cancel) {
			refuseHTTP(w, http.StatusBadRequest, refuse(m.ID, codeInvalidRequest, "invalid request: the id %s is of a call that is still running", m.ID))
			return
		}
		defer ms.done(m.ID)
	}
	c := h.callOf(r, m, ms, a)
	defer context.AfterFunc(r.Context(), func() {
		if cause := context.Cause(r.Context()); cause != context.Canceled { // the server has a reason: the client is there
			cancel(cause)
			return
		}
		a.lost(func() { cancel(errGone) })
	})()
	if t, ok := h.server.Tool(c.Tool); ok && t.MayTakeLong && h.tasks != nil && m.knowsTasks() {
		h.asTask(ctx, a, c, m, owner)
		return
	}
	a.waitAtMost(streamAfter)
	a.result(h.server.Call(ctx, c))
}

// callOf is the call that a request makes, which a answers.
func (h *Handler) callOf(r *http.Request, m *message, ms *mcpSession, a *reply) Call {
	meta := &m.Params.Meta
	c := Call{
		Tool: m.Params.Name, Arguments: m.Params.Arguments, Caller: Caller{Header: r.Header},
		Client: meta.Capabilities.client(meta.Client), Meta: meta.trace(),
	}
	if ms != nil {
		c.Client, c.Caller.SessionID = ms.client, ms.id
	}
	if len(meta.Token) > 0 && a.canStream {
		c.Notify = a.progress
	}
	switch {
	case ms != nil && ms.asks && a.canStream:
		c.Elicitor = h.elicitOverStream(a)
	case m.isModern() && meta.Capabilities.elicits():
		c.Inputs = &execution.InputResponses{}
	}
	return c
}

// asTask runs a tool that may become a task: then the run goes on without its
// request.
func (h *Handler) asTask(ctx context.Context, a *reply, c Call, m *message, owner session.Owner) {
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	c.Notify, c.Inputs = nil, nil // a task has its status instead
	c.Task = execution.NewTaskQuestions(m.Params.Meta.Capabilities.elicits() && h.base.AskClient)
	done := make(chan *mcp.CallToolResult, 1)
	go func() { done <- h.server.Call(work, c) }()
	timeout := h.config.TaskAfter
	if timeout == 0 {
		timeout = taskAfter
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case res := <-done:
		cancel(nil)
		a.result(res)
		return
	case <-timer.C:
	case <-c.Task.News(): // a person may take their time
	}
	if !stop() { // it is being stopped
		a.result(<-done)
		return
	}
	result := func() json.RawMessage { return wireOf(<-done).appendTo(nil) }
	created, err := h.tasks.Create(owner, c.Tool, cancel, result, c.Task)
	if err != nil { // then the client waits for it after all
		h.base.Log.Warn("a call cannot become a task", "cause", err)
		defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
		a.result(<-done)
		return
	}
	a.write(Encoded(created))
}

// wireResult is a CallToolResult as it goes over the wire. The SDK keeps to
// itself how it sets resultType.
type wireResult struct {
	Meta       map[string]any `json:"_meta,omitempty"`
	Content    []mcp.Content  `json:"content"`
	Structured any            `json:"structuredContent,omitempty"`
	IsError    bool           `json:"isError,omitempty"`
	Type       string         `json:"resultType,omitempty"`
	// In place of all but Meta and Type.
	Inputs mcp.InputRequestMap `json:"inputRequests,omitempty"`
	State  string              `json:"requestState,omitempty"`
}

// appendTo writes the result as JSON. Texts and structured content, which are
// nearly everything, are not looked at twice.
func (r wireResult) appendTo(b []byte) json.RawMessage {
	if r.Inputs != nil {
		return append(b, Encoded(map[string]any{"_meta": r.Meta, "resultType": r.Type, "inputRequests": r.Inputs, "requestState": r.State})...)
	}
	b = append(b, '{')
	if r.Meta != nil {
		b = append(append(append(b, `"_meta":`...), Encoded(r.Meta)...), ',')
	}
	b = append(b, `"content":[`...)
	for k, c := range r.Content {
		if k > 0 {
			b = append(b, ',')
		}
		if t, ok := c.(*mcp.TextContent); ok && t.Meta == nil && t.Annotations == nil {
			b = append(append(append(b, `{"type":"text","text":`...), Encoded(t.Text)...), '}')
		} else {
			b = append(b, Encoded(c)...)
		}
	}
	b = append(b, ']')
	if data, ok := r.Structured.(json.RawMessage); ok && len(data) > 0 {
		b = append(append(b, `,"structuredContent":`...), data...)
	} else if !ok && r.Structured != nil {
		b = append(append(b, `,"structuredContent":`...), Encoded(r.Structured)...)
	}
	if r.IsError {
		b = append(b, `,"isError":true`...)
	}
	if r.Type != "" {
		b = append(append(append(b, `,"resultType":"`...), r.Type...), '"')
	}
	return append(b, '}')
}

func wireOf(res *mcp.CallToolResult) wireResult {
	return wireResult{Content: res.Content, Structured: res.StructuredContent, IsError: res.IsError, Inputs: res.InputRequests, State: res.RequestState}
}

// response is a JSON-RPC response.
type response struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result,omitempty"`
}
