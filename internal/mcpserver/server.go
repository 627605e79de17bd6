// Package mcpserver offers sessions to MCP clients: tools, resources, prompts and
// instructions, over the official SDK. What carries requests is mcpserver/transport, and what
// takes a program to its end through its waits for a person is mcpserver/execution.
//
// In memory it holds which session is whose default one, which sessions no call has named
// (they make room for others), and what the resources of skills were made from.
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
	"sync"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/approval"
	"paddock/internal/bindings/broker"
	"paddock/internal/fault"
	"paddock/internal/helper"
	"paddock/internal/mcpserver/execution"
	"paddock/internal/mcpserver/transport"
	"paddock/internal/membudget"
	"paddock/internal/microsandbox"
	"paddock/internal/pkgproxy/install"
	"paddock/internal/session"
	"paddock/internal/skill"
	"paddock/internal/telemetry"
)

// Config sets a Server up. It is copied.
type Config struct {
	// Sessions is where everything happens; it is not closed by the Server.
	Sessions *session.Manager
	// Sandboxes are the named ones, for the set "sandbox"; nil: there are none. It
	// is not closed by the Server.
	Sandboxes *microsandbox.Service
	// Servers are other MCP servers that programs call, for the set "code-mode"; nil:
	// there are none, and nobody can bind any. It is not closed by the Server.
	Servers *broker.Broker
	// Name and Version are what the server calls itself; empty: "paddock", "dev".
	Name, Version string
	// Instructions are what models are told, 2048 characters at most; empty:
	// made from what runs here.
	Instructions string
	// Skills are what programs import and read at /skills, for the set "skills"; nil:
	// there are none.
	Skills *skill.Store
	// Tools are the sets that clients see: "core", "files", "code-mode", "skills",
	// "history", "sandbox"; nil: the first two, and the next two where there are Servers
	// and Skills.
	Tools []string
	// DefaultTimeout and MaxTimeout are the Sessions' own, for the descriptions;
	// zero: 30 s, 1 h.
	DefaultTimeout, MaxTimeout time.Duration
	// MemoryBytes is the Sessions' own, likewise; zero: 256 MiB.
	MemoryBytes int64
	// Binding tells whose a request is that does not come over ServeStdio; nil:
	// such requests are denied.
	Binding Binding
	// Telemetry measures and traces the calls; nil: nothing does.
	Telemetry *telemetry.Telemetry
	// Touched is told of each file that a tool or a resource was asked for; nil:
	// nobody is.
	Touched func(ctx context.Context, owner session.Owner, id session.ID, path string, write bool, err error)
	// Link makes an address under which anybody can have a file once; nil: there
	// are none, and no tool offers them.
	Link func(ctx context.Context, owner session.Owner, id session.ID, path string) (url string, expires time.Time, err error)
	// Preview makes an address at which anybody can open what a program of a session
	// serves at a port, beginning at a path; nil: there are none, and no tool offers them.
	Preview func(ctx context.Context, owner session.Owner, id session.ID, port uint16, path string) (url string, expires time.Time, err error)
	// Reaches gives the rules that say what programs of a session reach, by its
	// Settings.Network; nil: nothing, whatever that says.
	Reaches func(network *[]string) []string
	// Secrets are the names of those that sessions may have; none: they have none.
	Secrets []string
	// Packages puts packages into sessions; nil: nobody does. It is not closed by the
	// Server.
	Packages *install.Installer
	// Helpers do work on what programs and clients give that may take much memory or
	// time; nil: it is done in this process.
	Helpers *helper.Runner
	// Memory bounds what results hold until their clients have read them; nil: nothing.
	Memory *membudget.Budget
	// Approvals are the calls of tools that wait for a person; nil: there are none.
	Approvals *approval.Store
	// AskClient has the client be asked about those of the programs that it runs, where
	// it can ask its user.
	AskClient bool
	// extend adds to each of the SDK's servers what only the tests have.
	extend func(*mcp.Server)
	// options changes how each of the SDK's servers is made, likewise.
	options func(*mcp.ServerOptions)
	// Log takes each call at debug level and paddock's own mistakes at error
	// level; nil: nothing is logged.
	Log *slog.Logger
}

