// Package mcpserver offers sessions to MCP clients: tools, resources and
// instructions over the official SDK, on stdio now and over HTTP later. It
// holds no state but which session is whose default.
//
// A program that fails is a result; what paddock could not do is a result with
// isError and a typed error. A handler's panic costs one call.
package mcpserver

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/fault"
	"paddock/internal/session"
)

// Config sets a Server up. It is copied.
type Config struct {
	// Sessions is where everything happens; it is not closed by the Server.
	Sessions *session.Manager
	// Name and Version are what the server calls itself; empty: "paddock", "dev".
	Name, Version string
	// Instructions are what models are told, 2048 characters at most; empty:
	// made from what runs here.
	Instructions string
	// Tools are the sets that clients see: "core", "files"; nil: both.
	Tools []string
	// DefaultTimeout and MaxTimeout are the Sessions' own, for the descriptions;
	// zero: 30 s, 1 h.
	DefaultTimeout, MaxTimeout time.Duration
	// MemoryBytes is the Sessions' own, likewise; zero: 256 MiB.
	MemoryBytes int64
	// Binding tells whose a request is that does not come over ServeStdio; nil:
	// such requests are denied.
	Binding Binding
	// Log takes each call at debug level and paddock's own mistakes at error
	// level; nil: nothing is logged.
	Log *slog.Logger
}

// Server answers MCP requests. It is safe for concurrent use and serves any
// number of connections.
type Server struct {
	config   Config
	log      *slog.Logger
	mcp      *mcp.Server
	defaults defaults
}

// maxInstructions is where a client cuts instructions off.
const maxInstructions = 2048

// New makes a Server. It asks the Sessions once what can run here.
func New(config Config) (*Server, error) {
	config.Tools = slices.Clone(config.Tools)
	if err := config.complete(); err != nil {
		return nil, err
	}
	s := &Server{config: config, log: config.Log}
	runtimes := config.Sessions.Runtimes(context.Background())
	instructions := config.Instructions
	if instructions == "" {
		instructions = s.instructions(runtimes)
	}
	s.mcp = mcp.NewServer(&mcp.Implementation{Name: config.Name, Title: "paddock", Version: config.Version}, &mcp.ServerOptions{
		Instructions: instructions,
		// Neither list changes while the server runs, and nothing is subscribed to.
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}, Resources: &mcp.ResourceCapabilities{}},
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { c.CacheScope = "private" },
		Logger:       slog.New(ofSDK{config.Log.Handler()}),
	})
	for _, set := range config.Tools {
		for _, t := range sets[set](s, runtimes) {
			s.mcp.AddTool(t.definition, s.handler(t))
		}
	}
	s.addResources()
	s.mcp.AddReceivingMiddleware(s.protect)
	return s, nil
}

// sets are the tool sets by name.
var sets = map[string]func(*Server, []session.Runtime) []tool{
	"core":  (*Server).coreTools,
	"files": func(s *Server, _ []session.Runtime) []tool { return s.fileTools() },
}

// complete puts defaults in and reports the first mistake.
func (c *Config) complete() error {
	if c.Sessions == nil {
		return fault.New(fault.Internal, "an MCP server needs sessions")
	}
	if c.Name == "" {
		c.Name = "paddock"
	}
	if c.Version == "" {
		c.Version = "dev"
	}
	if c.Tools == nil {
		c.Tools = slices.Sorted(maps.Keys(sets))
	}
	if c.DefaultTimeout == 0 {
		c.DefaultTimeout = 30 * time.Second
	}
	if c.MaxTimeout == 0 {
		c.MaxTimeout = time.Hour
	}
	if c.MemoryBytes == 0 {
		c.MemoryBytes = 256 << 20
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	for _, name := range c.Tools {
		if sets[name] == nil {
			return fault.New(fault.Invalid, "there is no set of tools called %q", name).WithHint("the sets are %s", strings.Join(slices.Sorted(maps.Keys(sets)), ", "))
		}
	}
	if n := utf8.RuneCountInString(c.Instructions); n > maxInstructions {
		return fault.New(fault.Invalid, "the instructions have %d characters", n).WithHint("clients show %d at most", maxInstructions)
	}
	return nil
}

// MCP gives the SDK's server, for a transport other than stdio. Requests that
// arrive through it are bound by Config.Binding.
func (s *Server) MCP() *mcp.Server { return s.mcp }

// protect is around every request: a panic costs one call, and a connection
// that drains cancels what runs.
func (s *Server) protect(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			s.log.ErrorContext(ctx, "a handler panicked", "method", method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			mistake := fault.Of(fmt.Errorf("panic: %v", p))
			if res, err = nil, wireError(mistake); method == "tools/call" {
				res, err = failure(mistake), nil
			}
		}()
		if c, ok := ctx.Value(connectionKey{}).(*connection); ok {
			cancellable, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			defer context.AfterFunc(c.draining, func() { cancel(context.Cause(c.draining)) })()
			ctx = cancellable
		}
		if list, ok := req.(*mcp.ListResourcesRequest); ok {
			return s.listResources(ctx, list)
		}
		return next(ctx, method, req)
	}
}

// wireError is a fault as a protocol error, for what is no tool.
func wireError(err error) error {
	p := problemOf(err)
	code := int64(jsonrpc.CodeInternalError)
	switch p.Code {
	case fault.Invalid, fault.NotFound, fault.Denied, fault.Exhausted, fault.Unsupported:
		code = jsonrpc.CodeInvalidParams
	}
	return &jsonrpc.Error{Code: code, Message: p.line(), Data: encoded(map[string]problem{"error": p})}
}

// ofSDK keeps the SDK's chatter out of the log, and a client's mistakes too
// unless everything is logged.
type ofSDK struct{ slog.Handler }

// clientMistakes are what the SDK calls errors and a client can bring about.
var clientMistakes = []string{
	"method invalid during initialization", "initialized before initialize", "duplicate initialized notification",
	"duplicate initialize request", "method removed in the new protocol",
}

func (h ofSDK) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelError && h.Handler.Enabled(ctx, l)
}

func (h ofSDK) Handle(ctx context.Context, r slog.Record) error {
	if slices.Contains(clientMistakes, r.Message) {
		if !h.Handler.Enabled(ctx, slog.LevelDebug) {
			return nil
		}
		r.Level = slog.LevelDebug
	}
	return h.Handler.Handle(ctx, r)
}
