package transport

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/fault"
	"paddock/internal/mcpserver/execution"
	"paddock/internal/session"
)

// Modern is the first version of the protocol without sessions: each request
// stands for itself. What came before is called legacy here.
const Modern = "2026-07-28"

// The headers of the protocol.
const (
	headerVersion = "Mcp-Protocol-Version"
	headerSession = "Mcp-Session-Id"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
	headerParam   = "Mcp-Param-"
	headerLast    = "Last-Event-ID"
)

// Config sets a [Handler] up.
type Config struct {
	// MaxBody bounds a request's body, in bytes; zero: 16 MiB.
	MaxBody int64
	// Tools gives the sets that a request may use; nil, or a nil list: all.
	Tools func(context.Context) []string
	// Beyond answers a call of a tool of a set that the request may not use, and
	// reports whether it did; nil: to who may not use it a tool does not exist.
	Beyond func(w http.ResponseWriter, r *http.Request, set string) bool
	// IdleTime is how long a client's MCP session is kept after its last
	// request; zero: an hour. Its workspace stays, and has a time of its own.
	IdleTime time.Duration
	// MaxSessions bounds the MCP sessions of one owner; beyond it the longest
	// unused one ends. Zero: 100.
	MaxSessions int
	// TaskAfter is how long a call is waited for before it becomes a task, where
	// the client knows tasks. Zero: 10 s.
	TaskAfter time.Duration
	// TasksDir is where tasks are kept; empty: there are none.
	TasksDir string
	// Grace is how long after Drain tasks may go on; zero: not at all.
	Grace time.Duration
	// Path is where the Handler is served; below it, KeptPath and a session's name make
	// an address whose calls go on in that session. Empty: at the root.
	Path string
}

// Handler serves MCP over HTTP, to clients of every generation at one address:
// legacy ones with a session, streams that can be resumed and a stream for
// notifications; modern ones; and plain ones, which send one tools/call and
// nothing before it. Who makes a request must be settled before: by
// Server.Owner, from the request's context.
//
// Calls of paddock's own tools take a short way (httpcall.go): a run is worth
// more than the SDK's decoding of it. All else, and whatever is unusual about
// such a call, is the SDK's.
type Handler struct {
	server   Server
	base     Base
	config   Config
	sessions sessions
	bodies   bodies
	kept     archive
	tasks    *execution.Tasks // nil: there are none

	legacy, modern, plain http.Handler // the SDK's

	ctx      context.Context // ends with Close
	close    context.CancelCauseFunc
	draining context.Context // ends with Drain
	drain    context.CancelCauseFunc
	drained  atomic.Int64 // when, in nanoseconds since 1970; 0: not yet
}

// NewHandler makes one. It ends with Close.
func NewHandler(server Server, base Base, config Config) (*Handler, error) {
	if config.MaxBody == 0 {
		config.MaxBody = maxLine
	}
	if config.IdleTime == 0 {
		config.IdleTime = time.Hour
	}
	if config.MaxSessions == 0 {
		config.MaxSessions = 100
	}
	h := &Handler{server: server, base: base, config: config}
	h.ctx, h.close = context.WithCancelCause(context.Background())
	h.draining, h.drain = context.WithCancelCause(h.ctx)
	if config.TasksDir != "" {
		var err error
		if h.tasks, err = execution.OpenTasks(h.ctx, config.TasksDir, base.Log); err != nil {
			return nil, err
		}
	}
	offering := func(alone bool) func(*http.Request) *mcp.Server {
		return func(r *http.Request) *mcp.Server {
			return server.SDK(h.allowed(r.Context()), h.tasks != nil, alone && r.Header.Get(headerKept) == "")
		}
	}
	lone := offering(true)
	options := mcp.StreamableHTTPOptions{
		MaxRequestBodyBytes: config.MaxBody, DisableLocalhostProtection: true, // both are the web server's
		Logger: SDKLog(base.Log), PropagateRequestCancellation: true,
	}
	h.plain = mcp.NewStreamableHTTPHandler(lone, changed(options, func(o *mcp.StreamableHTTPOptions) { o.Stateless, o.JSONResponse = true, true }))
	h.modern = mcp.NewStreamableHTTPHandler(lone, changed(options, func(o *mcp.StreamableHTTPOptions) { o.Stateless = true }))
	store := mcp.NewMemoryEventStore(nil)
	store.SetMaxBytes(64 << 20)
	h.legacy = mcp.NewStreamableHTTPHandler(offering(false), changed(options, func(o *mcp.StreamableHTTPOptions) { o.EventStore = store }))
	go h.sweep()
	return h, nil
}

