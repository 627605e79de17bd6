package web

import (
	"context"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"paddock/internal/auth"
	"paddock/internal/fault"
)

// route is what lies at a path.
type route struct {
	handler http.Handler
	methods []string // nil: the handler decides
	open    bool     // no token is asked for
	own     bool     // the server's own: there always is room for it
	rpc     bool     // bodies and errors are JSON-RPC's; calls and streams take their time
	denied  int      // the code of JSON-RPC for who may not
	upload  bool     // bodies may be large
	e2b     bool     // E2B's clients call it: keys, errors and times are theirs
	preview string   // the id of the preview at whose address it is; empty: at none
}

// table lists the routes. A path that ends with a slash is a prefix.
func (s *Server) table() map[string]route {
	c, read := &s.config, []string{http.MethodGet, http.MethodHead}
	table := map[string]route{
		c.Path:     {handler: c.MCP, rpc: true, denied: -32000},
		"/healthz": {handler: http.HandlerFunc(s.healthz), methods: read, open: true, own: true},
		"/readyz":  {handler: http.HandlerFunc(s.readyz), methods: read, open: true, own: true},
		"/metrics": {handler: c.Metrics, methods: read, open: c.MetricsOpen, own: true},
		"/v1/":     {handler: c.Files, upload: true},
		rpcPath:    {handler: c.RPC, methods: []string{http.MethodPost}, rpc: true, denied: -32002},
		healthPath: {handler: c.Health, methods: read, open: true, own: true},
		// Bodies and errors are plain JSON's.
		approvalsPath: {handler: c.Approvals, methods: []string{http.MethodGet, http.MethodPost}},
		sessionsPath:  {handler: c.Previews},
		"/":           {handler: c.Console, methods: read, open: true, own: true},
		consolePath:   {handler: c.Console, methods: read, open: true, own: true},
		consoleList:   {handler: c.Console, methods: read},
		e2bPath:       {handler: stripped(c.E2B), upload: true, e2b: true},
		e2bFiles:      {handler: c.E2B, methods: []string{http.MethodGet, http.MethodHead, http.MethodPost}, upload: true, e2b: true},
		wellKnown:     {handler: c.Metadata, methods: read, open: true, own: true},
	}
	if c.SignIns != nil {
		post := []string{http.MethodPost}
		table[signInPath] = route{handler: http.HandlerFunc(s.signIn), methods: post, open: true, own: true}
		table[signOutPath] = route{handler: http.HandlerFunc(s.signOut), methods: post, open: true, own: true}
		table[whoPath] = route{handler: http.HandlerFunc(s.whoami), methods: read, own: true}
	}
	table[wellKnown+c.Path] = table[wellKnown]
	return table
}

const wellKnown = "/.well-known/oauth-protected-resource"

// Where microsandbox's clients look.
const (
	rpcPath    = "/api/v1/rpc"
	healthPath = "/api/v1/health"
)

// approvalsPath is where people decide about calls of tools.
const approvalsPath = "/api/v1/approvals"

// sessionsPath is where previews are made.
const sessionsPath = "/api/v1/sessions/"

// consolePath is where the console has its files, and consoleList its sessions.
const consolePath, consoleList = "/console/", "/console/sessions"

// wantsPage reports whether a browser asks for a page.
func wantsPage(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }

// Where E2B's clients are served: below a path, and where they send signed requests for files.
const (
	e2bPath  = "/e2b/"
	e2bFiles = "/files"
)

// stripped is the API of E2B below its path.
func stripped(h http.Handler) http.Handler {
	if h == nil {
		return nil
	}
	return http.StripPrefix(strings.TrimSuffix(e2bPath, "/"), h)
}

// prefix gives the path that something below another one counts as.
func (s *Server) prefix(path string) string {
	switch {
	case strings.HasPrefix(path, "/v1/"):
		return "/v1/"
	case strings.HasPrefix(path, e2bPath):
		return e2bPath
	case strings.HasPrefix(path, approvalsPath+"/"):
		return approvalsPath
	case strings.HasPrefix(path, consolePath) && path != consoleList:
		return consolePath
	case strings.HasPrefix(path, sessionsPath):
		return sessionsPath
	case strings.HasPrefix(path, s.config.Path+namedPath):
		return s.config.Path
	case strings.HasPrefix(path, wellKnown+s.config.Path+namedPath): // where clients look for its metadata
		return wellKnown
	}
	return path
}

// namedPath is below the MCP endpoint, before the name of a session.
const namedPath = "/s/"