// Server answers MCP requests. It is safe for concurrent use and serves any
// number of connections.
type Server struct {
	config       Config
	log          *slog.Logger
	instructions string
	// aloneInstructions are for clients each of whose calls is alone.
	aloneInstructions string

	tools      map[string]tool     // by name
	sets       map[string][]string // the tools' names, by their set
	mcp        *mcp.Server         // with all of them
	defaults   defaults
	passing    passing
	skills     skillEntries
	executions *execution.Registry

	mu       sync.Mutex // guards what follows
	variants map[string]*mcp.Server
}

// maxInstructions is where a client cuts instructions off.
const maxInstructions = 2048

// New makes a Server. It asks the Sessions once what can run here.
func New(config Config) (*Server, error) {
	config.Tools = slices.Clone(config.Tools)
	if err := config.complete(); err != nil {
		return nil, err
	}
	s := &Server{config: config, log: config.Log, tools: map[string]tool{}, sets: map[string][]string{}, variants: map[string]*mcp.Server{}}
	s.executions = execution.NewRegistry(execution.Config{
		Approvals: config.Approvals, Waiting: config.Sessions.WaitingRuns, Log: s.log,
		Unattended: func(owner session.Owner, id session.ID, execution string) execution.Unattended {
			return unattended{&call{server: s, bound: Bound{Owner: owner}, session: id, execution: execution}}
		},
	})
	runtimes := config.Sessions.Runtimes(context.Background())
	if s.instructions, s.aloneInstructions = config.Instructions, config.Instructions; s.instructions == "" {
		s.instructions, s.aloneInstructions = s.describe(runtimes, false), s.describe(runtimes, true)
	}
	for _, set := range config.Tools {
		for _, t := range sets[set](s, runtimes) {
			t.set = set
			s.tools[t.definition.Name] = t
			s.sets[set] = append(s.sets[set], t.definition.Name)
		}
	}
	s.mcp = s.SDK(nil, false, false)
	return s, nil
}

// SDK implements [transport.Server]. Where each call is alone the texts say so, as nothing
// says which session it goes on in.
func (s *Server) SDK(only []string, tasks, alone bool) *mcp.Server {
	var offered []string
	for _, set := range s.config.Tools {
		if only == nil || slices.Contains(only, set) {
			offered = append(offered, set)
		}
	}
	// A token without them reads no file, and no skill, as a resource either.
	files, skills := slices.Contains(offered, "files"), slices.Contains(offered, "skills") && s.config.Skills != nil
	key := fmt.Sprint(tasks, alone, offered)
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.variants[key]; v != nil {
		return v
	}
	options := &mcp.ServerOptions{
		Instructions: s.instructionsFor(alone),
		// Neither list changes while the server runs, and nothing is subscribed to.
		Capabilities: capabilitiesWith(tasks, files, skills),
		SetCacheable: cacheable,
		Logger:       transport.SDKLog(s.log),
	}
	if s.config.options != nil {
		s.config.options(options)
	}
	v := mcp.NewServer(s.implementation(), options)
	for _, set := range offered {
		for _, name := range s.sets[set] {
			definition := s.tools[name].definition
			if alone {
				definition = aloneDefinition(definition)
			}
			v.AddTool(definition, s.handler(s.tools[name]))
		}
	}
	if files {
		s.addResources(v)
	}
	if skills {
		s.addSkills(v)
	}
	if slices.Contains(offered, "sandbox") {
		addSandboxPrompts(v)
	}
	if s.config.extend != nil {
		s.config.extend(v)
	}
	v.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler { return s.protect(next, files, skills) })
	s.variants[key] = v
	return v
}

func (s *Server) implementation() *mcp.Implementation {
	return &mcp.Implementation{Name: s.config.Name, Title: "paddock", Version: s.config.Version}
}

