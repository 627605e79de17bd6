package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"paddock/internal/audit"
	"paddock/internal/auth"
	"paddock/internal/cli/config"
	"paddock/internal/fault"
	"paddock/internal/mcpserver"
	"paddock/internal/sandbox"
	"paddock/internal/session"
	"paddock/internal/telemetry"
	"paddock/internal/web"
	"paddock/internal/web/files"
)

func (p *program) serveCommand() *cobra.Command {
	var dev bool
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve MCP clients over HTTP",
		Long: `Serves MCP over Streamable HTTP, to any number of clients: at /mcp the protocol,
below /v1/sessions/ the files of sessions, and /healthz, /readyz and /metrics.

Who comes in needs a token: the one that is made for this machine's user at the
first start, one that paddock token create made, or what [transport_http] and
[auth] of the configuration say. Anything but a loopback address needs TLS, or a
proxy that has it.

A SIGTERM or an interrupt ends it when the running calls are done, or
transport_http.shutdown_grace_seconds later; a second one at once.

Exit codes: 0 it was told to end, and nothing was cut off; 1 failed, 2 wrong
usage.`,
		Example: "  paddock serve\n  paddock serve --host 0.0.0.0 --port 443",
		Args:    count(0, 0, ""),
		RunE:    func(c *cobra.Command, _ []string) error { return p.serve(c, dev) },
	}
	keyFlag(c.Flags(), "host", "listen at this `ADDRESS`")
	keyFlag(c.Flags(), "port", "listen at this `PORT`; 0: any that is free")
	keyFlag(c.Flags(), "tools", "offer these `SETS` of tools, with commas: core, files")
	keyFlag(c.Flags(), "isolation", "run programs in this `KIND` of sandbox: wasm")
	keyFlag(c.Flags(), "insecure-http", "let other machines call without TLS")
	c.Flags().Lookup("insecure-http").NoOptDefVal = "true"
	c.Flags().BoolVar(&dev, "dev", false, "ask for no token; on a loopback address only")
	return c
}

func (p *program) serve(c *cobra.Command, dev bool) error {
	if err := p.load(c); err != nil {
		return err
	}
	signal.Ignore(syscall.SIGPIPE) // who reads our messages may leave
	p.transport = overHTTP
	wc, err := p.webConfig(dev)
	if err != nil {
		return err
	}
	// What is wrong with the configuration is said before anything is opened.
	if _, err := web.New(wc); err != nil {
		return err
	}
	parts, err := p.open(nil)
	if err != nil {
		return err
	}
	defer parts.close(p.log)
	// Calls that run while the server ends may wait for it still.
	ready := p.prepareFor(context.WithoutCancel(c.Context()), parts.backend)
	defer ready.wait()
	var server *web.Server
	closeMCP, err := p.addHandlers(&wc, parts, ready, func(w http.ResponseWriter, r *http.Request, err error) { server.Refuse(w, r, err) })
	if err != nil {
		return err
	}
	defer closeMCP()
	if server, err = web.New(wc); err != nil {
		return err
	}
	return server.Run(c.Context(), func(url string) {
		fmt.Fprintf(p.stderr, "paddock: MCP is served at %s\n", url)
		if dev {
			p.say("warning", "every program on this machine can run code here: no token is asked for")
		}
	})
}

// webConfig is what the configuration says of the HTTP server; what lies behind
// its paths is missing. The token of this machine's user is made where nothing
// else was set up for clients to come in with.
func (p *program) webConfig(dev bool) (web.Config, error) {
	h := p.config.HTTP
	wc := web.Config{
		Host: h.Host, Port: int(h.Port), Path: h.Path, PublicURL: h.PublicURL,
		AllowedHosts: h.AllowedHosts, Origins: h.Origins, TrustedProxies: h.TrustedProxies,
		CertFile: h.TLSCert, KeyFile: h.TLSKey, AllowPlain: h.AllowPlain, Dev: dev, MetricsOpen: h.MetricsOpen,
		MaxBodyBytes: h.MaxRequestBytes, MaxUploadBytes: p.config.Sessions.DiskBytes,
		RequestTimeout: h.RequestTimeout, Grace: h.ShutdownGrace,
		Context: telemetry.WithRequestID, Signed: files.Signed, Log: p.log,
	}
	if dev {
		return wc, nil
	}
	accepted := []auth.Verifier{auth.OpenTokens(p.places.state)}
	if h.AuthToken != "" {
		accepted = append(accepted, auth.Static(h.AuthToken, &auth.Principal{ID: "token:auth-token", Name: "configured"}))
	}
	if a := p.config.Auth; a.Issuer != "" {
		audience := a.Audience
		if audience == "" && h.PublicURL != "" {
			audience = h.PublicURL + h.Path
		}
		issuer, err := auth.NewOAuth(auth.OAuthConfig{Issuer: a.Issuer, AllowHTTP: a.AllowHTTPIssuer, Audience: audience, Required: a.ScopesRequired, Sets: config.ToolSets, Log: p.log})
		if err != nil {
			return wc, err
		}
		accepted = append(accepted, issuer)
		wc.Scopes, wc.Metadata = issuer.Scopes(), document(issuer.Metadata())
	}
	if len(accepted) == 1 {
		local, err := p.localToken()
		if err != nil {
			return wc, err
		}
		accepted = append(accepted, local)
	}
	wc.Verifier = auth.Any(accepted...)
	return wc, nil
}

