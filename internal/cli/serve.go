package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"paddock/internal/audit"
	"paddock/internal/auth"
	"paddock/internal/cli/config"
	"paddock/internal/fault"
	"paddock/internal/mcpserver"
	"paddock/internal/microsandbox"
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
		Example: `  paddock serve
  PADDOCK_TRANSPORT_HTTP_TLS_CERT=cert.pem PADDOCK_TRANSPORT_HTTP_TLS_KEY=key.pem \
      paddock serve --host 0.0.0.0 --port 8443`,
		Args: count(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error { return p.serve(c, dev) },
	}
	keyFlag(c.Flags(), "host", "listen at this `ADDRESS`")
	keyFlag(c.Flags(), "port", "listen at this `PORT`; 0: any that is free")
	keyFlag(c.Flags(), "tools", "offer these `SETS` of tools, with commas: "+strings.Join(config.ToolSets, ", "))
	keyFlag(c.Flags(), "isolation", "run programs in this `KIND` of sandbox: wasm or linux")
	netFlag(c.Flags())
	secretFlag(c.Flags())
	keyFlag(c.Flags(), "insecure-http", "let other machines call without TLS")
	c.Flags().Lookup("insecure-http").NoOptDefVal = "true"
	c.Flags().BoolVar(&dev, "dev", false, "ask for no token; on a loopback address only")
	return c
}

func (p *program) serve(c *cobra.Command, dev bool) error {
	if err := p.load(c); err != nil {
		return err
	}
	relaxCollector()
	keepListening()
	p.transport = overHTTP
	p.warnOfSecrets()
	wc, local, err := p.webConfig(dev)
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
	if err := p.checkAudit(parts.audit); err != nil {
		return err
	}
	// Calls that run while the server ends may wait for it still.
	ready := p.prepareFor(context.WithoutCancel(c.Context()), parts.backends)
	defer ready.wait()
	var server *web.Server
	refuse := func(w http.ResponseWriter, r *http.Request, err error) { server.Refuse(w, r, err) }
	if err := p.addPreviews(&wc, parts, refuse, func(id string) string { return server.PreviewURL(id) }); err != nil {
		return err
	}
	closeMCP, err := p.addHandlers(&wc, parts, ready, refuse)
	if err != nil {
		return err
	}
	defer closeMCP()
	defer parts.previews.unannounce()
	drain := wc.OnDrain
	wc.OnDrain = func() {
		p.tellEnding(parts.sessions.Stats())
		drain()
	}
	if server, err = web.New(wc); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(c.Context())
	defer stop(nil)
	err = server.Run(ctx, func(url string) {
		parts.previews.announce(server.PreviewURL)
		if err := p.tellServing(url, local, dev); err != nil {
			stop(err)
		}
	})
	if failed := context.Cause(ctx); failed != nil && c.Context().Err() == nil {
		return failed
	}
	return err
}

// tellServing says where it is served, when this machine's user can come in; nil: nobody
// is to be let in so.
func (p *program) tellServing(url string, local *localUser, dev bool) error {
	if local != nil {
		if err := p.openLocal(local); err != nil {
			return err
		}
	}
	fmt.Fprintf(p.stderr, "paddock: MCP is served at %s\n", url)
	if dev {
		p.say("warning", "every program on this machine can run code here: no token is asked for")
	}
	return nil
}

// tellEnding says what the end waits for.
func (p *program) tellEnding(s session.Stats) {
	switch n := s.Running + s.Queued; n {
	case 0:
	case 1:
		fmt.Fprintln(p.stderr, "paddock: ending; 1 call still runs (a second Ctrl-C ends at once)")
	default:
		fmt.Fprintf(p.stderr, "paddock: ending; %d calls still run (a second Ctrl-C ends at once)\n", n)
	}
}

// relaxCollector trades memory for time, unless the environment says how: little lives
// here and much comes and goes, so that the heap may grow to five times what lives, up to
// what [newMemory] allows.
func relaxCollector() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}

// spareThreads is how many goroutines may compute beyond one for each processor.
const spareThreads = 6

// keepListening has calls answered while others compute, unless the environment says how.
// With as many threads as processors Go looks at the network every 10 ms once all of them
// compute. With some to spare it looks at once, and the system, whose slices are shorter,
// divides the processors. On two of them the calls of an honest client took 4 to 10 times as
// long beside all attacks at once, and with six spare threads 1.5 to 1.8 times (make hostile).
func keepListening() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + spareThreads)
	}
}

