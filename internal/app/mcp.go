package app

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"paddock/internal/auth"
	"paddock/internal/fault"
	"paddock/internal/mcpserver"
	"paddock/internal/mcpserver/transport"
	"paddock/internal/session"
	"paddock/internal/web"
	"paddock/internal/web/files"
)

// NewMCP makes the MCP server for one client, which has no addresses to open files or
// previews at.
func (a *App) NewMCP() (*mcpserver.Server, error) { return a.newMCP(nil, nil, nil) }

// newMCP makes the MCP server as the configuration says. bind finds the session of an MCP
// client; nil means the default for one client. link and show, where they are not nil, give
// models links to files and to previews.
func (a *App) newMCP(bind mcpserver.Binding, link linkMaker, show makePreview) (*mcpserver.Server, error) {
	c := a.Config
	memory := c.Memory()
	if _, most := c.MachineMemory(); a.Backends.runs(sandboxIsolation) {
		memory = max(memory, most)
	}
	server, err := mcpserver.New(mcpserver.Config{
		Name: c.Server.Name, Version: cmp.Or(c.Server.Version, a.Version), Instructions: c.Server.Instructions, Tools: c.Tools.Enabled,
		Sessions: a.Sessions, Sandboxes: a.sandboxes, Servers: a.tools.broker, Skills: a.skills.Store, Packages: a.newInstaller(),
		DefaultTimeout: c.Sessions.DefaultTimeout, MaxTimeout: c.Sessions.MaxTimeout, MemoryBytes: memory,
		Binding: bind, Link: link, Preview: show, Touched: a.touchedFile,
		Approvals: a.approvals.store, AskClient: c.Approvals.AskClient, Reaches: a.network.Reaches, Secrets: c.Secrets.Allow,
		Helpers: a.Helpers, Memory: a.memory, Telemetry: a.telemetry, Log: a.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("making the MCP server: %w", err)
	}
	return server, nil
}

// linkMaker gives a file's one-time address and until when it can be used.
type linkMaker = func(context.Context, session.Owner, session.ID, string) (string, time.Time, error)

// linkWith gives a file's one-time address, as the client knows this server.
func (a *App) linkWith(links *files.Links) linkMaker {
	return func(ctx context.Context, owner session.Owner, id session.ID, path string) (string, time.Time, error) {
		l, err := links.New(owner, id, path, http.MethodGet, 0)
		a.movedFile(ctx, files.Moved{Owner: owner, Session: id, Path: path, Link: true, Err: err})
		return web.BaseURL(ctx) + l.URL, l.Expires, err
	}
}

// bindHTTP gives a client's MCP session one workspace of its principal's.
func bindHTTP(ctx context.Context, from transport.Caller) (mcpserver.Bound, error) {
	who := auth.From(ctx)
	if who == nil {
		return mcpserver.Bound{}, fault.New(fault.Denied, "the request has no principal")
	}
	return mcpserver.Bound{Owner: session.Owner(who.ID), Default: from.SessionID}, nil
}

// toolsOf gives the sets of tools that a request's token reaches; nil means all.
func toolsOf(ctx context.Context) []string {
	if who := auth.From(ctx); who != nil {
		return who.Tools
	}
	return []string{}
}

// namespacesOf gives the namespaces of sandboxes that a request's token reaches; nil means
// all.
func namespacesOf(ctx context.Context) []string {
	if who := auth.From(ctx); who != nil {
		return who.Namespaces
	}
	return nil
}

// beyondFunc answers a request that needs a set of tools which its token does not reach, and
// reports whether it did.
type beyondFunc = func(w http.ResponseWriter, r *http.Request, set string) bool

// beyondScope tells a client of an OAuth issuer which scope a tool needs. Other tokens cannot
// be granted one: for them the tool does not exist.
func beyondScope(refuse func(http.ResponseWriter, *http.Request, error)) beyondFunc {
	return func(w http.ResponseWriter, r *http.Request, set string) bool {
		who := auth.From(r.Context())
		if who == nil || !strings.HasPrefix(who.ID, auth.OfIssuer) {
			return false
		}
		refuse(w, r, auth.InsufficientScope(auth.ScopeOf(set)))
		return true
	}
}