// localToken accepts the token of this machine's user, and shows it when it was
// made just now.
func (p *program) localToken() (auth.Verifier, error) {
	token, created, err := auth.LocalToken(p.places.state)
	if err != nil {
		return nil, fmt.Errorf("making a token: %w", err)
	}
	switch {
	case created && terminal(p.stderr):
		fmt.Fprintf(p.stderr, "paddock: the token of this machine's user, which is shown this once: %s\n", token)
		p.say("hint", "paddock setup CLIENT --http gives it to a client; paddock token create makes others")
	case created: // a log is no place for it
		fmt.Fprintf(p.stderr, "paddock: a token for this machine's user was made: %s\n", filepath.Join(p.places.state, auth.LocalTokenFile))
	}
	return auth.Static(token, &auth.Principal{ID: auth.Local, Name: auth.Local}), nil
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

// addHandlers puts in what lies behind the paths; what it gives ends it.
func (p *program) addHandlers(wc *web.Config, o *parts, ready *readiness, refuse func(http.ResponseWriter, *http.Request, error)) (end func(), err error) {
	links, err := files.OpenLinks(p.places.state)
	if err != nil {
		return nil, err
	}
	server, err := p.newMCP(o, bindHTTP, linkWith(links))
	if err != nil {
		return nil, err
	}
	handler, err := server.Handler(mcpserver.HTTPConfig{MaxBody: wc.MaxBodyBytes, Tools: toolsOf, TasksDir: filepath.Join(p.places.state, "tasks"), Beyond: beyondScope(refuse)})
	if err != nil {
		return nil, fmt.Errorf("making the MCP endpoint: %w", err)
	}
	moved, err := files.New(files.Config{Sessions: o.sessions, Links: links, Base: web.BaseURL, Log: p.log, Moved: o.movedFile, Admit: func(owner session.Owner) (func(), error) {
		return o.admit(context.Background(), string(owner))
	}})
	if err != nil {
		handler.Close()
		return nil, err
	}
	wc.MCP, wc.Files = telemetry.Joined(handler), telemetry.Joined(moved)
	wc.Metrics, wc.Ready, wc.Answered, wc.OnDrain = o.telemetry.Handler(), ready.reasons, o.answered, handler.Drain
	wc.Admit = func(ctx context.Context, who *auth.Principal, _ *http.Request) (func(), error) {
		return o.admit(ctx, who.ID)
	}
	return handler.Close, nil
}

// admit counts one request of a principal, and takes it in hand.
func (o *parts) admit(ctx context.Context, principal string) (release func(), err error) {
	if err := o.gate.Request(principal); err != nil {
		o.telemetry.Rejected(ctx, "requests")
		return nil, err
	}
	if release, err = o.gate.Hold(principal); err != nil {
		o.telemetry.Rejected(ctx, "concurrent_requests")
	}
	return release, err
}

// answered measures a request, and records who could not come in.
func (o *parts) answered(ctx context.Context, a web.Answered) {
	o.telemetry.Request(ctx, a.Method, a.Route, a.Status, a.Took)
	if a.Refused != nil {
		o.note(ctx, audit.Record{Action: audit.AuthFailure, Outcome: audit.Error, ErrorType: string(fault.KindOf(a.Refused))})
	}
}

// movedFile records who read or changed a file.
func (o *parts) movedFile(ctx context.Context, m files.Moved) {
	r := audit.Record{Action: audit.FileRead, Principal: string(m.Owner), Session: string(m.Session), Target: m.Path, Outcome: audit.Success}
	if m.Write {
		r.Action = audit.FileWrite
	}
	if m.Err != nil {
		r.Outcome, r.ErrorType = audit.Error, string(fault.KindOf(m.Err))
	}
	o.note(ctx, r)
}

// note records what has happened already.
func (o *parts) note(ctx context.Context, r audit.Record) {
	if err := o.audit.Write(ctx, r); err != nil {
		o.log.WarnContext(ctx, "the audit log did not take a record", "action", r.Action, "cause", err)
	}
}

// newMCP makes the MCP server as the configuration says.
func (p *program) newMCP(o *parts, bind mcpserver.Binding, link linkMaker) (*mcpserver.Server, error) {
	c, version := p.config, p.config.Server.Version
	if version == "" {
		version = build().Version
	}
	server, err := mcpserver.New(mcpserver.Config{
		Sessions: o.sessions, Name: c.Server.Name, Version: version, Instructions: c.Server.Instructions, Tools: c.Tools.Enabled,
		DefaultTimeout: c.Sessions.DefaultTimeout, MaxTimeout: c.Sessions.MaxTimeout, MemoryBytes: c.Memory(),
		Binding: bind, Link: link, Telemetry: o.telemetry, Log: p.log,
	})
	if err != nil {
		return nil, fmt.Errorf("making the MCP server: %w", err)
	}
	return server, nil
}

type linkMaker = func(context.Context, session.Owner, session.ID, string) (string, time.Time, error)

// linkWith gives a file's one-time address, as the client knows this server.
func linkWith(links *files.Links) linkMaker {
	return func(ctx context.Context, owner session.Owner, id session.ID, path string) (string, time.Time, error) {
		l, err := links.New(owner, id, path, http.MethodGet, 0)
		return web.BaseURL(ctx) + l.URL, l.Expires, err
	}
}

// bindHTTP gives a client's MCP session one workspace of its principal's.
func bindHTTP(ctx context.Context, from mcpserver.Caller) (mcpserver.Bound, error) {
	who := auth.From(ctx)
	if who == nil {
		return mcpserver.Bound{}, fault.New(fault.Denied, "nobody said whose request this is")
	}
	return mcpserver.Bound{Owner: session.Owner(who.ID), Default: from.SessionID}, nil
}

// toolsOf are the sets that a request's token reaches; nil: all.
func toolsOf(ctx context.Context) []string {
	if who := auth.From(ctx); who != nil {
		return who.Tools
	}
	return []string{}
}

// beyondScope tells a client of an OAuth issuer which scope a tool needs. For
// other tokens nothing can be granted: to them the tool does not exist.
func beyondScope(refuse func(http.ResponseWriter, *http.Request, error)) func(http.ResponseWriter, *http.Request, string) bool {
	return func(w http.ResponseWriter, r *http.Request, set string) bool {
		who := auth.From(r.Context())
		if who == nil || !strings.HasPrefix(who.ID, auth.OfIssuer) {
			return false
		}
		refuse(w, r, auth.InsufficientScope(auth.ScopeOf(set)))
		return true
	}
}

// readiness is whether the interpreters have been prepared.
type readiness struct {
	reason atomic.Pointer[string] // nil: they have
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// prepareFor prepares the interpreters, until wait is called at the latest.
// Whoever calls before it is done waits for it, and gets its failure too: here
// it is only seen early.
func (p *program) prepareFor(ctx context.Context, b sandbox.Backend) *readiness {
	r := &readiness{}
	r.set("the interpreters are being prepared")
	ctx, r.cancel = context.WithCancel(ctx)
	r.done.Go(func() {
		err := p.prepare(ctx, b)
		switch {
		case err == nil:
			r.reason.Store(nil)
		case ctx.Err() == nil:
			p.log.Error("the interpreters cannot be prepared", "cause", err)
			r.set("the interpreters cannot be prepared")
		}
	})
	return r
}

func (r *readiness) set(reason string) { r.reason.Store(&reason) }

func (r *readiness) wait() {
	r.cancel()
	r.done.Wait()
}

func (r *readiness) reasons(context.Context) []string {
	if reason := r.reason.Load(); reason != nil {
		return []string{*reason}
	}
	return nil
}
