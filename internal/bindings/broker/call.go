package broker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"paddock/internal/bindings"
	"paddock/internal/bindings/catalog"
	"paddock/internal/bindings/stub"
	"paddock/internal/bindings/upstream"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// Run is whose call it is.
type Run struct {
	Session
	Execution string
	// Put writes files into the session's workspace; nil: large results are errors.
	Put PutFunc
}

// Asked is a call about which somebody has to be asked.
type Asked struct {
	Run
	Number       int // of the call in its run
	Server, Tool string
	Description  string // the server's words
	Arguments    json.RawMessage
}

// Event is a call that has ended.
type Event struct {
	Run
	Number          int
	Server, Tool    string
	ArgumentsDigest string // SHA-256, hexadecimal
	Began           time.Time
	Took            time.Duration
	Verdict         Verdict // zero: it did not come to that
	Err             error   // nil: the tool was called, and answered
	ToolFailed      bool    // it answered that it did not work
}

// message is what a program asks.
type message struct {
	Op        string          `json:"op"`
	Server    string          `json:"server"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Query     string          `json:"query"`
	Limit     int             `json:"limit"`
	Level     catalog.Level   `json:"detail_level"`
}

// idempotency is the name under which a call's key goes to the server: the same call
// has the same key, and no two calls have one.
const idempotency = "paddock/idempotencyKey"

// Call answers what a program asks; see sandbox.Command.Call.
func (b *Broker) Call(ctx context.Context, run Run, c sandbox.Call) []byte {
	var m message
	if err := json.Unmarshal(c.Body, &m); err != nil {
		return failed(fault.New(fault.Invalid, "the call makes no sense")).encode("", nil)
	}
	if c.Number > b.config.CallsPerRun {
		return failed(fault.New(fault.Exhausted, "a run may make %d calls, and this is one more", b.config.CallsPerRun).
			WithHint("do the rest in another call of execute_code, or ask the operator for a higher limit")).encode("", nil)
	}
	switch m.Op {
	case "call":
		return b.callTool(ctx, run, c.Number, m)
	case "search":
		hits, err := b.Search(ctx, run.Session, catalog.Query{Text: m.Query, Limit: m.Limit, Level: m.Level}, m.Server)
		if err != nil {
			return failed(err).encode("", nil)
		}
		return answer{Value: Found(hits)}.encode(fmt.Sprintf("search-%d", c.Number), run.Put)
	}
	return failed(fault.New(fault.Invalid, "the call is of an unknown kind")).encode("", nil)
}

func (b *Broker) callTool(ctx context.Context, run Run, number int, m message) []byte {
	digest := sha256.Sum256(m.Arguments)
	e := Event{Run: run, Number: number, Server: m.Server, Tool: m.Tool, ArgumentsDigest: hex.EncodeToString(digest[:]), Began: time.Now()}
	r, err := b.decided(ctx, &e, m.Arguments)
	e.Took, e.Err, e.ToolFailed = time.Since(e.Began), err, err == nil && r.IsError
	if b.config.Record != nil {
		b.config.Record(context.WithoutCancel(ctx), e)
	}
	if err != nil {
		b.config.Log.InfoContext(ctx, "a call of a tool failed", "session", run.ID, "server", m.Server, "tool", m.Tool, "cause", err)
		return failed(err).encode("", nil)
	}
	return unwrap(r).encode(fmt.Sprintf("%s-%s-%d", stub.Package(e.Server), stub.Package(shortened(e.Tool)), number), run.Put)
}

func shortened(name string) string { return name[:min(len(name), maxName)] }

// decided finds the tool, decides, and calls it.
func (b *Broker) decided(ctx context.Context, e *Event, arguments json.RawMessage) (upstream.Result, error) {
	one, err := b.find(e.Session, e.Server)
	if err != nil {
		return upstream.Result{}, err
	}
	key := one.keyFor(e.Session)
	tools, err := b.pool.Tools(ctx, key)
	if err != nil {
		return upstream.Result{}, fmt.Errorf("asking for the server's tools: %w", err)
	}
	at := slices.IndexFunc(tools, func(t bindings.Tool) bool { return t.Name == e.Tool })
	if at < 0 {
		return upstream.Result{}, fault.New(fault.NotFound, "the server %q has no tool %q", e.Server, stub.Line(e.Tool, 100)).
			WithHint("search_tools finds tools, and /servers/%s/index.md lists them", stub.Package(e.Server))
	}
	t := tools[at]
	if len(arguments) == 0 {
		arguments = json.RawMessage(`{}`)
	}
	if e.Verdict = one.Policy.Of(t); e.Verdict == Denied {
		return upstream.Result{}, fault.New(fault.Denied, "the tool %q of %q may not be called", e.Tool, e.Server).
			WithHint("the operator's configuration says so: servers.%s.tools", e.Server)
	}
	if b.watch != nil {
		change, err := b.watch.Use(ctx, e.Server, t)
		if err != nil {
			return upstream.Result{}, fmt.Errorf("comparing the tool with what it was: %w", err)
		}
		if change != nil {
			return upstream.Result{}, change.Fault()
		}
	}
	if err := b.validator.Validate(t.Input, arguments); err != nil {
		return upstream.Result{}, err
	}
	if e.Verdict == Asks {
		if err := b.ask(ctx, e, t, arguments); err != nil {
			return upstream.Result{}, err
		}
	}
	return b.pool.Call(ctx, key, e.Tool, arguments, upstream.CallOptions{
		Meta: map[string]any{idempotency: fmt.Sprintf("%s/%d", e.Execution, e.Number)}, Repeatable: true,
	})
}

func (b *Broker) ask(ctx context.Context, e *Event, t bindings.Tool, arguments json.RawMessage) error {
	if b.config.Approve == nil {
		return fault.New(fault.Denied, "the tool %q of %q may only be called when somebody allows it, and nobody can be asked", e.Tool, e.Server).
			WithHint("the operator's configuration says so: servers.%s.tools.ask", e.Server)
	}
	return b.config.Approve(ctx, Asked{Run: e.Run, Number: e.Number, Server: e.Server, Tool: e.Tool, Description: t.Description, Arguments: arguments})
}

// find gives the server of that name, or of that package, that a session has.
func (b *Broker) find(s Session, name string) (*bound, error) {
	all := b.serversOf(s)
	if one := all[name]; one != nil {
		return one, nil
	}
	for _, one := range all {
		if stub.Package(one.Name) == name {
			return one, nil
		}
	}
	f := fault.New(fault.NotFound, "no server %q is bound", stub.Line(name, 100))
	if len(all) == 0 {
		return nil, f.WithHint("mcp_bind_http binds one")
	}
	return nil, f.WithHint("there are %s", strings.Join(b.Names(s), ", "))
}
