package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/bindings/broker"
	"paddock/internal/fault"
	"paddock/internal/mcpserver/transport"
	"paddock/internal/sandbox"
	"paddock/internal/session"
	"paddock/internal/telemetry"
	"paddock/internal/textsafe"
)

// tool is one tool: its definition as clients see it, and what it does.
type tool struct {
	definition  *mcp.Tool
	results     *jsonschema.Schema // all that its structured content has
	run         func(context.Context, *call, json.RawMessage) (answer, error)
	mayTakeLong bool   // so that a call may become a task
	set         string // that it is in
}

// hints tell what a tool does to its surroundings. One that reaches beyond paddock's
// own sessions says so by open.
type hints struct{ readOnly, destructive, idempotent bool }

// define makes a tool. params binds the arguments to an In; what run answers
// as data is an Out, from which the output schema comes.
func define[In, Out any](name, title, about string, h hints, params func(*In) []param, run func(context.Context, *call, In) (Out, answer, error)) tool {
	open := false
	t := &mcp.Tool{
		Name: name, Title: title, Description: about,
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: h.readOnly, IdempotentHint: h.idempotent || h.readOnly, OpenWorldHint: &open},
		InputSchema: inputSchema(params(new(In))), OutputSchema: listedSchema[Out](),
	}
	if !h.readOnly { // for the others it means nothing
		t.Annotations.DestructiveHint = &h.destructive
	}
	return tool{definition: t, results: outputSchema[Out](), run: func(ctx context.Context, c *call, raw json.RawMessage) (answer, error) {
		var in In
		if err := decode(raw, params(&in)); err != nil {
			return answer{}, err
		}
		out, a, err := run(ctx, c, in)
		if err != nil {
			return answer{}, err
		}
		data, err := json.Marshal(out)
		if err != nil {
			return answer{}, fmt.Errorf("encoding the result: %w", err)
		}
		a.data = data
		return a, nil
	}}
}

// listedSchema is what a tool's definition says of an Out: that it is an object, and of
// its fields those that are tagged listed. Models read all definitions before they know
// what they will call, and results tell the rest themselves.
func listedSchema[Out any]() *jsonschema.Schema {
	all := outputSchema[Out]()
	s := &jsonschema.Schema{Type: "object"}
	for field := range reflect.TypeFor[Out]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if _, listed := field.Tag.Lookup("listed"); !listed {
			continue
		}
		if s.Properties == nil {
			s.Properties = map[string]*jsonschema.Schema{}
		}
		s.Properties[name] = &jsonschema.Schema{Type: all.Properties[name].Type}
		s.PropertyOrder = append(s.PropertyOrder, name)
	}
	return s
}

// outputSchema describes an Out, or the error in its place: for that nothing
// in it is required. What lists and objects hold is left to the results, and a
// model reads less.
func outputSchema[Out any]() *jsonschema.Schema {
	s, err := jsonschema.For[Out](nil)
	if err != nil {
		panic("mcpserver: " + err.Error()) // a mistake in this package's types
	}
	for name, field := range s.Properties {
		s.Properties[name] = plain(field)
	}
	return &jsonschema.Schema{Type: "object", Properties: s.Properties, PropertyOrder: s.PropertyOrder}
}

// plain keeps a field's type. No list or object in a result is null.
func plain(s *jsonschema.Schema) *jsonschema.Schema {
	if len(s.Types) == 2 && s.Types[0] == "null" {
		s.Type = s.Types[1]
	}
	p := &jsonschema.Schema{Type: s.Type}
	if s.Items != nil {
		p.Items = plain(s.Items)
	}
	return p
}

// answer is what a tool has to say, in the forms from which a client's result
// is made.
type answer struct {
	data  json.RawMessage // the structured content; set by define
	texts []string        // what a person would read; none: data
	shown []shown         // documents and pictures, after the texts
	extra []mcp.Content   // blocks of another kind, at the end
	// inputs are what the client's user is needed for, in place of all that, and state
	// what the call is to be made again with.
	inputs mcp.InputRequestMap
	state  string
}

// call is one request of a tool on its way through this package.
type call struct {
	transport.Call
	server *Server
	bound  Bound

	session   session.ID // for the log, once it is known
	execution string
	path      string // of the file that the call is about; empty: of none
	notice    string // about the session, to be shown with the result
	named     bool   // the call made the session that its address names
}

