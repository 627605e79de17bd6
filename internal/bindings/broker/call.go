package broker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"paddock/internal/bindings"
	"paddock/internal/bindings/catalog"
	"paddock/internal/bindings/journal"
	"paddock/internal/bindings/schema"
	"paddock/internal/bindings/stub"
	"paddock/internal/bindings/upstream"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/textsafe"
)

// Run is whose call it is.
type Run struct {
	Session
	Execution string
	// Put writes files into the session's workspace; nil: large results are given
	// whole, up to what a program can be given at all.
	Put PutFunc
	// Inherited is what [Broker.Inherit] read of the request that started the run; its
	// zero value: no other paddock has to do with it.
	Inherited Inherited
}

// Asked is a call about which somebody has to be asked.
type Asked struct {
	Run
	Number       int // of the call in its run
	Server, Tool string
	// ServerKey names the server's definition and as whom it is spoken to, and
	// Fingerprint all that the server says of the tool: what is allowed is allowed for
	// these alone.
	ServerKey, Fingerprint string
	Description            string // the server's words
	Arguments              json.RawMessage
	ArgumentsDigest        string // SHA-256, hexadecimal
	// Shown are the arguments for a person to read: JSON with line breaks, without
	// characters that hide something. Cut says that there is more of them.
	Shown string
	Cut   bool
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
	if limit := b.limit(run); c.Number > limit {
		return failed(fault.New(fault.Exhausted, "a run may make %d calls, and this is one more", limit).
			WithHint("do the rest in another call of execute_code, or ask the operator for a higher limit")).encode("", nil)
	}
	switch m.Op {
	case "call":
		ctx, end := b.config.Memory.Scope(ctx, run.Owner)
		defer end()
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
	sum := sha256.Sum256(m.Arguments)
	e := &Event{Run: run, Number: number, Server: m.Server, Tool: m.Tool, ArgumentsDigest: hex.EncodeToString(sum[:]), Began: time.Now()}
	c := journal.Call{Run: runOf(run), Number: number, Digest: nameOf(m.Server, m.Tool, e.ArgumentsDigest)}
	var a *activity
	if b.config.Journal != nil {
		a = b.underway.enter(c.Run)
		defer b.underway.leave(c.Run, a)
		if known, err := b.recall(ctx, a, c); err != nil || known != nil {
			if err != nil {
				known = failed(err).encode("", nil)
			}
			return known
		}
	}
	d, err := b.decide(ctx, e, a, m.Arguments)
	switch {
	case err != nil && context.Cause(ctx) == sandbox.ErrWaiting:
		return failed(err).encode("", nil) // to nobody: it has not ended, and is asked for again
	case err != nil:
		return b.tell(ctx, e, d, outcome{err: err}, nil)
	case a == nil:
		r, err := b.pool.Call(d.one.with(ctx), d.one.keyFor(run.Session), d.tool.Name, d.arguments, d.options(b, e, nil))
		return b.tell(ctx, e, d, outcome{r, err}, run.Put)
	}
	return b.send(ctx, e, a, c, d)
}

// decided is a call that may be made.
type decided struct {
	one       *serverBinding
	tool      bindings.Tool
	arguments json.RawMessage
}

func (d decided) options(b *Broker, e *Event, life context.Context) upstream.CallOptions {
	return upstream.CallOptions{Meta: b.metaOf(e.Run, e.Number), Repeatable: true, Life: life, Rate: d.one.rate}
}

// send makes a call of a run that may be suspended. What it came to is waited for as long
// as the run goes on; a call that is written down goes on without it, since the run may
// go on later, and ask for it again.
func (b *Broker) send(ctx context.Context, e *Event, a *activity, c journal.Call, d decided) []byte {
	going, known, err := b.start(ctx, a, c)
	switch {
	case err != nil:
		return b.tell(ctx, e, d, outcome{err: err}, nil)
	case known != nil:
		return known
	}
	noted := b.noteBegun(ctx, e, d)
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	came := make(chan outcome, 1)
	conclude := func(o outcome, put PutFunc) []byte {
		cancel()
		text := b.tell(ctx, e, d, o, put)
		unsent := o.err != nil && (!upstream.Sent(o.err) || errors.Is(o.err, errClosing))
		if noted {
			b.noteEnded(ctx, e, o.err, unsent)
		}
		b.finish(ctx, a, going, text, unsent)
		return text
	}
	call := func() {
		r, err := b.pool.Call(d.one.with(ctx), d.one.keyFor(e.Session), d.tool.Name, d.arguments, d.options(b, e, life))
		came <- outcome{r, err}
	}
	if !b.begin(call) {
		return conclude(outcome{err: errClosing}, nil)
	}
	select {
	case o := <-came:
		return conclude(o, e.Put)
	case <-ctx.Done():
	}
	b.underway.enter(c.Run)
	linger := func() {
		defer b.underway.leave(c.Run, a)
		conclude(<-came, nil)
	}
	if a.isKept(going) && b.begin(linger) {
		return failed(ctx.Err()).encode("", nil)
	}
	cancel()
	linger()
	return going.answer
}

// tell records what came of a call, and makes of it what the program is told.
func (b *Broker) tell(ctx context.Context, e *Event, d decided, o outcome, put PutFunc) []byte {
	o.err = cleanedError(ctx, o.err)
	e.Took, e.Err, e.ToolFailed = time.Since(e.Began), o.err, o.err == nil && o.result.IsError
	if b.config.Record != nil {
		b.config.Record(context.WithoutCancel(ctx), *e)
	}
	if o.err != nil {
		b.config.Log.InfoContext(ctx, "a call of a tool failed", "session", e.ID, "server", textsafe.Line(e.Server, 100), "tool", textsafe.Line(e.Tool, 100), "cause", logged(o.err))
		return failed(o.err).encode("", nil)
	}
	o.result = cleaned(ctx, o.result)
	if len(d.tool.Output) == 0 {
		b.learned.offer(e.Owner, d.one.lessons(), d.tool.Name, o.result, d.one.Raw)
	}
	return unwrap(o.result, d.tool.Output, d.one.Raw).encode(fmt.Sprintf("%s-%s-%d", stub.Package(e.Server), stub.Package(shortened(e.Tool)), e.Number), put)
}

// logged is an error without what a server said of the call, which is for its program.
func logged(err error) error {
	var up *upstream.Error
	if errors.As(err, &up) && up.Reason == upstream.Refused {
		return fmt.Errorf("the server refused it with code %d", up.Code)
	}
	return err
}

func shortened(name string) string { return name[:min(len(name), maxName)] }

// decide finds the tool, and tells whether it may be called with these arguments. Who
// has to be asked is waited for; the tool must still be the same then.
func (b *Broker) decide(ctx context.Context, e *Event, a *activity, arguments json.RawMessage) (decided, error) {
	if len(arguments) == 0 {
		arguments = json.RawMessage(`{}`)
	}
	d, err := b.examine(ctx, e)
	if err != nil {
		return d, err
	}
	d.arguments = schema.Given(d.tool.Input, arguments)
	if err := b.validator.Validate(ctx, e.Owner, d.tool.Input, d.arguments); err != nil || e.Verdict != Asks {
		return d, err
	}
	if a != nil && b.config.Approve != nil {
		if err := b.keep(ctx, a); err != nil { // the run may be suspended now
			return d, err
		}
	}
	if err := b.ask(ctx, e, d); err != nil {
		return d, err
	}
	now, err := b.examine(ctx, e)
	if err != nil {
		return d, err
	}
	if now.one.sign != d.one.sign || digestOf(now.tool) != digestOf(d.tool) {
		return d, fault.New(fault.Denied, "the tool %q of %q changed while somebody was asked about it", textsafe.Line(e.Tool, 100), e.Server).
			WithHint("call it again: somebody will be asked again")
	}
	return d, nil
}

// examine finds a call's tool, in what its server lists over the session's own
// connection, and tells whether it may be called at all.
func (b *Broker) examine(ctx context.Context, e *Event) (decided, error) {
	one, err := b.find(e.Session, e.Server)
	if err != nil {
		return decided{}, err
	}
	d := decided{one: one}
	tools, err := b.pool.Tools(one.with(ctx), one.keyFor(e.Session))
	if err != nil {
		return d, fmt.Errorf("asking for the server's tools: %w", err)
	}
	at := slices.IndexFunc(tools, func(t bindings.Tool) bool { return t.Name == e.Tool })
	if at < 0 {
		return d, fault.New(fault.NotFound, "the server %q has no tool %q", one.Name, textsafe.Line(e.Tool, 100)).
			WithHint("search_tools finds tools, and /servers/%s/index.md lists them", stub.Package(one.Name))
	}
	d.tool = tools[at]
	verdict, by := one.verdict(d.tool)
	if e.Verdict = verdict; verdict == Denied {
		return d, fault.New(fault.Denied, "the tool %q of %q may not be called", e.Tool, one.Name).
			WithHint("%s", by.hint(""))
	}
	return d, b.vet(ctx, one, d.tool)
}

func (b *Broker) ask(ctx context.Context, e *Event, d decided) error {
	if b.config.Approve == nil {
		_, by := d.one.verdict(d.tool)
		return fault.New(fault.Denied, "the tool %q of %q needs an approval, and there is no way to ask for one", e.Tool, d.one.Name).
			WithHint("%s", by.hint(".ask"))
	}
	shown, cut := shownTo(d.arguments)
	return b.config.Approve(ctx, Asked{
		Run: e.Run, Number: e.Number, Server: d.one.Name, Tool: e.Tool, ServerKey: d.one.key, Fingerprint: catalog.Fingerprint(d.tool),
		Description: d.tool.Description, Arguments: d.arguments, ArgumentsDigest: e.ArgumentsDigest, Shown: shown, Cut: cut,
	})
}
