package app

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	"paddock/console"
	"paddock/internal/audit"
	"paddock/internal/auth"
	"paddock/internal/config"
	"paddock/internal/fault"
	"paddock/internal/mcpserver"
	"paddock/internal/mcpserver/transport"
	"paddock/internal/microsandbox"
	"paddock/internal/session"
	"paddock/internal/telemetry"
	"paddock/internal/web"
	webconsole "paddock/internal/web/console"
	"paddock/internal/web/files"
)

// WebConfig is what the configuration says of the HTTP server, without what is behind its
// paths (see [App.NewHTTP]). If no other way to authenticate is configured, this machine's
// user may come in: local is opened once the server listens. Otherwise local is nil.
func (env *Env) WebConfig(dev bool) (wc web.Config, local *LocalUser, err error) {
	h := env.Config.HTTP
	wc = web.Config{
		Host: h.Host, Port: int(h.Port), Path: h.Path, PublicURL: h.PublicURL,
		PreviewDomain: h.PreviewDomain, AllowedHosts: h.AllowedHosts, Origins: h.Origins, TrustedProxies: h.TrustedProxies,
		CertFile: h.TLSCert, KeyFile: h.TLSKey, AllowPlain: h.AllowPlain, Dev: dev, MetricsOpen: h.MetricsOpen,
		MaxBodyBytes: h.MaxRequestBytes, MaxUploadBytes: env.Config.Sessions.DiskBytes,
		RequestTimeout: h.RequestTimeout, Grace: h.ShutdownGrace,
		Context: telemetry.WithRequestID, Signed: files.Signed, Log: env.Log,
		SignIns: auth.OpenSignIns(env.StateDir), Operator: &auth.Principal{ID: auth.Local, Name: auth.Local, Tools: config.Scopes()},
	}
	if dev {
		wc.Verifier = auth.OpenTokens(env.StateDir)
		return wc, nil, nil
	}
	tokens := auth.OpenTokens(env.StateDir)
	if _, err := tokens.List(); err != nil { // all of their bearers would be refused, and not know why
		return wc, nil, err
	}
	accepted := []auth.Verifier{tokens}
	if h.AuthToken != "" {
		accepted = append(accepted, auth.Static(h.AuthToken, &auth.Principal{ID: configured, Name: "configured"}))
	}
	if a := env.Config.Auth; a.Issuer != "" {
		audience := a.Audience
		if audience == "" && h.PublicURL != "" {
			audience = h.PublicURL + h.Path
		}
		issuer, err := auth.NewOAuth(auth.OAuthConfig{Issuer: a.Issuer, AllowHTTP: a.AllowHTTPIssuer, Audience: audience, Required: a.ScopesRequired, Sets: config.Scopes(), Log: env.Log})
		if err != nil {
			return wc, nil, err
		}
		accepted = append(accepted, issuer)
		wc.Scopes, wc.Metadata = issuer.Scopes(), document(issuer.Metadata())
	}
	if len(accepted) == 1 {
		local = &LocalUser{Dir: env.StateDir}
		accepted = append(accepted, local)
	}
	wc.Verifier = auth.Any(accepted...)
	return wc, local, nil
}

// configured is the ID of a client that has the configuration's token.
const configured = auth.OfToken + "auth-token"

// alive gives an error for an owner that may act no more. For an issuer's clients that cannot
// be known without their token: they may.
func (env *Env) alive() func(session.Owner) error {
	tokens := auth.OpenTokens(env.StateDir)
	return func(owner session.Owner) error {
		id := string(owner)
		if !strings.HasPrefix(id, auth.OfToken) || id == configured && env.Config.HTTP.AuthToken != "" {
			return nil
		}
		return tokens.Alive(id)
	}
}

// document serves a value as JSON.
func document(v any) http.Handler {
	text, err := json.Marshal(v)
	if err != nil {
		panic("app: " + err.Error()) // of paddock's own types
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text) // a client that does not read has gone
	})
}

// HTTP is the HTTP server with all that paddock serves.
type HTTP struct {
	*web.Server
	previews *previews
	path     string   // of the MCP endpoint
	ends     []func() // what its handlers run, the last one first
}

