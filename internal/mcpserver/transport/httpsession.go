package transport

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"paddock/internal/fault"
	"paddock/internal/session"
)

const codeInvalidRequest = jsonrpc.CodeInvalidRequest

// sweepEvery is how often it is looked for MCP sessions that nobody uses.
const sweepEvery = time.Minute

var errEnded = fault.New(fault.Cancelled, "the client ended its MCP session")

// mcpSession is one legacy client's session: what the client was told to call
// Mcp-Session-Id. The SDK has one of the same id.
type mcpSession struct {
	id     string
	owner  session.Owner
	scope  string // of the token that opened it, see scopeOf
	client Client
	asks   bool                    // its user can be asked
	end    context.CancelCauseFunc // of what the SDK runs for it

	mu      sync.Mutex // guards what follows
	used    time.Time
	using   int                                // requests that are being served
	calls   map[string]context.CancelCauseFunc // by the request's id
	streams []*stream                          // the oldest first
	// expected is where answers to our own requests go, by the requests' ids.
	expected map[string]chan reaction
}

// sessions are the MCP sessions that there are.
type sessions struct {
	mu   sync.Mutex // guards byID; taken before a session's own
	byID map[string]*mcpSession
}

// add enters a session. What it gives back has to end, so that its owner has at
// most so many.
func (s *sessions) add(m *mcpSession, most int) (surplus *mcpSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID == nil {
		s.byID = map[string]*mcpSession{}
	}
	n := 0
	for _, other := range s.byID {
		if other.owner != m.owner {
			continue
		}
		if n++; surplus == nil || other.lastUse().Before(surplus.lastUse()) {
			surplus = other
		}
	}
	s.byID[m.id] = m
	if n < most {
		return nil
	}
	return surplus
}

// use finds an owner's session, which release lets go of; nil: there is none.
// To another token of the owner's, with another scope, it does not exist: the
// SDK keeps offering what the first one could use.
func (s *sessions) use(id string, owner session.Owner, scope string) *mcpSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.byID[id]
	if m == nil || m.owner != owner || m.scope != scope {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.using++
	m.used = time.Now()
	return m
}

// remove reports whether the session was still there.
func (s *sessions) remove(m *mcpSession) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, there := s.byID[m.id]
	delete(s.byID, m.id)
	return there
}

func (s *sessions) all() []*mcpSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*mcpSession
	for _, m := range s.byID {
		all = append(all, m)
	}
	return all
}

// lastUse is now while requests are being served.
func (m *mcpSession) lastUse() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.using > 0 || len(m.calls) > 0 {
		return time.Now()
	}
	return m.used
}

func (m *mcpSession) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.using--
	m.used = time.Now()
}

// begin enters a call; false: one with this id is running.
func (m *mcpSession) begin(id json.RawMessage, cancel context.CancelCauseFunc) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, busy := m.calls[string(id)]; busy {
		return false
	}
	if m.calls == nil {
		m.calls = map[string]context.CancelCauseFunc{}
	}
	m.calls[string(id)] = cancel
	return true
}

func (m *mcpSession) done(id json.RawMessage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.calls, string(id))
}

// cancel cancels one of our calls, and reports whether it is one.
func (m *mcpSession) cancel(id json.RawMessage) bool {
	if len(id) == 0 {
		return false
	}
	m.mu.Lock()
	cancel := m.calls[string(idOf(id))]
	m.mu.Unlock()
	if cancel == nil {
		return false
	}
	cancel(context.Canceled)
	return true
}

func (m *mcpSession) newStream() *stream {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.streams) == keptStreams {
		m.streams = m.streams[1:]
	}
	s := newStream()
	m.streams = append(m.streams, s)
	return s
}

func (m *mcpSession) streamCalled(id string) *stream {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.streams {
		if s.id == id {
			return s
		}
	}
	return nil
}

// forgetStreams lets go of those that nobody can want any more.
func (m *mcpSession) forgetStreams(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := m.streams[:0]
	for _, s := range m.streams {
		if !s.over(now) {
			kept = append(kept, s)
		}
	}
	clear(m.streams[len(kept):])
	m.streams = kept
}

// opening watches the answer to an initialize for the session's id. The client
// cannot use the id before it is known here.
type opening struct {
	http.ResponseWriter
	opened func(id string)
	once   sync.Once
}

// WriteHeader passes the headers on.
func (o *opening) WriteHeader(status int) {
	o.begin()
	o.ResponseWriter.WriteHeader(status)
}

