package transport

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	parsing "github.com/segmentio/encoding/json"

	"paddock/internal/mcpserver/execution"
)

// TasksExtension is what a client declares that knows tasks.
const TasksExtension = "io.modelcontextprotocol/tasks"

// message is what the short way has to know of a request. Of a batch, and of
// what is not shaped like this, it is empty: the SDK has it.
type message struct {
	answer *reaction // set: it is an answer to a request of ours, or of the SDK's

	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		// Of tools/call.
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		// Of what answers an input_required, which the SDK passes on, and of tasks/update.
		Responses json.RawMessage `json:"inputResponses"`
		State     json.RawMessage `json:"requestState"`
		// Of initialize.
		Version      string              `json:"protocolVersion"`
		Client       *mcp.Implementation `json:"clientInfo"`
		Capabilities *capabilities       `json:"capabilities"`
		// Of notifications/cancelled.
		RequestID json.RawMessage `json:"requestId"`
		// Of tasks/get, tasks/update and tasks/cancel.
		TaskID string `json:"taskId"`

		Meta meta `json:"_meta"`
	} `json:"params"`
}

// meta is what goes along with a request.
type meta struct {
	Token        json.RawMessage     `json:"progressToken"`
	Version      string              `json:"io.modelcontextprotocol/protocolVersion"`
	Client       *mcp.Implementation `json:"io.modelcontextprotocol/clientInfo"`
	Capabilities *capabilities       `json:"io.modelcontextprotocol/clientCapabilities"`
	TraceParent  any                 `json:"traceparent"` // whatever it is, it stops no call
	TraceState   any                 `json:"tracestate"`
	Baggage      any                 `json:"baggage"`
}

// trace is what a client says of its trace, as telemetry takes it; nil: nothing.
func (m *meta) trace() map[string]any {
	if m.TraceParent == nil && m.Baggage == nil {
		return nil
	}
	return map[string]any{"traceparent": m.TraceParent, "tracestate": m.TraceState, "baggage": m.Baggage}
}

type capabilities struct {
	Extensions  map[string]any               `json:"extensions"`
	Elicitation *mcp.ElicitationCapabilities `json:"elicitation"`
}

// client is one that declares this.
func (c *capabilities) client(i *mcp.Implementation) Client {
	if c == nil {
		return ClientOf(i, nil)
	}
	return ClientOf(i, c.Extensions)
}

// elicits reports whether a client that declares this can ask its user.
func (c *capabilities) elicits() bool { return c != nil && execution.CanElicit(c.Elicitation) }

func (m *message) isModern() bool { return IsModern(m.Params.Meta.Version) }

// knowsTasks reports whether the client declared tasks with this very request.
func (m *message) knowsTasks() bool {
	c := m.Params.Meta.Capabilities
	return c != nil && c.Extensions[TasksExtension] != nil
}

// decode checks a body as stdio checks a line, and gives its message.
func (h *Handler) decode(body []byte) (*message, *refusal) {
	m := &message{}
	if len(body) > 0 && body[0] == '[' {
		return m, h.checkBatch(body)
	}
	head, err := inspect(body)
	if err != nil {
		_, no := decodeMessage(body) // says what is wrong with it
		return nil, no
	}
	if id := usable(head.id); head.request && (head.id == nil || id != nil) {
		if parseMessage(body, m) != nil {
			*m = message{}
		}
		m.ID = id
		return m, nil
	}
	_, no := decodeMessage(body)
	if no == nil && head.reply {
		m.answer = answerOf(body, head.id)
	}
	return m, no
}

// answerOf reads an answer; nil: it is none that anybody can be waiting for.
func answerOf(body []byte, id json.RawMessage) *reaction {
	var one struct {
		Result json.RawMessage `json:"result"`
	}
	if id = usable(id); id == nil {
		return nil
	}
	if _, err := parsing.Parse(body, &one, parsing.DontMatchCaseInsensitiveStructFields); err != nil {
		return nil
	}
	return &reaction{id, one.Result}
}

func (h *Handler) checkBatch(body []byte) *refusal {
	var parts []json.RawMessage
	if _, err := inspect(body); err != nil || json.Unmarshal(body, &parts) != nil {
		return refuse(nil, jsonrpc.CodeParseError, "parse error: not JSON that everybody reads the same")
	}
	if len(parts) == 0 || len(parts) > maxBatch {
		return refuse(nil, jsonrpc.CodeInvalidRequest, "invalid request: a batch has 1 to %d messages", maxBatch)
	}
	return nil
}

// parseMessage decodes without Go's tolerance for a key's upper and lower case,
// as the SDK does: both must read the same.
func parseMessage(body []byte, m *message) error {
	_, err := parsing.Parse(body, m, parsing.DontMatchCaseInsensitiveStructFields|parsing.DontCopyRawMessage|parsing.DontCopyString)
	return err
}

// callsOurs reports whether a request is an ordinary call of one of paddock's own
// tools. Whatever is wrong or special about it is not: the SDK says what.
func (h *Handler) callsOurs(r *http.Request, m *message) bool {
	if m.Method != "tools/call" || m.ID == nil || m.Params.Responses != nil || m.Params.State != nil {
		return false
	}
	if t, ok := h.server.Tool(m.Params.Name); !ok || !mayUse(h.allowed(r.Context()), t.Set) {
		return false
	}
	version := r.Header.Get(headerVersion)
	if !IsModern(version) {
		return m.Params.Meta.Version == "" && (version == "" || legacyVersions[version])
	}
	return version == Modern && m.Params.Meta.Version == Modern && m.Params.Meta.Capabilities != nil &&
		r.Header.Get(headerMethod) == m.Method && r.Header.Get(headerName) == m.Params.Name && sameParams(r.Header, m.Params.Arguments)
}

var legacyVersions = map[string]bool{"2024-11-05": true, "2025-03-26": true, "2025-06-18": true, "2025-11-25": true}

// sameParams reports whether the headers repeat the arguments that they have to,
// in the plainest way.
func sameParams(h http.Header, arguments json.RawMessage) bool {
	var in struct {
		Session *string `json:"session_id"`
	}
	given := h.Values(headerParam + SessionHeader)
	for name := range h {
		if strings.HasPrefix(name, headerParam) && name != headerParam+SessionHeader {
			return false
		}
	}
	if len(arguments) > 0 {
		if _, err := parsing.Parse(arguments, &in, parsing.DontMatchCaseInsensitiveStructFields); err != nil {
			return false
		}
	}
	if in.Session == nil {
		return len(given) == 0
	}
	return len(given) == 1 && given[0] == *in.Session
}

// SessionHeader is under what name a modern client repeats a call's session in
// a header, for whoever passes requests on by it.
const SessionHeader = "Session-Id"

// mayUse reports whether a set is one of these; nil: all are.
func mayUse(only []string, set string) bool { return only == nil || slices.Contains(only, set) }
