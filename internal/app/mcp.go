package app

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"paddock/internal/auth"
	"paddock/internal/fault"
	"paddock/internal/mcpserver"
	"paddock/internal/session"
	"paddock/internal/web"
	"paddock/internal/web/files"
)

// NewMCP makes the MCP server as the configuration says.
func (a *App) NewMCP(bind mcpserver.Binding, link linkMaker) (*mcpserver.Server, error) {
	c, version := a.Config, a.Config.Server.Version
	if version == "" {
		version = a.Version
	}
	memory := c.Memory()
	if _, most := c.MachineMemory(); a.Backends.runs(sandboxIsolation) {
		memory = max(memory, most)
	}
	server, err := mcpserver.New(mcpserver.Config{
		Sessions: a.Sessions, Sandboxes: a.sandboxes, Servers: a.tools.broker, Skills: a.skills.Store, Name: c.Server.Name, Version: version, Instructions: c.Server.Instructions, Tools: c.Tools.Enabled,
		DefaultTimeout: c.Sessions.DefaultTimeout, MaxTimeout: c.Sessions.MaxTimeout, MemoryBytes: memory,
		Binding: bind, Link: link, Preview: a.previews.forModels(), Touched: a.touchedFile, Approvals: a.approvals.store, AskClient: c.Approvals.AskClient, Reaches: a.network.Reaches, Secrets: c.Secrets.Allow,
		Packages: a.newInstaller(), Helpers: a.Helpers, Memory: a.memory, Telemetry: a.telemetry, Log: a.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("making the MCP server: %w", err)
	}
	return server, nil
}

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