// checkAudit says before anybody calls that the audit log cannot be written.
// Where it has to be, no program could run.
func (p *program) checkAudit(log *audit.Log) error {
	err := log.Check()
	if err == nil {
		return nil
	}
	f := fault.New(fault.Unavailable, "the audit log cannot be written in %s", p.auditFolder()).
		WithHint("let this user write there; audit.mode = \"best_effort\" runs programs unrecorded").WithCause(err)
	if audit.Mode(p.config.Audit.Mode) == audit.Required {
		return f
	}
	p.say("warning", f.Message)
	return nil
}

// webConfig is what the configuration says of the HTTP server; what lies behind
// its paths is missing. Where nothing else was set up for clients to come in
// with, this machine's user may: local is to be opened then, else it is nil.
func (p *program) webConfig(dev bool) (wc web.Config, local *localUser, err error) {
	h := p.config.HTTP
	wc = web.Config{
		Host: h.Host, Port: int(h.Port), Path: h.Path, PublicURL: h.PublicURL,
		PreviewDomain: h.PreviewDomain, AllowedHosts: h.AllowedHosts, Origins: h.Origins, TrustedProxies: h.TrustedProxies,
		CertFile: h.TLSCert, KeyFile: h.TLSKey, AllowPlain: h.AllowPlain, Dev: dev, MetricsOpen: h.MetricsOpen,
		MaxBodyBytes: h.MaxRequestBytes, MaxUploadBytes: p.config.Sessions.DiskBytes,
		RequestTimeout: h.RequestTimeout, Grace: h.ShutdownGrace,
		Context: telemetry.WithRequestID, Signed: files.Signed, Log: p.log,
	}
	if dev {
		wc.Verifier = auth.OpenTokens(p.places.state)
		return wc, nil, nil
	}
	tokens := auth.OpenTokens(p.places.state)
	if _, err := tokens.List(); err != nil { // all of their bearers would be refused, and not know why
		return wc, nil, err
	}
	accepted := []auth.Verifier{tokens}
	if h.AuthToken != "" {
		accepted = append(accepted, auth.Static(h.AuthToken, &auth.Principal{ID: configured, Name: "configured"}))
	}
	if a := p.config.Auth; a.Issuer != "" {
		audience := a.Audience
		if audience == "" && h.PublicURL != "" {
			audience = h.PublicURL + h.Path
		}
		issuer, err := auth.NewOAuth(auth.OAuthConfig{Issuer: a.Issuer, AllowHTTP: a.AllowHTTPIssuer, Audience: audience, Required: a.ScopesRequired, Sets: config.Scopes(), Log: p.log})
		if err != nil {
			return wc, nil, err
		}
		accepted = append(accepted, issuer)
		wc.Scopes, wc.Metadata = issuer.Scopes(), document(issuer.Metadata())
	}
	if len(accepted) == 1 {
		local = &localUser{dir: p.places.state}
		accepted = append(accepted, local)
	}
	wc.Verifier = auth.Any(accepted...)
	return wc, local, nil
}

// configured is the ID of whoever comes in with the configuration's token.
const configured = auth.OfToken + "auth-token"