// handler makes what the SDK calls from a tool.
func (s *Server) handler(t tool) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		c := &call{server: s, Call: transport.Call{
			Tool: t.definition.Name, Arguments: req.Params.Arguments, Caller: callerOf(req), Client: clientOf(req), Meta: req.Params.GetMeta(),
		}}
		if token := req.Params.GetProgressToken(); token != nil {
			c.Notify = func(done float64, message string) {
				// A client that is gone gets its result as little as this.
				_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: done, Message: message})
			}
		}
		s.askBy(c, req)
		return c.serve(ctx, t), nil
	}
}

// serve runs a tool. Whatever happens, the answer is a result: only checks
// before this are protocol errors.
func (c *call) serve(ctx context.Context, t tool) *mcp.CallToolResult {
	began := time.Now()
	ctx, span := c.server.config.Telemetry.StartCall(ctx, t.definition.Name, c.Caller.Header, c.Meta)
	if c.Client.Info != nil {
		ctx = telemetry.WithClient(ctx, textsafe.Cut(c.Client.Info.Name, 100))
	}
	a, err := c.attempt(ctx, t)
	if touched := c.server.config.Touched; touched != nil && c.path != "" {
		touched(ctx, c.bound.Owner, c.session, c.path, !t.definition.Annotations.ReadOnlyHint, err)
	}
	span.End(ctx, string(c.session), c.execution, err)
	c.server.record(ctx, t.definition.Name, c, time.Since(began), err)
	if err != nil {
		return failure(err)
	}
	a.andSession(c.sessionLine())
	return quirksOf(c.Client).result(a)
}

// attempt runs a tool; a panic is a failure like others.
func (c *call) attempt(ctx context.Context, t tool) (a answer, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = c.server.mistake(ctx, t.definition.Name, p)
		}
	}()
	if c.bound, err = c.server.bind(ctx, c.Caller); err != nil {
		return answer{}, err
	}
	if servers := c.server.config.Servers; servers != nil { // one of them may be calling back
		in, err := servers.Inherit(c.Meta)
		if err != nil {
			return answer{}, err
		}
		ctx = broker.WithInherited(ctx, in)
	}
	return t.run(ctx, c, c.Arguments)
}

// record logs a call once it is over: never what ran or what it printed.
func (s *Server) record(ctx context.Context, name string, c *call, took time.Duration, err error) {
	attrs := []slog.Attr{slog.String("tool", name), slog.Duration("took", took)}
	if c.Client.Info != nil {
		attrs = append(attrs, slog.String("client", textsafe.Cut(c.Client.Info.Name, 100)))
	}
	if c.session != "" {
		attrs = append(attrs, slog.String("session", string(c.session)))
	}
	if c.execution != "" {
		attrs = append(attrs, slog.String("execution", c.execution))
	}
	level := slog.LevelDebug
	if f := fault.Of(err); f != nil {
		attrs = append(attrs, slog.String("error", string(f.Kind)))
		if cause := errors.Unwrap(f); cause != nil {
			attrs = append(attrs, slog.Any("cause", cause))
		}
		if f.Kind == fault.Internal {
			level = slog.LevelError
		}
	}
	s.log.LogAttrs(ctx, level, "tool call", attrs...)
}

// failure is the result of a tool that failed. The cause is not in it.
func failure(err error) *mcp.CallToolResult {
	p := fault.ProblemOf(err)
	return &mcp.CallToolResult{
		IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: p.Line()}},
		StructuredContent: map[string]fault.Problem{"error": p},
	}
}

// languages lists what can run, in the runtimes' order and without repetition.
func languages(runtimes []session.Runtime) []string {
	var all []string
	for _, r := range runtimes {
		for _, l := range r.Languages {
			if !slices.Contains(all, l) {
				all = append(all, l)
			}
		}
	}
	return all
}

func isolations(runtimes []session.Runtime) []string {
	var all []string
	for _, r := range runtimes {
		if !slices.Contains(all, r.Isolation) {
			all = append(all, r.Isolation)
		}
	}
	return all
}

// stopped names what ended a run, in the words of the surface; "" for a
// program that ended by itself, however. A full disk stops nothing: it is an
// error that the program did not catch.
var stopped = map[sandbox.Cause]string{
	sandbox.TimedOut: "timeout", sandbox.OutOfFuel: "fuel", sandbox.OutOfMemory: "memory",
	sandbox.OutputExceeded: "output", sandbox.Cancelled: "cancelled", sandbox.Crashed: "crash",
}

// StoppedBy gives the word that results have for what ended a run.
func StoppedBy(c sandbox.Cause) string { return stopped[c] }