func changed(o mcp.StreamableHTTPOptions, change func(*mcp.StreamableHTTPOptions)) *mcp.StreamableHTTPOptions {
	change(&o)
	return &o
}

// Drain ends the streams by which clients only listen. Calls go on.
func (h *Handler) Drain() {
	h.drain(execution.ErrDraining)
	h.drained.Store(time.Now().UnixNano())
}

// Close lets tasks go on for what is left of the grace, then stops what runs,
// which ends as cancelled and keeps its sessions, and ends the clients' MCP
// sessions. It waits until the tasks are on disk.
func (h *Handler) Close() {
	if at := h.drained.Load(); h.tasks != nil && at != 0 {
		h.tasks.WaitUntil(time.Unix(0, at).Add(h.config.Grace))
	}
	h.close(execution.ErrDraining)
	for _, m := range h.sessions.all() {
		h.end(m)
	}
	if h.tasks != nil {
		h.tasks.Close()
	}
}

// allowed are the sets of tools that a request may use; nil: all.
func (h *Handler) allowed(ctx context.Context) []string {
	if h.config.Tools == nil {
		return nil
	}
	return h.config.Tools(ctx)
}

// ServeHTTP serves one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if IsModern(r.Header.Get(headerVersion)) && r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		refuseHTTP(w, http.StatusMethodNotAllowed, refuse(nil, jsonrpc.CodeInvalidRequest, "invalid request: %s has POST only", Modern))
		return
	}
	if no := h.named(r); no != nil {
		refuseHTTP(w, http.StatusBadRequest, no)
		return
	}
	if owner, err := h.owner(r); err == nil { // else it is refused below
		ctx, end := h.base.Memory.Scope(r.Context(), string(owner))
		defer end() // the answer is on its way
		r = r.WithContext(ctx)
	}
	switch r.Method {
	case http.MethodPost:
		h.post(w, r)
	case http.MethodGet, http.MethodDelete:
		h.ofSession(w, r)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		refuseHTTP(w, http.StatusMethodNotAllowed, refuse(nil, jsonrpc.CodeInvalidRequest, "invalid request: the method is none of GET, POST and DELETE"))
	}
}

// IsModern compares versions, which are dates.
func IsModern(version string) bool { return version >= Modern }

