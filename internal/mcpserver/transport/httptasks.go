package transport

import (
	"fmt"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/session"
)

// taskMethods are those of the tasks extension.
var taskMethods = map[string]bool{"tasks/get": true, "tasks/update": true, "tasks/cancel": true}

// serveTask answers one request of the extension.
func (h *Handler) serveTask(w http.ResponseWriter, r *http.Request, m *message, owner session.Owner) {
	result, no := h.answerTask(r, m, owner)
	w.Header().Set("Content-Type", "application/json")
	if no != nil {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write(Encoded(map[string]any{"jsonrpc": "2.0", "id": m.ID, "error": no})) // who is gone needs no answer
		return
	}
	result["resultType"] = "complete"
	_, _ = w.Write(Encoded(response{JSONRPC: "2.0", ID: m.ID, Result: result}))
}

func (h *Handler) answerTask(r *http.Request, m *message, owner session.Owner) (map[string]any, *jsonrpc.Error) {
	meta := m.Params.Meta
	switch {
	case m.ID == nil:
		return nil, &jsonrpc.Error{Code: codeInvalidRequest, Message: "invalid request: it has no id"}
	case meta.Version != Modern, meta.Capabilities == nil:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "invalid params: _meta says neither the protocol's version nor the client's capabilities"}
	case r.Header.Get(headerVersion) != Modern, r.Header.Get(headerMethod) != m.Method, r.Header.Get(headerName) != m.Params.TaskID:
		return nil, &jsonrpc.Error{Code: mcp.CodeHeaderMismatch, Message: fmt.Sprintf("%s, %s and %s do not repeat what the body says", headerVersion, headerMethod, headerName)}
	case !m.knowsTasks():
		return nil, &jsonrpc.Error{
			Code: mcp.CodeMissingRequiredClientCapabilities, Message: "the client did not declare " + TasksExtension,
			Data: Encoded(map[string]any{"requiredCapabilities": map[string]any{"extensions": map[string]any{TasksExtension: map[string]any{}}}}),
		}
	}
	id := m.Params.TaskID
	switch m.Method {
	case "tasks/get":
		return h.tasks.Get(owner, id)
	case "tasks/update":
		return map[string]any{}, h.tasks.Answer(owner, id, m.Params.Responses)
	}
	return map[string]any{}, h.tasks.Cancel(owner, id)
}