// NewHTTP makes the server that wc describes, with what is behind its paths. draining, if it
// is not nil, is called when the server begins to end. Close ends the server's handlers.
func (a *App) NewHTTP(wc web.Config, ready *Ready, draining func()) (_ *HTTP, err error) {
	h := &HTTP{previews: a.previews, path: a.Config.HTTP.Path}
	defer func() {
		if err != nil {
			h.Close()
		}
	}()
	// Requests come when there is a Server: until then the handlers ask for nothing of it.
	beyond := beyondScope(func(w http.ResponseWriter, r *http.Request, err error) { h.Refuse(w, r, err) })
	shown, err := a.newPreviewHandler(func(id string) string { return h.PreviewURL(id) }, beyond, wc.RequestTimeout)
	if err != nil {
		return nil, err
	}
	wc.Preview, wc.Previews = shown.ServePreview, telemetry.Joined(shown)
	links, err := files.OpenLinks(a.StateDir)
	if err != nil {
		return nil, err
	}
	server, err := a.newMCP(bindHTTP, a.linkWith(links), previewMaker(shown))
	if err != nil {
		return nil, err
	}
	h.ends = append(h.ends, Resume(server, ""))
	handler, err := server.Handler(transport.Config{
		Path: a.Config.HTTP.Path, MaxBody: wc.MaxBodyBytes, Tools: toolsOf, TasksDir: filepath.Join(a.StateDir, "tasks"),
		Beyond: beyond, Grace: wc.Grace,
	})
	if err != nil {
		return nil, fmt.Errorf("making the MCP endpoint: %w", err)
	}
	h.ends = append(h.ends, handler.Close)
	wc.MCP = telemetry.Joined(handler)
	wc.OnDrain = func() {
		if draining != nil {
			draining()
		}
		handler.Drain()
	}
	if err := a.addFiles(&wc, server, links, beyond); err != nil {
		return nil, err
	}
	if wc.Approvals, err = a.approvalsAPI(beyond); err != nil {
		return nil, err
	}
	if wc.Console, err = webconsole.New(webconsole.Config{Files: console.Files(), Sessions: a.Sessions.List}); err != nil {
		return nil, err
	}
	if err := a.addE2B(h, &wc); err != nil {
		return nil, err
	}
	a.addOperation(&wc, ready)
	if h.Server, err = web.New(wc); err != nil {
		return nil, err
	}
	return h, nil
}

// addFiles adds the files of sessions. server hears which sessions requests name.
func (a *App) addFiles(wc *web.Config, server *mcpserver.Server, links *files.Links, beyond beyondFunc) error {
	moved, err := files.New(files.Config{
		Named: server.Named, Sessions: a.Sessions, Links: links, Base: web.BaseURL, Log: a.Log,
		Moved: a.movedFile, Access: &fileAccess{base: a.base, alive: a.alive(), beyond: beyond},
	})
	if err == nil {
		wc.Files = telemetry.Joined(moved)
	}
	return err
}

// addOperation adds what watches and bounds requests, and the paths for operators and for
// microsandbox's clients.
func (a *App) addOperation(wc *web.Config, ready *Ready) {
	wc.Metrics, wc.Ready, wc.SignedIn = a.telemetry.Handler(), ready.reasons, a.signedIn
	if slices.Contains(a.Config.Tools.Enabled, sandboxSet) {
		wc.RPC = telemetry.Joined(a.sandboxes.RPC(sandboxOwner, a.memory))
		wc.Health = http.HandlerFunc(microsandbox.Health)
	}
	wc.Gate, wc.Observer = &requestGate{base: a.base, endpoint: wc.Path}, requestObserver{a.base}
}

// Run serves until ctx ends, and then as web.Server.Run. While it does, commands know where
// this server's previews are. listening is called with the address once it listens.
func (h *HTTP) Run(ctx context.Context, listening func(url string)) error {
	defer h.previews.unannounce()
	return h.Server.Run(ctx, func(url string) {
		h.previews.announce(h.PreviewURL, strings.TrimSuffix(url, h.path))
		listening(url)
	})
}

// Close ends the handlers. The server does not run any more.
func (h *HTTP) Close() {
	for _, end := range slices.Backward(h.ends) {
		end()
	}
	h.ends = nil
}

// sandboxSet is the set of tools that microsandbox's JSON-RPC belongs to.
const sandboxSet = "sandbox"

// sandboxIsolation is what named sandboxes run in.
const sandboxIsolation = microsandbox.Isolation

// sandboxOwner gives the owner that a request is from. It is an error if its token does not
// reach the set.
func sandboxOwner(r *http.Request) (session.Owner, error) {
	who := auth.From(r.Context())
	if who == nil {
		return "", fault.New(fault.Denied, "the request has no principal")
	}
	if sets := toolsOf(r.Context()); sets != nil && !slices.Contains(sets, sandboxSet) {
		return "", fault.New(fault.Denied, "this token may not use named sandboxes").WithHint("the operator can make one that may: paddock token create --tools %s", sandboxSet)
	}
	return session.Owner(who.ID), nil
}