// route finds what lies at a path; its handler is nil where nothing does.
func (s *Server) route(path string) route { return s.routes[s.prefix(path)] }

// pattern is the table's word for a path.
func (s *Server) pattern(path string, rt route) string {
	if rt.preview != "" {
		return "preview"
	}
	if s.route(path).handler == nil {
		return "other"
	}
	return s.prefix(path)
}

// refusal is an error with a status of its own.
type refusal struct {
	fault  *fault.Error
	status int
}

func (r refusal) Error() string { return r.fault.Error() }

// Unwrap leads to the fault.
func (r refusal) Unwrap() error { return r.fault }

// guards are headers of all answers but previews': no answer is a page. A browser that
// shows one all the same runs nothing of it, shows it in no frame, takes it for no other
// type, keeps and tells nothing of it, and gives no page that opened it a hold on it.
var guards = map[string]string{
	"X-Content-Type-Options":     "nosniff",
	"Referrer-Policy":            "no-referrer",
	"Cache-Control":              "no-store",
	"Content-Security-Policy":    "sandbox; default-src 'none'; frame-ancestors 'none'",
	"X-Frame-Options":            "DENY",
	"Cross-Origin-Opener-Policy": "same-origin",
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	s.running.enter()
	defer s.running.leave()
	from := s.senderOf(r)
	r = r.WithContext(s.contextOf(r, from))
	w := newResponse(rw, s.config.WriteTimeout)
	rt := s.routeOf(r, from)
	defer s.finish(w, r, rt, time.Now())
	h := w.Header()
	h.Set("X-Request-Id", from.id)
	for name, value := range guards {
		h.Set(name, value)
	}
	defer s.boundBody(rw, r, rt)()
	if rt.preview != "" {
		s.servePreview(w, r, rt, from)
		return
	}
	if err := s.checkCaller(r, from); err != nil {
		s.fail(w, r, rt, err)
		return
	}
	if s.cors.HandlerFunc(w, r); r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
		return // a preflight, which has been answered
	}
	if err := s.checkRequest(w, r, rt); err != nil {
		s.fail(w, r, rt, err)
		return
	}
	s.handle(w, r, rt, from)
}

func (s *Server) contextOf(r *http.Request, from *sender) context.Context {
	ctx := context.WithValue(r.Context(), senderKey{}, from)
	if s.config.Context != nil {
		ctx = s.config.Context(ctx, from.id)
	}
	return ctx
}

// checkCaller decides about what a client cannot choose freely: the address
// that it comes from, and with a browser the host and the origin.
func (s *Server) checkCaller(r *http.Request, from *sender) error {
	if err := s.checkPlain(from); err != nil {
		return err
	}
	if err := s.checkHost(r, from); err != nil {
		return err
	}
	if from.base = s.config.PublicURL; from.base == "" {
		from.base = from.scheme + "://" + from.host
	}
	return s.checkOrigin(r, from)
}

// checkPlain refuses what would cross the network unencrypted.
func (s *Server) checkPlain(from *sender) error {
	if s.bound.local && from.direct && !from.client.IsLoopback() {
		return fault.New(fault.Denied, "this server speaks plain HTTP to its proxies only").WithHint("call it by its public address")
	}
	return nil
}

// checkRequest decides about the request's line and headers.
func (s *Server) checkRequest(w http.ResponseWriter, r *http.Request, rt route) error {
	switch {
	case rt.handler == nil:
		return refusal{fault.New(fault.NotFound, "there is nothing at %s", printable(r.URL.EscapedPath())).WithHint("the MCP endpoint is %s", s.config.Path), http.StatusNotFound}
	case rt.methods != nil && !slices.Contains(rt.methods, r.Method):
		w.Header().Set("Allow", strings.Join(rt.methods, ", "))
		return refusal{fault.New(fault.Invalid, "%s cannot be done here", r.Method), http.StatusMethodNotAllowed}
	case rt.rpc && r.Method == http.MethodPost && !isJSON(r.Header):
		// Whatever else a page may send across origins without being asked first.
		return refusal{fault.New(fault.Invalid, "the body's type has to be application/json").WithHint("send Content-Type: application/json"), http.StatusUnsupportedMediaType}
	case carriesToken(r):
		return fault.New(fault.Invalid, "a token has no place in a URL, which ends up in logs").WithHint("send it as Authorization: Bearer, and have this one revoked")
	case r.ContentLength > s.maxBody(rt):
		return tooLarge(s.maxBody(rt))
	}
	return nil
}