// unchanged is how long a client may keep what changes with paddock alone. A
// server that is updated meanwhile knows all that the earlier one offered.
const unchanged = 5 * time.Minute

// cacheable says how long an answer holds: what a token may use is its own, and
// files change at any time.
func cacheable(_ context.Context, req mcp.Request, c *mcp.Cacheable) {
	c.CacheScope = "private"
	if _, file := req.(*mcp.ReadResourceRequest); !file {
		c.TTLMs = int(unchanged.Milliseconds())
	}
}

// capabilitiesWith tells what there is. It always declares prompts: the SDK answers
// prompts/list, even where there are none, and what a server answers it has to
// declare.
func capabilitiesWith(tasks, files, skills bool) *mcp.ServerCapabilities {
	c := &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}, Prompts: &mcp.PromptCapabilities{}}
	if files || skills {
		c.Resources = &mcp.ResourceCapabilities{}
	}
	if skills {
		c.AddExtension(skillsExtension, map[string]any{"directoryRead": true})
	}
	if tasks {
		c.AddExtension(transport.TasksExtension, map[string]any{})
	}
	return c
}

// sets are the tool sets by name.
var sets = map[string]func(*Server, []session.Runtime) []tool{
	"core":    (*Server).coreTools,
	"files":   func(s *Server, _ []session.Runtime) []tool { return s.fileTools() },
	"history": func(s *Server, _ []session.Runtime) []tool { return s.historyTools() },
	codeMode:  func(s *Server, _ []session.Runtime) []tool { return s.codeModeTools() },
	"sandbox": func(s *Server, _ []session.Runtime) []tool { return s.sandboxTools() },
	"skills":  func(s *Server, _ []session.Runtime) []tool { return s.skillTools() },
}

// usual are the sets that clients see when nobody says.
var usual = []string{"core", "files", codeMode, "skills"}

// codeMode is the set by which programs get at other MCP servers.
const codeMode = "code-mode"

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
		c.Tools = slices.Clone(usual)
		if c.Servers == nil {
			c.Tools = slices.DeleteFunc(c.Tools, func(set string) bool { return set == codeMode })
		}
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

// protect is around every request: a panic costs one call, and a connection
// that ends cancels what runs.
func (s *Server) protect(next mcp.MethodHandler, files, skills bool) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			mistake := s.mistake(ctx, method, p)
			if res, err = nil, wireError(mistake); method == "tools/call" {
				res, err = failure(mistake), nil
			}
		}()
		if ending := transport.Ending(ctx); ending != nil {
			cancellable, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			defer context.AfterFunc(ending, func() { cancel(context.Cause(ending)) })()
			ctx = cancellable
		}
		if list, ok := req.(*mcp.ListResourcesRequest); ok && (files || skills) {
			return s.listResources(ctx, list, files, skills)
		}
		if slices.Contains(skillMethods, method) {
			ctx = context.WithValue(ctx, callerKey{}, callerOf(req))
		}
		res, err = next(ctx, method, req)
		if list, ok := req.(*mcp.ListToolsRequest); ok && err == nil {
			all := *res.(*mcp.ListToolsResult)
			all.Tools = quirksOf(clientOf(list)).definitions(all.Tools)
			return &all, nil
		}
		return res, err
	}
}

// mistake logs a panic of a handler and gives the fault in its place.
func (s *Server) mistake(ctx context.Context, handler string, p any) error {
	s.log.ErrorContext(ctx, "a handler panicked", "handler", handler, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	return fault.Of(fmt.Errorf("panic: %v", p))
}

// wireError is a fault as a protocol error, for what is not a tool.
func wireError(err error) error {
	p := fault.ProblemOf(err)
	code := int64(jsonrpc.CodeInternalError)
	switch p.Code {
	case fault.Invalid, fault.NotFound, fault.Denied, fault.Exhausted, fault.Unsupported:
		code = jsonrpc.CodeInvalidParams
	}
	return &jsonrpc.Error{Code: code, Message: p.Line(), Data: transport.Encoded(map[string]fault.Problem{"error": p})}
}
