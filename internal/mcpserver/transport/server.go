// Package transport has MCP's ways to a server and back: HTTP in both eras of the protocol
// ([Handler]) and pairs of streams ([ServeStdio]). It reads messages strictly before the SDK
// does, answers ordinary calls of tools itself and leaves everything else to the SDK.
//
// Per client it holds what an era needs: a legacy client's MCP session, the events of streams
// that broke or ended, for a while and within bounds, and calls that became tasks. What a
// tool does, and whose a request is, is the [Server]'s.
package transport

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/mcpserver/execution"
	"paddock/internal/membudget"
	"paddock/internal/session"
)

// Server is what clients reach. It is safe for concurrent use.
type Server interface {
	// SDK gives the SDK's server that offers these sets of tools, nil: all; with tasks, for
	// clients that know them; alone: to clients each of whose calls is alone.
	SDK(sets []string, tasks, alone bool) *mcp.Server
	// Owner says whose a request is.
	Owner(context.Context, Caller) (session.Owner, error)
	// Tool finds one of paddock's own tools.
	Tool(name string) (Tool, bool)
	// Call runs one of them. Whatever happens, there is a result.
	Call(context.Context, Call) *mcp.CallToolResult
	// SessionEnded says that no request of this MCP session will follow.
	SessionEnded(owner session.Owner, id string)
}

// Base is what a Handler has from its Server's configuration.
type Base struct {
	Log            *slog.Logger
	Memory         *membudget.Budget   // of requests until they are answered; nil: nothing bounds it
	Implementation *mcp.Implementation // what the server calls itself
	AskClient      bool                // clients are asked about calls, where they can ask their users
}

// Caller is what a transport tells about who sent a request. What it put into
// the context, such as a token's owner, is there as well.
type Caller struct {
	// SessionID is the transport's, such as Mcp-Session-Id; empty: none.
	SessionID string
	// Header is the HTTP request's; nil: there was none.
	Header http.Header
}

// Tool is what a transport knows of a tool.
type Tool struct {
	Set         string // that it is in
	MayTakeLong bool   // so that a call may become a task
}

// Call is one call of a tool.
type Call struct {
	Tool      string
	Arguments json.RawMessage
	Caller    Caller
	Client    Client
	Meta      map[string]any // the request's _meta, as far as it is used; nil: nothing
	// Notify tells the client how far the call has come; nil: it did not ask.
	Notify func(done float64, message string)
	// Elicitor asks the client's user while the call is answered; nil: not so.
	Elicitor execution.Elicitor
	// Inputs is how else its user is asked; nil: not so either.
	Inputs *execution.InputResponses
	// Task is what a call that may become a task asks; nil: it cannot.
	Task *execution.TaskQuestions
}

// Client is what a client says of itself.
type Client struct {
	Info *mcp.Implementation // nil: it did not say
	// UntypedApps reports that it shows applications of servers, and names no types of them.
	UntypedApps bool
}

// appsExtension is how a client says that it shows applications of servers, and of which
// types. Mastra, whose name is its user's to choose, lists no types.
const appsExtension = "io.modelcontextprotocol/ui"

// ClientOf is a client by its name, if it gave one, and by the extensions that it declared.
func ClientOf(info *mcp.Implementation, extensions map[string]any) Client {
	apps, ok := extensions[appsExtension].(map[string]any)
	return Client{Info: info, UntypedApps: ok && len(apps) == 0}
}

type endingKey struct{}

// withEnding gives a context of requests that shall stop when ending does.
func withEnding(ctx, ending context.Context) context.Context {
	return context.WithValue(ctx, endingKey{}, ending)
}

// Ending gives the context at whose end a request shall stop that the SDK serves, with its
// MCP session or connection; nil: there is none.
func Ending(ctx context.Context) context.Context {
	ending, _ := ctx.Value(endingKey{}).(context.Context)
	return ending
}

// Encoded is JSON of what cannot fail to be encoded.
func Encoded(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic("mcpserver: " + err.Error())
	}
	return data
}