func (h *Handler) post(w http.ResponseWriter, r *http.Request) {
	if mediaType(r.Header.Get("Content-Type")) != "application/json" {
		refuseHTTP(w, http.StatusUnsupportedMediaType, refuse(nil, jsonrpc.CodeInvalidRequest, "invalid request: the Content-Type is not application/json"))
		return
	}
	owner, err := h.owner(r)
	if err != nil {
		refuseHTTP(w, http.StatusForbidden, refuse(nil, jsonrpc.CodeInvalidRequest, "%s", fault.ProblemOf(err).Line()))
		return
	}
	release, ok := h.bodies.take(owner, r.ContentLength, h.config.MaxBody)
	if !ok {
		w.Header().Set("Retry-After", "1")
		refuseHTTP(w, http.StatusTooManyRequests, refuse(nil, jsonrpc.CodeInvalidRequest, "exhausted: too many large requests at once; try again in a second"))
		return
	}
	defer func() { release() }()
	if err := weighBody(r.Context(), r.ContentLength); err != nil {
		refuseBody(w, err)
		return
	}
	body, no := h.read(w, r)
	if no != nil {
		refuseHTTP(w, no.status(), no)
		return
	}
	if r.ContentLength < 0 { // now it is known how long it is
		release()
		if release, ok = h.bodies.take(owner, int64(len(body)), h.config.MaxBody); !ok {
			release = func() {} // it is here already
		}
		if err := weighBody(r.Context(), int64(len(body))); err != nil {
			refuseBody(w, err)
			return
		}
	}
	m, no := h.decode(body)
	if no != nil {
		refuseHTTP(w, no.status(), no)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if m.Method == "tools/call" && h.refusedBeyond(w, r, m.Params.Name) {
		return
	}
	if IsModern(r.Header.Get(headerVersion)) || m.isModern() {
		h.postModern(w, r, m, owner)
		return
	}
	h.postLegacy(w, r, m, owner)
}

// refusedBeyond reports whether a call of a tool that the request may not use is answered.
func (h *Handler) refusedBeyond(w http.ResponseWriter, r *http.Request, tool string) bool {
	t, ok := h.server.Tool(tool)
	return ok && h.config.Beyond != nil && !mayUse(h.allowed(r.Context()), t.Set) && h.config.Beyond(w, r, t.Set)
}

func (h *Handler) postModern(w http.ResponseWriter, r *http.Request, m *message, owner session.Owner) {
	r.Header.Del(headerSession) // it means nothing there
	for _, name := range []string{headerVersion, headerMethod, headerName, headerParam + SessionHeader} {
		if len(r.Header.Values(name)) > 1 { // who passes requests on may read another one
			refuseHTTP(w, http.StatusBadRequest, refuse(m.ID, mcp.CodeHeaderMismatch, "invalid request: the header %s stands twice", name))
			return
		}
	}
	switch {
	case h.callsOurs(r, m):
		h.call(w, r, m, nil, owner)
	case h.tasks != nil && taskMethods[m.Method]:
		h.serveTask(w, r, m, owner)
	case m.Method == "subscriptions/listen":
		h.listen(w, r, h.modern)
	default:
		h.alone(w, r, m, h.modern)
	}
}

// alone has the SDK serve a request that belongs to no session. What it runs
// ends with the request, and with h.
func (h *Handler) alone(w http.ResponseWriter, r *http.Request, m *message, sdk http.Handler) {
	acceptBoth(r)
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(h.ctx, func() { cancel(context.Cause(h.ctx)) })()
	sdk.ServeHTTP(&spoken{ResponseWriter: w, id: m.ID}, r.WithContext(withEnding(ctx, ctx)))
}

func (h *Handler) postLegacy(w http.ResponseWriter, r *http.Request, m *message, owner session.Owner) {
	given := r.Header.Get(headerSession)
	if given == "" {
		switch {
		case m.Method == "initialize":
			h.initialize(w, r, m, owner)
		case h.callsOurs(r, m):
			h.call(w, r, m, nil, owner)
		default:
			h.alone(w, r, m, h.plain)
		}
		return
	}
	ms := h.sessions.use(given, owner, h.scopeOf(r.Context()))
	if ms == nil {
		noSession(w, m.ID)
		return
	}
	defer ms.release()
	switch {
	case m.Method == "notifications/cancelled" && ms.cancel(m.Params.RequestID), ms.take(m.answer):
		w.WriteHeader(http.StatusAccepted)
	case h.callsOurs(r, m):
		h.call(w, r, m, ms, owner)
	default:
		acceptBoth(r)
		h.legacy.ServeHTTP(&spoken{ResponseWriter: w, id: m.ID}, r)
	}
}

// ofSession serves what has no body: the end of a session, its stream of
// notifications, and the rest of a stream that broke.
func (h *Handler) ofSession(w http.ResponseWriter, r *http.Request) {
	given := r.Header.Get(headerSession)
	if given == "" {
		refuseHTTP(w, http.StatusBadRequest, refuse(nil, jsonrpc.CodeInvalidRequest, "invalid request: there is no %s", headerSession))
		return
	}
	owner, err := h.owner(r)
	if err != nil {
		refuseHTTP(w, http.StatusForbidden, refuse(nil, jsonrpc.CodeInvalidRequest, "%s", fault.ProblemOf(err).Line()))
		return
	}
	ms := h.sessions.use(given, owner, h.scopeOf(r.Context()))
	if ms == nil {
		noSession(w, nil)
		return
	}
	defer ms.release()
	switch {
	case r.Method == http.MethodDelete:
		h.end(ms)
		w.WriteHeader(http.StatusNoContent)
	case ms.resume(w, r):
	default:
		h.listen(w, r, h.legacy)
	}
}

// spoken has the SDK's errors, which are plain text, answered as everything else
// here: as JSON-RPC.
type spoken struct {
	http.ResponseWriter
	id    json.RawMessage
	plain bool // an error in plain text is being written
}

// WriteHeader passes the headers on.
func (s *spoken) WriteHeader(status int) {
	if s.plain = status >= 400 && mediaType(s.Header().Get("Content-Type")) == "text/plain"; s.plain {
		s.Header().Set("Content-Type", "application/json")
		s.Header().Del("Content-Length")
	}
	s.ResponseWriter.WriteHeader(status)
}

// Write passes the body on. An error's text comes in one piece.
func (s *spoken) Write(b []byte) (int, error) {
	if !s.plain {
		return s.ResponseWriter.Write(b)
	}
	code := int(jsonrpc.CodeInvalidRequest)
	if bytes.Contains(b, []byte("not handled")) {
		code = jsonrpc.CodeMethodNotFound
	}
	if _, err := s.ResponseWriter.Write(refuse(s.id, code, "%s", strings.TrimSpace(string(b))).line()); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Unwrap is for http.ResponseController.
func (s *spoken) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// noSession tells a client to begin again. What is another owner's does not exist.
func noSession(w http.ResponseWriter, id []byte) {
	refuseHTTP(w, http.StatusNotFound, refuse(id, jsonrpc.CodeInvalidRequest, "session not found: initialize again"))
}

// owner says whose request it is.
func (h *Handler) owner(r *http.Request) (session.Owner, error) {
	return h.server.Owner(r.Context(), Caller{Header: r.Header})
}

// read takes a request's body.
func (h *Handler) read(w http.ResponseWriter, r *http.Request) ([]byte, *refusal) {
	if r.ContentLength > h.config.MaxBody { // none of it is read
		w.Header().Set("Connection", "close")
		return nil, refuse(nil, codeTooLarge, "invalid request: a body of more than %d bytes", h.config.MaxBody)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.config.MaxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, refuse(nil, codeTooLarge, "invalid request: a body of more than %d bytes", large.Limit)
	case fault.KindOf(err) == fault.Unavailable: // the web server's word for a slow one
		return nil, refuse(nil, codeTooSlow, "invalid request: the body came too slowly")
	case err != nil:
		return nil, refuse(nil, jsonrpc.CodeParseError, "parse error: the body could not be read")
	}
	return bytes.TrimSpace(body), nil
}

// These mark, within this package, refusals with a status of their own.
const (
	codeTooLarge = -http.StatusRequestEntityTooLarge
	codeTooSlow  = -http.StatusRequestTimeout
)

// status is the refusal's in HTTP; afterwards its code is JSON-RPC's.
func (r *refusal) status() int {
	switch r.code {
	case codeTooLarge, codeTooSlow:
		status := -r.code
		r.code = jsonrpc.CodeInvalidRequest
		return status
	}
	return http.StatusBadRequest
}

func refuseHTTP(w http.ResponseWriter, status int, r *refusal) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(r.line()) // who is gone needs no answer
}

// acceptBoth has the SDK answer clients that do not say what they accept.
func acceptBoth(r *http.Request) {
	if a := r.Header.Values("Accept"); len(a) == 0 || len(a) == 1 && strings.HasPrefix(strings.TrimSpace(a[0]), "*/*") {
		r.Header.Set("Accept", "application/json, text/event-stream")
	}
}

func mediaType(v string) string {
	v, _, _ = strings.Cut(v, ";")
	return strings.ToLower(strings.TrimSpace(v))
}

// accepts tells which forms of an answer a client takes. Saying nothing is
// taking JSON.
func accepts(r *http.Request) (json, stream bool) {
	for _, line := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(line, ",") {
			switch mediaType(part) {
			case "application/json", "application/*":
				json = true
			case "text/event-stream", "text/*":
				stream = true
			case "*/*":
				json = true
			}
		}
	}
	return json || !stream, stream
}
