package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Info is what a server says about itself, and how it is spoken to.
type Info struct {
	Name, Title, Version string
	Instructions         string
	Protocol             string // the revision that was agreed upon
	Era                  Era
}

// CallOptions are what a call has beside its arguments.
type CallOptions struct {
	// Meta is sent as the request's _meta, such as an idempotency key. Keys of the
	// protocol's own are overwritten.
	Meta map[string]any
	// Timeout bounds the call; 0: the server's.
	Timeout time.Duration
	// Progress is told what the server says while it works; nil: it is not asked to.
	// It is called from the goroutine that reads, in order, must not wait, and is not
	// called after the call has returned.
	Progress func(Progress)
	// Repeatable: the caller allows that a [Pool] repeats the call where its outcome
	// is unknown, if the tool says of itself that this does no harm. A Conn repeats
	// nothing.
	Repeatable bool
	// Life bounds the call in the place of the caller's context as soon as a [Pool] has
	// its turn and begins to send it; nil: the caller's does. A Conn knows nothing of it.
	Life context.Context
	// Rate is what a [Pool] waits for before it sends the call; nil: nothing. A Conn
	// knows nothing of it.
	Rate *Rate
}

// Progress is how far a tool has come, as it says.
type Progress struct {
	Done, Total float64 // Total is 0 where it is not known
	Message     string
}

// Conn is a connection to one server. It may be used by any number of goroutines.
type Conn struct {
	server Server
	link   link
	log    *slog.Logger
	client identity
	info   Info
	era    Era

	changes bool // the server tells when its list changes

	ids   atomic.Int64
	life  context.Context // ends with Close
	end   context.CancelCauseFunc
	tasks sync.WaitGroup
	list  list

	mu       sync.Mutex // guards what follows
	progress map[int64]func(Progress)
	closed   bool
	calls    sync.WaitGroup // grows only while closed is false
}

// identity is what the server is told about who calls.
type identity struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

var errClosed = errors.New("the connection was closed here")

// Info tells about the server.
func (c *Conn) Info() Info { return c.info }

// Done is closed when the connection has ended, for whatever reason.
func (c *Conn) Done() <-chan struct{} { return c.link.gone() }

// Err tells why it has ended; nil: it has not.
func (c *Conn) Err() error { return c.report("", c.link.why()) }

// Close ends the connection: calls that are under way fail, a program is ended with
// what it started, and all of it is waited for, four seconds and a little at most. It may be called
// more than once.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.end(errClosed)
	err := c.link.close()
	c.calls.Wait()
	c.tasks.Wait()
	return err
}

// begin counts a request in; false: the connection was closed.
func (c *Conn) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.calls.Add(1)
	}
	return !c.closed
}

// Call calls a tool. The arguments are a JSON object; nil is an empty one. Nothing is
// checked against the tool's input schema. Of its output schema it is checked that
// there is a structured result of its type with all required fields.
//
// A tool that did not work gives a Result with IsError. An error is an *Error, which
// says whether the server may have carried out the call.
func (c *Conn) Call(ctx context.Context, tool string, arguments json.RawMessage, o CallOptions) (Result, error) {
	if !c.begin() {
		return Result{}, c.report(tool, newProblem(Closed, false, errClosed, "the connection has ended"))
	}
	defer c.calls.Done()
	if arguments == nil {
		arguments = json.RawMessage("{}")
	}
	if !json.Valid(arguments) || kindOfJSON(trim(arguments)) != "object" {
		return Result{}, c.report(tool, newProblem(Misused, false, nil, "its arguments are no JSON object"))
	}
	timeout := o.Timeout
	if timeout <= 0 {
		timeout = c.server.timeout()
	}
	ctx, cancel := c.bound(ctx, timeout)
	defer cancel()
	r := outgoing{id: c.ids.Add(1), method: "tools/call", name: tool}
	known := c.list.find(tool)
	if known == nil && c.era == Modern && c.server.URL != "" {
		known = c.look(ctx, tool) // its schema may say that arguments go into headers
	}
	var promise *outputCheck
	if known != nil {
		promise = known.promise
		r.headers = reflect(known.mirrors, arguments)
	}
	meta := maps.Clone(o.Meta)
	if o.Progress != nil {
		meta = with(meta, "progressToken", r.id)
		defer c.hearProgress(r.id, o.Progress)()
	}
	data, err := c.request(ctx, r, meta, map[string]any{"name": tool, "arguments": arguments})
	if err != nil {
		c.invalidateList(err)
		return Result{}, c.report(tool, err)
	}
	result, err := readResult(data)
	if err == nil {
		c.checkResult(tool, result)
		err = promise.check(result)
	}
	if err != nil {
		return Result{}, c.report(tool, err)
	}
	return result, nil
}

