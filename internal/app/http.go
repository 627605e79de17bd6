package app

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	"paddock/internal/audit"
	"paddock/internal/auth"
	"paddock/internal/config"
	"paddock/internal/fault"
	"paddock/internal/mcpserver"
	"paddock/internal/microsandbox"
	"paddock/internal/session"
	"paddock/internal/telemetry"
	"paddock/internal/web"
	"paddock/internal/web/files"
)

// WebConfig is what the configuration says of the HTTP server; what lies behind
// its paths is missing. Where nothing else was set up for clients to come in
// with, this machine's user may: local is to be opened then, else it is nil.
func (env *Env) WebConfig(dev bool) (wc web.Config, local *LocalUser, err error) {
	h := env.Config.HTTP
	wc = web.Config{
		Host: h.Host, Port: int(h.Port), Path: h.Path, PublicURL: h.PublicURL,
		PreviewDomain: h.PreviewDomain, AllowedHosts: h.AllowedHosts, Origins: h.Origins, TrustedProxies: h.TrustedProxies,
		CertFile: h.TLSCert, KeyFile: h.TLSKey, AllowPlain: h.AllowPlain, Dev: dev, MetricsOpen: h.MetricsOpen,
		MaxBodyBytes: h.MaxRequestBytes, MaxUploadBytes: env.Config.Sessions.DiskBytes,
		RequestTimeout: h.RequestTimeout, Grace: h.ShutdownGrace,
		Context: telemetry.WithRequestID, Signed: files.Signed, Log: env.Log,
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

// configured is the ID of whoever comes in with the configuration's token.
const configured = auth.OfToken + "auth-token"

// alive says whether an owner may still act. Of an issuer's nobody knows that
// without their token.
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
		panic("cli: " + err.Error()) // of paddock's own types
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text) // whoever does not read has gone
	})
}

// AddHandlers puts in what lies behind the paths; what it gives ends it.
func (a *App) AddHandlers(wc *web.Config, ready *Ready, refuse func(http.ResponseWriter, *http.Request, error)) (end func(), err error) {
	links, err := files.OpenLinks(a.StateDir)
	if err != nil {
		return nil, err
	}
	server, err := a.NewMCP(bindHTTP, a.linkWith(links))
	if err != nil {
		return nil, err
	}
	stopResuming := Resume(server, "")
	handler, err := server.Handler(mcpserver.HTTPConfig{Path: a.Config.HTTP.Path, MaxBody: wc.MaxBodyBytes, Tools: toolsOf, TasksDir: filepath.Join(a.StateDir, "tasks"), Beyond: beyondScope(refuse), Grace: wc.Grace})
	if err != nil {
		stopResuming()
		return nil, fmt.Errorf("making the MCP endpoint: %w", err)
	}
	end = func() { handler.Close(); stopResuming() }
	moved, err := files.New(files.Config{
		Named:    server.Named,
		Sessions: a.Sessions, Links: links, Base: web.BaseURL, Log: a.Log, Moved: a.movedFile, Alive: a.alive(), Beyond: beyondScope(refuse),
		Admit: func(owner session.Owner) (func(), error) { return a.admit(context.Background(), string(owner), false) },
	})
	if err != nil {
		end()
		return nil, err
	}
	if wc.Approvals, err = a.approvalsAPI(beyondScope(refuse)); err != nil {
		end()
		return nil, err
	}
	wc.MCP, wc.Files = telemetry.Joined(handler), telemetry.Joined(moved)
	wc.Metrics, wc.Ready, wc.Answered, wc.OnDrain = a.telemetry.Handler(), ready.reasons, a.answered, handler.Drain
	if slices.Contains(a.Config.Tools.Enabled, sandboxSet) {
		wc.RPC, wc.Health = telemetry.Joined(a.sandboxes.RPC(sandboxOwner, a.memory)), http.HandlerFunc(microsandbox.Health)
	}
	path := wc.Path
	wc.Failed, wc.Listens = a.failed, listens
	wc.Admit = func(ctx context.Context, who *auth.Principal, r *http.Request) (func(), error) {
		return a.admit(ctx, who.ID, r.URL.Path == path && listens(r))
	}
	return end, nil
}

// sandboxSet is the set of tools that microsandbox's JSON-RPC belongs to.
const sandboxSet = "sandbox"

// sandboxIsolation is what named sandboxes run in.
const sandboxIsolation = microsandbox.Isolation

// sandboxOwner says whose request it is, of those who may use the set.
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

// listens tells whether a request to the MCP endpoint is for a stream that its
// client only listens to. A call that says so is counted and ended like one.
func listens(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodPost && r.Header.Get("Mcp-Method") == "subscriptions/listen"
}

// admit counts one request of a principal, and takes it in hand.
func (a *App) admit(ctx context.Context, principal string, listens bool) (release func(), err error) {
	if err := a.gate.Request(principal); err != nil {
		a.telemetry.Rejected(ctx, "requests")
		return nil, err
	}
	take, of := a.gate.Hold, "concurrent_requests"
	if listens {
		take, of = a.gate.Listen, "streams"
	}
	if release, err = take(principal); err != nil {
		a.telemetry.Rejected(ctx, of)
	}
	return release, err
}

// answered measures a request.
func (a *App) answered(ctx context.Context, r web.Answered) {
	a.telemetry.Request(ctx, r.Method, r.Route, r.Status, r.Took)
}

// failed records from where somebody could not come in, and how often.
func (a *App) failed(ctx context.Context, f web.Failures) {
	r := audit.Record{Action: audit.AuthFailure, Outcome: audit.Error, ErrorType: string(fault.KindOf(f.Last))}
	if f.From.IsValid() {
		r.Target = f.From.String()
	}
	if f.Count > 1 {
		r.Count = f.Count
	}
	a.note(ctx, r)
}

// movedFile records who read or changed a file, or made a link to it.
func (a *App) movedFile(ctx context.Context, m files.Moved) {
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
	a.note(ctx, r)
}

// touchedFile records which file a tool or a resource read or changed.
func (a *App) touchedFile(ctx context.Context, owner session.Owner, id session.ID, path string, write bool, err error) {
	a.movedFile(ctx, files.Moved{Owner: owner, Session: id, Path: path, Write: write, Err: err})
}

// note records what has happened already.
func (a *App) note(ctx context.Context, r audit.Record) {
	if err := a.Audit.Write(ctx, r); err != nil {
		a.Log.WarnContext(ctx, "the audit log did not take a record", "action", r.Action, "cause", err)
	}
}
