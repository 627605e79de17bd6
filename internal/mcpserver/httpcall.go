package mcpserver

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/fault"
	"paddock/internal/mcpserver/execution"
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
// session; nil: it has none.
//
// A client that goes away stops the run, at once or, where its stream could be
// resumed, after resumeTime.
func (h *Handler) call(w http.ResponseWriter, r *http.Request, m *message, ms *mcpSession) {
	t := h.server.tools[m.Params.Name]
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	defer cancel(nil)
	defer context.AfterFunc(h.ctx, func() { cancel(context.Cause(h.ctx)) })()
	a := newReply(w, r, m, ms)
	a.kept = &h.kept
	if m.isModern() {
		a.serverInfo = h.server.implementation()
	}
	if ms != nil {
		if !ms.begin(m.ID, cancel) {
			refuseHTTP(w, http.StatusBadRequest, refuse(m.ID, codeInvalidRequest, "invalid request: the id %s is of a call that is still running", m.ID))
			return
		}
		defer ms.done(m.ID)
	}
	c := &call{server: h.server, client: m.Params.Meta.Client, quirks: m.Params.Meta.Capabilities.quirks(m.Params.Meta.Client), meta: m.Params.Meta.trace()}
	from := Caller{Header: r.Header}
	if ms != nil {
		c.client, c.quirks, from.SessionID = ms.client, ms.quirks, ms.id
	}
	if len(m.Params.Meta.Token) > 0 && a.canStream {
		c.notify = a.progress
	}
	switch {
	case ms != nil && ms.asks && a.canStream:
		c.asker = h.server.elicitOverStream(a)
	case m.isModern() && m.Params.Meta.Capabilities.elicits():
		c.inputs = &execution.InputResponses{}
	}
	defer context.AfterFunc(r.Context(), func() {
		if cause := context.Cause(r.Context()); cause != context.Canceled { // the server has a reason: the client is there
			cancel(cause)
			return
		}
		a.lost(func() { cancel(errGone) })
	})()
	if h.tasks != nil && m.knowsTasks() && t.mayTakeLong {
		h.asTask(ctx, a, c, t, from, m)
		return
	}
	a.waitAtMost(streamAfter)
	a.result(c.serve(ctx, t, from, m.Params.Arguments))
}

// asTask runs a tool that may become a task: then the run goes on without its
// request.
func (h *Handler) asTask(ctx context.Context, a *reply, c *call, t tool, from Caller, m *message) {
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	c.notify, c.inputs = nil, nil // a task has its status instead
	c.task = execution.NewTaskQuestions(m.Params.Meta.Capabilities.elicits() && h.server.config.AskClient)
	done := make(chan *mcp.CallToolResult, 1)
	go func() { done <- c.serve(work, t, from, m.Params.Arguments) }()
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
	case <-c.task.News(): // a person may take their time
	}
	if !stop() { // it is being stopped
		a.result(<-done)
		return
	}
	owner, err := h.server.bind(ctx, from)
	if err != nil {
		cancel(err)
		a.result(failure(err))
		return
	}
	result := func() json.RawMessage { return wireOf(<-done).appendTo(nil) }
	created, err := h.tasks.Create(owner.Owner, t.definition.Name, cancel, result, c.task)
	if err != nil { // then the client waits for it after all
		h.server.log.Warn("a call cannot become a task", "cause", err)
		defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
		a.result(<-done)
		return
	}
	a.write(encoded(created))
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
		return append(b, encoded(map[string]any{"_meta": r.Meta, "resultType": r.Type, "inputRequests": r.Inputs, "requestState": r.State})...)
	}
	b = append(b, '{')
	if r.Meta != nil {
		b = append(append(append(b, `"_meta":`...), encoded(r.Meta)...), ',')
	}
	b = append(b, `"content":[`...)
	for k, c := range r.Content {
		if k > 0 {
			b = append(b, ',')
		}
		if t, ok := c.(*mcp.TextContent); ok && t.Meta == nil && t.Annotations == nil {
			b = append(append(append(b, `{"type":"text","text":`...), encoded(t.Text)...), '}')
		} else {
			b = append(b, encoded(c)...)
		}
	}
	b = append(b, ']')
	if data, ok := r.Structured.(json.RawMessage); ok && len(data) > 0 {
		b = append(append(b, `,"structuredContent":`...), data...)
	} else if !ok && r.Structured != nil {
		b = append(append(b, `,"structuredContent":`...), encoded(r.Structured)...)
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