func isJSON(h http.Header) bool {
	types := h.Values("Content-Type")
	if len(types) != 1 {
		return false
	}
	t, _, err := mime.ParseMediaType(types[0])
	return err == nil && t == "application/json"
}

// handle finds out who it is, sees whether there is room, and passes the
// request on within its time.
func (s *Server) handle(w *response, r *http.Request, rt route, from *sender) {
	p, err := s.authenticate(w, r, rt, from)
	if err != nil {
		s.fail(w, r, rt, err)
		return
	}
	ctx := r.Context()
	if p != nil {
		from.who = p.Name
		ctx = auth.With(ctx, p)
	}
	if p != nil && !rt.own {
		release, err := s.config.Gate.Admit(ctx, p, r)
		if err != nil {
			s.fail(w, r, rt, err)
			return
		}
		defer release()
	}
	ctx, done := s.within(ctx, w, r, rt, from, p)
	defer done()
	rt.handler.ServeHTTP(w, r.WithContext(ctx))
}

var (
	errEnding  = fault.New(fault.Unavailable, "the server is ending").WithHint("connect again")
	errExpired = fault.New(fault.Denied, "the token has expired").WithHint("connect again with a new one")
	errRevoked = fault.New(fault.Denied, "the token is not valid any more").WithHint("connect again with another one")
	errTooLong = fault.New(fault.Unavailable, "the request took longer than it was given")
)

// within bounds a request's time. A stream that a client only listens to ends
// with the server, or when its token does; a call goes on till its answer,
// unless its token is revoked.
func (s *Server) within(ctx context.Context, w *response, r *http.Request, rt route, from *sender, p *auth.Principal) (context.Context, func()) {
	if rt.e2b {
		return s.untilDrained(ctx, r)
	}
	if !rt.rpc {
		w.until = time.Now().Add(s.config.RequestTimeout)
		return context.WithDeadlineCause(ctx, w.until, errTooLong)
	}
	listens := s.config.Gate.Listens(r)
	nothing := func() bool { return false }
	expiry, stop, unwatched := func() {}, nothing, nothing
	if listens && !p.Expires.IsZero() {
		ctx, expiry = context.WithDeadlineCause(ctx, p.Expires, errExpired)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	if listens {
		stop = context.AfterFunc(s.draining, func() { cancel(errEnding) })
	}
	if from.token != "" {
		unwatched = s.recheck(ctx, from, p, cancel)
	}
	return ctx, func() {
		unwatched()
		stop()
		cancel(nil)
		expiry()
	}
}

// untilDrained lets a request of E2B's clients take its time: a stream ends with the server.
func (s *Server) untilDrained(ctx context.Context, r *http.Request) (context.Context, func()) {
	if r.Header.Get("Content-Type") != "application/connect+json" {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.draining, func() { cancel(errEnding) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// shown is a request's path for the log. That of a signed request ends with
// what it is signed by, which is not logged, and a query never is.
func (s *Server) shown(r *http.Request, rt route) string {
	p := printable(r.URL.EscapedPath())
	if rt.preview != "" {
		return "/…" // the program's own, or what a link is signed by
	}
	if rt.upload && s.config.Signed != nil && s.config.Signed(r) {
		p = path.Dir(p) + "/…"
	}
	return p
}

// finish is deferred around a request: a panic costs the request alone, and
// the log gets its line.
func (s *Server) finish(w *response, r *http.Request, rt route, began time.Time) {
	v := recover()
	broken := v != nil && w.status != 0
	if v != nil && v != http.ErrAbortHandler {
		s.log.ErrorContext(r.Context(), "a handler panicked", Attr(r.Context()), "panic", printable(fmt.Sprint(v)), "stack", string(debug.Stack()))
		if !broken {
			answer(w, r, rt, fault.Of(fmt.Errorf("panic: %v", v)))
		}
	}
	w.last()
	from := r.Context().Value(senderKey{}).(*sender)
	if s.log.Enabled(r.Context(), slog.LevelInfo) {
		s.log.InfoContext(r.Context(), "request", Attr(r.Context()), "principal", printable(from.who), "method", r.Method, "path", s.shown(r, rt),
			"status", w.outcome(r.Context()), "bytes", w.bytes, "duration", time.Since(began), "client", from.client)
	}
	s.config.Observer.RequestAnswered(r.Context(), Answered{Route: s.pattern(r.URL.Path, rt), Method: r.Method, Status: w.outcome(r.Context()), Took: time.Since(began)})
	if broken || v == http.ErrAbortHandler {
		panic(http.ErrAbortHandler) // the client has to see that it is not whole
	}
}