// bound gives a context that ends after limit, and with the connection.
func (c *Conn) bound(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	stop := context.AfterFunc(c.life, cancel)
	return ctx, func() { stop(); cancel() }
}

// request sends a request with the fields that its era wants.
func (c *Conn) request(ctx context.Context, r outgoing, meta map[string]any, params map[string]any) (json.RawMessage, error) {
	if c.era == Modern {
		meta = with(meta, "io.modelcontextprotocol/protocolVersion", modern)
		meta = with(meta, "io.modelcontextprotocol/clientInfo", c.client)
		meta = with(meta, "io.modelcontextprotocol/clientCapabilities", struct{}{})
	}
	if len(meta) > 0 {
		params["_meta"] = meta
	}
	data, err := marshal(params)
	if err != nil {
		return nil, newProblem(Misused, false, err, "the request is not JSON")
	}
	r.params = data
	value, err := c.link.call(ctx, r)
	if p := asProblem(err, true); err != nil && p.reason == Cancelled && c.life.Err() != nil {
		closed := *p
		closed.reason = Closed
		return nil, closed.say("the connection was closed")
	}
	return value, err
}

// with gives m with one more entry; m may be nil.
func with(m map[string]any, key string, value any) map[string]any {
	if m == nil {
		m = map[string]any{}
	}
	m[key] = value
	return m
}

// handleNotification takes a notification.
func (c *Conn) handleNotification(m message) {
	switch m.Method {
	case "notifications/tools/list_changed":
		c.list.spoil()
	case "notifications/progress":
		var p struct {
			Token    json.RawMessage `json:"progressToken"`
			Progress float64         `json:"progress"`
			Total    float64         `json:"total"`
			Message  string          `json:"message"`
		}
		if json.Unmarshal(m.Params, &p) != nil {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if tell := c.progress[message{ID: p.Token}.number()]; tell != nil {
			tell(Progress{p.Progress, p.Total, p.Message})
		}
	}
}

// hearProgress has tell called until the function that it gives has been.
func (c *Conn) hearProgress(id int64, tell func(Progress)) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.progress[id] = tell
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.progress, id)
	}
}

// report makes an *Error for the caller.
func (c *Conn) report(tool string, err error) error {
	var stderr string
	if p, ok := c.link.(*process); ok && err != nil {
		stderr = p.stderr()
	}
	return report(c.server, tool, stderr, err)
}

const (
	// firstRest and longestPause bound how long it is waited before a stream of
	// notifications that broke off is opened again.
	firstRest    = time.Second
	longestPause = time.Minute
	// healthy is how long such a stream has to last for the waiting to begin again.
	healthy = time.Minute
)

// watch keeps a stream of notifications open for as long as the connection lives.
// What was missed between two of them is made good by a new list.
func (c *Conn) watch() {
	pauses := backoff.ExponentialBackOff{InitialInterval: firstRest, Multiplier: 2, MaxInterval: longestPause}
	for {
		began := time.Now()
		r := outgoing{id: c.ids.Add(1)}
		var err error
		if c.era == Modern {
			r.method = "subscriptions/listen"
			err = c.subscribe(r)
		} else {
			err = c.link.listen(c.life, r)
		}
		if errors.Is(err, errNoStream) || asProblem(err, true).reason == Refused || asProblem(err, true).reason == Unauthorized {
			return // the list's age has to do
		}
		c.list.spoil()
		if time.Since(began) > healthy {
			pauses.Reset()
		}
		select {
		case <-time.After(pauses.NextBackOff()):
		case <-c.life.Done():
			return
		case <-c.link.gone():
			return
		}
	}
}

func (c *Conn) subscribe(r outgoing) error {
	params, err := json.Marshal(map[string]any{
		"notifications": map[string]bool{"toolsListChanged": true},
		"_meta": map[string]any{
			"io.modelcontextprotocol/protocolVersion":    modern,
			"io.modelcontextprotocol/clientInfo":         c.client,
			"io.modelcontextprotocol/clientCapabilities": struct{}{},
		},
	})
	if err != nil {
		return err
	}
	r.params = params
	return c.link.listen(c.life, r)
}