// admit counts one request of a principal, or refuses it. release is called when it ends.
func (b *base) admit(ctx context.Context, principal string, listens bool) (release func(), err error) {
	if err := b.gate.Request(principal); err != nil {
		b.telemetry.Rejected(ctx, "requests")
		return nil, err
	}
	take, of := b.gate.Hold, "concurrent_requests"
	if listens {
		take, of = b.gate.Listen, "streams"
	}
	if release, err = take(principal); err != nil {
		b.telemetry.Rejected(ctx, of)
	}
	return release, err
}

// requestGate bounds requests to the HTTP server, whose MCP endpoint is at a path.
type requestGate struct {
	*base
	endpoint string
}

var _ web.Gate = (*requestGate)(nil)

// Admit implements [web.Gate].
func (g *requestGate) Admit(ctx context.Context, who *auth.Principal, r *http.Request) (release func(), err error) {
	return g.admit(ctx, who.ID, r.URL.Path == g.endpoint && g.Listens(r))
}

// Listens implements [web.Gate]. A call that claims to be a stream is counted and ended like
// one.
func (*requestGate) Listens(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodPost && r.Header.Get("Mcp-Method") == "subscriptions/listen"
}

// fileAccess decides who may move files, by one-time links too.
type fileAccess struct {
	*base
	alive  func(session.Owner) error
	beyond beyondFunc
}

var _ files.Access = (*fileAccess)(nil)

// Alive implements [files.Access].
func (a *fileAccess) Alive(owner session.Owner) error { return a.alive(owner) }

// Admit implements [files.Access].
func (a *fileAccess) Admit(owner session.Owner) (release func(), err error) {
	return a.admit(context.Background(), string(owner), false)
}

// Beyond implements [files.Access].
func (a *fileAccess) Beyond(w http.ResponseWriter, r *http.Request, set string) bool {
	return a.beyond(w, r, set)
}

// requestObserver measures and records requests to the HTTP server.
type requestObserver struct{ *base }

var _ web.Observer = requestObserver{}

// RequestAnswered measures a request.
func (b requestObserver) RequestAnswered(ctx context.Context, r web.Answered) {
	b.telemetry.Request(ctx, r.Method, r.Route, r.Status, r.Took)
}

// RequestsFailed records from where requests had no valid token, and how many.
func (b requestObserver) RequestsFailed(ctx context.Context, f web.Failures) {
	r := audit.Record{Action: audit.AuthFailure, Outcome: audit.Error, ErrorType: string(fault.KindOf(f.Last))}
	if f.From.IsValid() {
		r.Target = f.From.String()
	}
	if f.Count > 1 {
		r.Count = f.Count
	}
	b.note(ctx, r)
}

// signedIn records who signed in to the server with a browser, or out.
func (b *base) signedIn(ctx context.Context, e web.SignedIn) {
	r := audit.Record{Action: audit.SignIn, Principal: e.Who.ID, Outcome: audit.Success}
	if e.Out {
		r.Action = audit.SignOut
	}
	if from := web.ClientAddr(ctx); from.IsValid() {
		r.Target = from.String()
	}
	b.note(ctx, r)
}

// movedFile records who read or changed a file, or made a link to it.
func (b *base) movedFile(ctx context.Context, m files.Moved) {
	r := audit.Record{Action: audit.FileRead, Principal: string(m.Owner), Session: string(m.Session), Target: m.Path, Outcome: audit.Success}
	switch {
	case m.Link:
		r.Action = audit.LinkCreate
	case m.Write:
		r.Action = audit.FileWrite
	}
	if m.Err != nil {
		r.Outcome, r.ErrorType = audit.Error, string(fault.KindOf(m.Err))
	}
	b.note(ctx, r)
}

// touchedFile records which file a tool or a resource read or changed.
func (b *base) touchedFile(ctx context.Context, owner session.Owner, id session.ID, path string, write bool, err error) {
	b.movedFile(ctx, files.Moved{Owner: owner, Session: id, Path: path, Write: write, Err: err})
}

// note records what has happened already.
func (b *base) note(ctx context.Context, r audit.Record) {
	if err := b.Audit.Write(ctx, r); err != nil {
		b.Log.WarnContext(ctx, "the audit log did not take a record", "action", r.Action, "cause", err)
	}
}
