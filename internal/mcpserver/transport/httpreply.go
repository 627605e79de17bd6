package transport

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// aliveEvery is how often an open stream without news says that it is there.
const aliveEvery = 15 * time.Second

// reply is the answer to one call: JSON when the result comes soon, else a
// stream of events that ends with it. Which of them is decided late.
type reply struct {
	id                 json.RawMessage
	token              json.RawMessage
	serverInfo         *mcp.Implementation // of a modern reply; nil: it is legacy
	canJSON, canStream bool
	session            *mcpSession // where its stream can be resumed; nil: nowhere
	kept               *archive    // of what can be resumed after its end
	primes             bool

	mu     sync.Mutex // guards what follows
	w      http.ResponseWriter
	flush  *http.ResponseController
	timer  *time.Timer // opens the stream, then says that it is alive
	stream *stream     // nil: not open, or it cannot be resumed
	open   bool
	ended  bool
	gone   bool // nobody reads w
}

func newReply(w http.ResponseWriter, r *http.Request, m *message, ms *mcpSession) *reply {
	a := &reply{id: m.ID, token: m.Params.Meta.Token, session: ms, w: w, flush: http.NewResponseController(w)}
	a.canJSON, a.canStream = accepts(r)
	a.primes = ms != nil && r.Header.Get(headerVersion) >= "2025-11-25"
	return a
}

// waitAtMost has the stream opened when the result takes longer than d.
func (a *reply) waitAtMost(d time.Duration) {
	if !a.canStream {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timer = time.AfterFunc(d, a.tick)
}

// tick opens the stream, or says that it is still there.
func (a *reply) tick() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return
	}
	if !a.open {
		a.openLocked()
	} else if !a.gone {
		a.sendLocked([]byte(": alive\n\n"))
	}
	a.timer.Reset(aliveEvery)
}

func (a *reply) openLocked() {
	if a.open {
		return
	}
	a.open = true
	h := a.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	a.w.WriteHeader(http.StatusOK)
	if a.session != nil {
		a.stream = a.session.newStream()
	}
	if a.primes {
		a.eventLocked(nil)
		return
	}
	_ = a.flush.Flush() // what fails here fails again when something is sent
}

// progress tells how far the call has come.
func (a *reply) progress(done float64, message string) {
	data := Encoded(map[string]any{"jsonrpc": "2.0", "method": "notifications/progress",
		"params": map[string]any{"progressToken": a.token, "progress": done, "message": message}})
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return
	}
	a.openLocked()
	a.eventLocked(data)
}

// eventLocked sends one event, and keeps it for those who have missed it.
func (a *reply) eventLocked(data []byte) {
	var id string
	if a.stream != nil {
		id = a.stream.add(data)
	}
	if !a.gone {
		a.sendLocked(eventText(id, data))
	}
}

func (a *reply) sendLocked(text []byte) {
	if _, err := a.w.Write(text); err != nil || a.flush.Flush() != nil {
		a.gone = true
	}
}

// eventText is one event as it goes over the wire.
func eventText(id string, data []byte) []byte {
	b := make([]byte, 0, len(id)+len(data)+40)
	if len(data) > 0 {
		b = append(b, "event: message\n"...)
	}
	if id != "" {
		b = fmt.Appendf(b, "id: %s\n", id)
	}
	b = append(b, "data: "...)
	b = append(b, data...)
	return append(b, "\n\n"...)
}

// result sends a tool's result, and ends the reply.
func (a *reply) result(res *mcp.CallToolResult) {
	wire := wireOf(res)
	if a.serverInfo != nil {
		wire.Type, wire.Meta = "complete", map[string]any{mcp.MetaKeyServerInfo: a.serverInfo}
		if wire.Inputs != nil {
			wire.Type = "input_required"
		}
	}
	a.write(wire.appendTo(nil))
}

// write sends what stands behind "result", and ends the reply.
func (a *reply) write(result json.RawMessage) {
	data := make([]byte, 0, len(result)+len(a.id)+40)
	data = append(append(append(data, `{"jsonrpc":"2.0","id":`...), a.id...), `,"result":`...)
	data = append(append(data, result...), '}')
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer != nil {
		a.timer.Stop()
	}
	a.ended = true
	if !a.canJSON {
		a.openLocked()
	}
	if a.open {
		a.eventLocked(data)
		if a.stream != nil {
			a.stream.end()
			a.kept.keep(a.session.owner, a.stream)
		}
		return
	}
	if a.gone {
		return
	}
	a.w.Header().Set("Content-Type", "application/json")
	_, _ = a.w.Write(data) // who is gone needs no answer
}

// lost is called when the connection is gone: give up is called at once, or
// when nobody has resumed the stream in time.
func (a *reply) lost(giveUp func()) {
	a.mu.Lock()
	a.gone = true
	s, ended := a.stream, a.ended
	a.mu.Unlock()
	switch {
	case ended:
	case s == nil:
		giveUp()
	default:
		s.abandoned(giveUp)
	}
}
