package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// Client is the server's end of a connection to one child. It is safe for
// concurrent use. Its goroutine ends when the connection does.
//
// Lock order: Client.mu, then Instance.mu.
type Client struct {
	conn    *Conn
	streams *Streams
	ended   chan struct{} // closed when the reader has ended
	ready   chan Ready
	// survived takes what a restored child holds; nil: it was not restored.
	survived chan<- SurvivedBody
	// What serves the child's streams and translations: their context, and their goroutines.
	ctx     context.Context
	stop    context.CancelFunc
	serving sync.WaitGroup

	mu         sync.Mutex // guards what follows
	instances  map[uint32]*Instance
	last       uint32
	asked      map[uint32]chan ManagedBody // who waits for which answer
	question   uint32
	dialling   map[uint32]chan DialedBody // likewise, of streams
	dialled    uint32
	holding    chan<- StatusBody // who waits for the answer to a hold
	holdNumber uint32
	serve      func(context.Context, net.Conn) // see Accept
	served     int                             // streams that it serves
	translate  func(context.Context, sandbox.Source) (sandbox.Translation, error)
	// translating is how many translations are under way.
	translating int
	cause       error // why the connection ended

	untold atomic.Int64 // streams that the child opened, of whose end it cannot know yet
}

// NewClient says hello to a child over stream and waits, as long as ctx
// allows, until it is ready.
func NewClient(ctx context.Context, stream io.ReadWriteCloser, setup any) (*Client, Ready, error) {
	body, err := json.Marshal(setup)
	if err != nil {
		return nil, Ready{}, fmt.Errorf("encoding the set-up: %w", err)
	}
	c := newClient(stream)
	go c.read()
	if err := c.conn.WriteJSON(KindHello, 0, Hello{Version: Version, Setup: body}); err != nil {
		c.Close()
		return nil, Ready{}, fmt.Errorf("saying hello: %w", err)
	}
	select {
	case r := <-c.ready:
		if r.Version != Version {
			err = fmt.Errorf("it speaks version %d of the protocol, not %d", r.Version, Version)
		} else if r.Error != "" {
			err = errors.New(r.Error)
		} else {
			return c, r, nil
		}
	case <-c.ended:
		err = c.Err()
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	c.Close()
	return nil, Ready{}, err
}

func newClient(stream io.ReadWriteCloser) *Client {
	c := &Client{
		conn: NewConn(stream), ended: make(chan struct{}), ready: make(chan Ready, 1), instances: map[uint32]*Instance{},
		asked: map[uint32]chan ManagedBody{}, dialling: map[uint32]chan DialedBody{},
	}
	c.streams = NewStreams(c.conn)
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// Done is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.ended }

// Err tells why the connection ended; nil while it lives.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// Close ends the connection and with it every instance, and waits for what serves the
// child's streams and translations. It works twice.
func (c *Client) Close() {
	c.fail(errors.New("the connection was closed"))
	<-c.ended
	c.serving.Wait()
}

// fail ends the connection because of err; the first one counts.
func (c *Client) fail(err error) {
	c.mu.Lock()
	if c.cause == nil {
		c.cause = err
	}
	c.mu.Unlock()
	c.conn.Close()
}

func (c *Client) read() {
	defer close(c.ended)
	var err error
	for err == nil {
		var f Frame
		if f, err = c.conn.Read(); err == nil {
			err = c.dispatch(f)
		}
	}
	c.fail(err)
	c.stop()
	c.streams.End(gone(c.Err()))
	c.mu.Lock()
	all := c.instances
	c.instances = map[uint32]*Instance{}
	c.mu.Unlock()
	for _, in := range all {
		in.end(c.Err())
	}
}

func (c *Client) dispatch(f Frame) error {
	if f.Kind == KindReady {
		var r Ready
		if err := json.Unmarshal(f.Body, &r); err != nil {
			return fmt.Errorf("ready: %w", err)
		}
		select {
		case c.ready <- r:
			return nil
		default:
			return errors.New("it said twice that it is ready")
		}
	}
	switch f.Kind {
	case KindManaged:
		return c.managed(f.Body)
	case KindHeld:
		return c.held(f)
	case KindSurvived:
		return c.hasSurvived(f.Body)
	case KindDialed:
		return c.answered(f)
	case KindOpened:
		return c.opened(f.ID)
	case KindTranslate:
		return c.wantTranslation(f)
	case KindStreamData, KindStreamEnd, KindStreamCredit, KindStreamClose:
		return c.streams.Deliver(f)
	}
	c.mu.Lock()
	in := c.instances[f.ID]
	c.mu.Unlock()
	if in == nil {
		return nil // it was closed while the frame was under way
	}
	if f.Kind == KindGone {
		var g GoneBody
		_ = json.Unmarshal(f.Body, &g) // without a message it is gone all the same
		c.forget(in)
		in.end(errors.New(g.Message))
		return nil
	}
	return in.deliver(f)
}

func (c *Client) forget(in *Instance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.instances, in.id)
}

// Start asks the child for an instance. The layers are those that body.Resume
// speaks of: each is opened when its turn comes, and closed.
func (c *Client) Start(ctx context.Context, body StartBody, layers ...Layer) (*Instance, error) {
	if body.Resume != nil {
		if len(layers) > MaxLayers || len(body.Resume.State) > MaxState {
			return nil, fault.New(fault.Unsupported, "the state of the interpreter is not one of this version").WithHint("%s", freshHint)
		}
		body.Resume.Layers = len(layers)
	}
	c.mu.Lock()
	if c.cause != nil {
		c.mu.Unlock()
		return nil, gone(c.cause)
	}
	c.last++
	in := &Instance{client: c, id: c.last, memory: body.Memory(), done: make(chan struct{}), news: make(chan struct{}, 1)}
	c.instances[in.id] = in
	c.mu.Unlock()

	if err := in.start(ctx, body, layers); err != nil {
		in.Close()
		return nil, err
	}
	return in, nil
}

func (in *Instance) start(ctx context.Context, body StartBody, layers []Layer) error {
	var answer []byte
	var err error
	if body.Resume == nil {
		answer, err = in.ask(ctx, KindStart, body, KindStarted)
	} else {
		answer, err = in.resume(ctx, body, layers)
	}
	if err != nil {
		return err
	}
	var started StatusBody
	if err := json.Unmarshal(answer, &started); err != nil {
		return fmt.Errorf("reading the answer to a start: %w", err)
	}
	return started.err()
}

// Instances tells how many instances the child holds.
func (c *Client) Instances() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.instances)
}

// gone is the fault of an instance whose process ended for cause.
func gone(cause error) error {
	return fault.New(fault.Unavailable, "the sandbox's process has ended").
		WithHint("run it again: a fresh interpreter will be started; files in the workspace are there").WithCause(cause)
}

var (
	_ sandbox.Instance    = (*Instance)(nil)
	_ sandbox.Snapshotter = (*Instance)(nil)
)