// Write passes the body on.
func (o *opening) Write(b []byte) (int, error) {
	o.begin()
	return o.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (o *opening) Unwrap() http.ResponseWriter { return o.ResponseWriter }

func (o *opening) begin() {
	o.once.Do(func() {
		if id := o.Header().Get(headerSession); id != "" {
			o.opened(id)
		}
	})
}

// initialize has the SDK open a session.
func (h *Handler) initialize(w http.ResponseWriter, r *http.Request, m *message, owner session.Owner) {
	acceptBoth(r)
	ending, end := context.WithCancelCause(h.ctx)
	opened := false
	h.legacy.ServeHTTP(&opening{ResponseWriter: w, opened: func(id string) {
		opened = true
		surplus := h.sessions.add(&mcpSession{
			id: id, owner: owner, scope: h.scopeOf(r.Context()), client: m.Params.Capabilities.client(m.Params.Client), asks: m.Params.Capabilities.elicits(), end: end, used: time.Now(),
		}, h.config.MaxSessions)
		if surplus != nil {
			go h.end(surplus)
		}
	}}, r.WithContext(withEnding(r.Context(), ending)))
	if !opened {
		end(nil)
	}
}

// scopeOf is what a request may use, in one word.
func (h *Handler) scopeOf(ctx context.Context) string {
	only := h.allowed(ctx)
	if only == nil {
		return "*"
	}
	only = slices.Clone(only)
	slices.Sort(only)
	return strings.Join(only, " ")
}

// end ends a session here and in the SDK. Its calls are cancelled first: the
// SDK would wait for its own.
func (h *Handler) end(m *mcpSession) {
	if !h.sessions.remove(m) {
		return
	}
	m.mu.Lock()
	for _, cancel := range m.calls {
		cancel(errEnded)
	}
	m.mu.Unlock()
	m.end(errEnded)
	h.server.SessionEnded(m.owner, m.id)
	r, err := http.NewRequestWithContext(context.Background(), http.MethodDelete, "/", http.NoBody)
	if err != nil {
		return
	}
	r.Header.Set(headerSession, m.id)
	h.legacy.ServeHTTP(nowhere{header: http.Header{}}, r)
}

// nowhere is for an answer that nobody reads.
type nowhere struct{ header http.Header }

// Header is never sent.
func (n nowhere) Header() http.Header { return n.header }

// Write takes everything.
func (nowhere) Write(b []byte) (int, error) { return len(b), nil }

// WriteHeader does nothing.
func (nowhere) WriteHeader(int) {}

// sweep ends sessions that nobody uses, until Close.
func (h *Handler) sweep() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			h.kept.sweep(now)
			if h.tasks != nil {
				h.tasks.Sweep(now)
			}
			for _, m := range h.sessions.all() {
				m.forgetStreams(now)
				if now.Sub(m.lastUse()) > h.config.IdleTime {
					h.end(m)
				}
			}
		case <-h.ctx.Done():
			return
		}
	}
}

// listen serves a stream by which a client only listens.
func (h *Handler) listen(w http.ResponseWriter, r *http.Request, sdk http.Handler) {
	acceptBoth(r)
	w.Header().Set("X-Accel-Buffering", "no")
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(h.draining, func() { cancel(context.Cause(h.draining)) })()
	alive := &keptAlive{ResponseWriter: &spoken{ResponseWriter: w}}
	stop := alive.start()
	defer stop()
	sdk.ServeHTTP(alive, r.WithContext(ctx))
}

// keptAlive says on a stream every now and then that it is there. The SDK
// writes each event at once.
type keptAlive struct {
	http.ResponseWriter
	mu     sync.Mutex // held while something is written
	stream bool       // guarded: the headers of one are out
}

func (k *keptAlive) start() (stop func()) {
	done, left := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(left)
		tick := time.NewTicker(aliveEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				k.say()
			case <-done:
				return
			}
		}
	}()
	return func() { close(done); <-left }
}

func (k *keptAlive) say() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stream {
		_, _ = k.ResponseWriter.Write([]byte(": alive\n\n")) // the request's context tells who is gone
		_ = http.NewResponseController(k.ResponseWriter).Flush()
	}
}

// WriteHeader passes the headers on.
func (k *keptAlive) WriteHeader(status int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stream = status == http.StatusOK && mediaType(k.Header().Get("Content-Type")) == "text/event-stream"
	k.ResponseWriter.WriteHeader(status)
}

// Write passes the body on.
func (k *keptAlive) Write(b []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ResponseWriter.Write(b)
}

// Flush sends what was written.
func (k *keptAlive) Flush() {
	k.mu.Lock()
	defer k.mu.Unlock()
	_ = http.NewResponseController(k.ResponseWriter).Flush()
}