// alive says whether an owner may still act. Of an issuer's nobody knows that
// without their token.
func (p *program) alive() func(session.Owner) error {
	tokens := auth.OpenTokens(p.places.state)
	return func(owner session.Owner) error {
		id := string(owner)
		if !strings.HasPrefix(id, auth.OfToken) || id == configured && p.config.HTTP.AuthToken != "" {
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

// addHandlers puts in what lies behind the paths; what it gives ends it.
func (p *program) addHandlers(wc *web.Config, o *parts, ready *readiness, refuse func(http.ResponseWriter, *http.Request, error)) (end func(), err error) {
	links, err := files.OpenLinks(p.places.state)
	if err != nil {
		return nil, err
	}
	server, err := p.newMCP(o, bindHTTP, linkWith(o, links))
	if err != nil {
		return nil, err
	}
	stopResuming := resume(server, "")
	handler, err := server.Handler(mcpserver.HTTPConfig{Path: p.config.HTTP.Path, MaxBody: wc.MaxBodyBytes, Tools: toolsOf, TasksDir: filepath.Join(p.places.state, "tasks"), Beyond: beyondScope(refuse), Grace: wc.Grace})
	if err != nil {
		stopResuming()
		return nil, fmt.Errorf("making the MCP endpoint: %w", err)
	}
	end = func() { handler.Close(); stopResuming() }
	moved, err := files.New(files.Config{
		Named:    server.Named,
		Sessions: o.sessions, Links: links, Base: web.BaseURL, Log: p.log, Moved: o.movedFile, Alive: p.alive(), Beyond: beyondScope(refuse),
		Admit: func(owner session.Owner) (func(), error) { return o.admit(context.Background(), string(owner), false) },
	})
	if err != nil {
		end()
		return nil, err
	}
	if wc.Approvals, err = approvalsAPI(o, beyondScope(refuse)); err != nil {
		end()
		return nil, err
	}
	wc.MCP, wc.Files = telemetry.Joined(handler), telemetry.Joined(moved)
	wc.Metrics, wc.Ready, wc.Answered, wc.OnDrain = o.telemetry.Handler(), ready.reasons, o.answered, handler.Drain
	if slices.Contains(p.config.Tools.Enabled, sandboxSet) {
		wc.RPC, wc.Health = telemetry.Joined(o.sandboxes.RPC(sandboxOwner, o.memory)), http.HandlerFunc(microsandbox.Health)
	}
	path := wc.Path
	wc.Failed, wc.Listens = o.failed, listens
	wc.Admit = func(ctx context.Context, who *auth.Principal, r *http.Request) (func(), error) {
		return o.admit(ctx, who.ID, r.URL.Path == path && listens(r))
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
func (o *parts) admit(ctx context.Context, principal string, listens bool) (release func(), err error) {
	if err := o.gate.Request(principal); err != nil {
		o.telemetry.Rejected(ctx, "requests")
		return nil, err
	}
	take, of := o.gate.Hold, "concurrent_requests"
	if listens {
		take, of = o.gate.Listen, "streams"
	}
	if release, err = take(principal); err != nil {
		o.telemetry.Rejected(ctx, of)
	}
	return release, err
}

// answered measures a request.
func (o *parts) answered(ctx context.Context, a web.Answered) {
	o.telemetry.Request(ctx, a.Method, a.Route, a.Status, a.Took)
}

// failed records from where somebody could not come in, and how often.
func (o *parts) failed(ctx context.Context, f web.Failures) {
	r := audit.Record{Action: audit.AuthFailure, Outcome: audit.Error, ErrorType: string(fault.KindOf(f.Last))}
	if f.From.IsValid() {
		r.Target = f.From.String()
	}
	if f.Count > 1 {
		r.Count = f.Count
	}
	o.note(ctx, r)
}

// movedFile records who read or changed a file, or made a link to it.
func (o *parts) movedFile(ctx context.Context, m files.Moved) {
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
	o.note(ctx, r)
}

// touchedFile records which file a tool or a resource read or changed.
func (o *parts) touchedFile(ctx context.Context, owner session.Owner, id session.ID, path string, write bool, err error) {
	o.movedFile(ctx, files.Moved{Owner: owner, Session: id, Path: path, Write: write, Err: err})
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
	memory := c.Memory()
	if _, most := c.MachineMemory(); o.backends.runs(sandboxIsolation) {
		memory = max(memory, most)
	}
	server, err := mcpserver.New(mcpserver.Config{
		Sessions: o.sessions, Sandboxes: o.sandboxes, Servers: o.bindings.broker, Skills: o.skills.Store, Name: c.Server.Name, Version: version, Instructions: c.Server.Instructions, Tools: c.Tools.Enabled,
		DefaultTimeout: c.Sessions.DefaultTimeout, MaxTimeout: c.Sessions.MaxTimeout, MemoryBytes: memory,
		Binding: bind, Link: link, Preview: o.previews.forModels(), Touched: o.touchedFile, Approvals: o.approvals.store, AskClient: c.Approvals.AskClient, Reaches: o.network.Reaches, Secrets: c.Secrets.Allow,
		Packages: p.newInstaller(o), Helpers: o.helpers, Memory: o.memory, Telemetry: o.telemetry, Log: p.log,
	})
	if err != nil {
		return nil, fmt.Errorf("making the MCP server: %w", err)
	}
	return server, nil
}

type linkMaker = func(context.Context, session.Owner, session.ID, string) (string, time.Time, error)

// linkWith gives a file's one-time address, as the client knows this server.
func linkWith(o *parts, links *files.Links) linkMaker {
	return func(ctx context.Context, owner session.Owner, id session.ID, path string) (string, time.Time, error) {
		l, err := links.New(owner, id, path, http.MethodGet, 0)
		o.movedFile(ctx, files.Moved{Owner: owner, Session: id, Path: path, Link: true, Err: err})
		return web.BaseURL(ctx) + l.URL, l.Expires, err
	}
}

// bindHTTP gives a client's MCP session one workspace of its principal's.
func bindHTTP(ctx context.Context, from mcpserver.Caller) (mcpserver.Bound, error) {
	who := auth.From(ctx)
	if who == nil {
		return mcpserver.Bound{}, fault.New(fault.Denied, "the request has no principal")
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

// namespacesOf are those of sandboxes that a request's token reaches; nil: all.
func namespacesOf(ctx context.Context) []string {
	if who := auth.From(ctx); who != nil {
		return who.Namespaces
	}
	return nil
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
