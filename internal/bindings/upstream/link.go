package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// mostUnasked is how many messages a server may send that nobody asked for while a
// request waits. A tool that tells of its progress ten times a second for as long as
// most hosts wait for a call sends a hundredth of it.
const mostUnasked = 100_000

// goodbye is how long what is sent at the end of something may take.
const goodbye = 2 * time.Second

// link carries messages to one server and back. It may be used by any number of
// goroutines. Notifications go to the ears it was made with, from the goroutine that
// reads, so they must not wait.
type link interface {
	// call sends a request and gives its result. When ctx ends the server is told.
	call(ctx context.Context, r outgoing) (json.RawMessage, error)
	// notify sends a notification.
	notify(ctx context.Context, method string, params json.RawMessage) error
	// settle tells the revision that was agreed upon, before the first call after it.
	settle(version string)
	// listen waits for notifications that come by themselves, where they need a
	// stream of their own: it blocks until that ends. errNoStream: there is none to
	// wait on.
	listen(ctx context.Context, r outgoing) error
	// gone is closed when the link has ended; why tells afterwards.
	gone() <-chan struct{}
	why() error
	// close ends the link and everything that belongs to it, and waits for that.
	close() error
}

var errNoStream = errors.New("notifications have no stream of their own")

// outgoing is a request.
type outgoing struct {
	id     int64
	method string
	params json.RawMessage
	// name and headers are what HTTP repeats of it beside the body.
	name    string
	headers http.Header
}

// mux is the part of a link whose messages share one stream in each direction.
type mux struct {
	// send writes one message; sent: some of it may have reached the server.
	send func(ctx context.Context, data []byte) (sent bool, err error)
	hear func(message)

	ended chan struct{}
	tasks sync.WaitGroup // messages that are sent on the side; see aside

	mu      sync.Mutex // guards what follows
	err     error      // why it ended
	waiting map[int64]chan<- result
	unasked int // messages since the last answer
	sending int // goroutines of aside
}

type result struct {
	value json.RawMessage
	err   error
}

func newMux(hear func(message), send func(context.Context, []byte) (bool, error)) *mux {
	return &mux{send: send, hear: hear, ended: make(chan struct{}), waiting: map[int64]chan<- result{}}
}

func (x *mux) gone() <-chan struct{} { return x.ended }

func (x *mux) why() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.err
}

// fail ends the mux: whoever waits is told, and may have been served.
func (x *mux) fail(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err != nil {
		return
	}
	x.err = err
	for id, c := range x.waiting {
		c <- result{err: inFlight(err)}
		delete(x.waiting, id)
	}
	close(x.ended)
}

// inFlight is the end of a connection as a request sees it that was under way.
func inFlight(err error) error {
	p := *asProblem(err, true)
	p.sent, p.answered = true, false
	return &p
}

// receive takes one message from the server. An error ends the link.
func (x *mux) receive(data []byte) error {
	m, err := decode(data)
	if err != nil {
		return newProblem(Malformed, true, err, "it sent what is not a message of the protocol")
	}
	if m.isAnswer() {
		x.answered(m)
		return nil
	}
	if err := x.count(); err != nil {
		return err
	}
	if m.ID != nil {
		x.aside(func() ([]byte, error) { return answer(m) })
		return nil
	}
	x.hear(m)
	return nil
}

func (x *mux) answered(m message) {
	x.mu.Lock()
	defer x.mu.Unlock()
	id := m.number()
	c, ok := x.waiting[id]
	if !ok {
		x.unasked++ // late, or made up
		return
	}
	x.unasked = 0
	delete(x.waiting, id)
	value, err := m.outcome()
	c <- result{value, err} // it has room for one
}

// count counts a message that nobody asked for.
func (x *mux) count() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.unasked++; x.unasked > mostUnasked {
		return newProblem(Flooded, true, nil, "it sent %d messages without a request", mostUnasked)
	}
	return nil
}

// mostAside is how many messages may be on their way that nobody waits for. A server
// that pings without reading what it gets is answered no more.
const mostAside = 16

// aside sends a message that nobody waits for.
func (x *mux) aside(message func() ([]byte, error)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err != nil || x.sending >= mostAside {
		return
	}
	x.sending++
	x.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), goodbye)
		defer cancel()
		if data, err := message(); err == nil {
			_, _ = x.send(ctx, data)
		}
		x.mu.Lock()
		x.sending--
		x.mu.Unlock()
	})
}

func (x *mux) call(ctx context.Context, r outgoing) (json.RawMessage, error) {
	data, err := request(r.id, r.method, r.params)
	if err != nil {
		return nil, newProblem(Misused, false, err, "the arguments are no JSON")
	}
	c := make(chan result, 1)
	x.mu.Lock()
	if x.err != nil {
		x.mu.Unlock()
		return nil, newProblem(Closed, false, x.err, "the connection has ended")
	}
	x.waiting[r.id] = c
	x.mu.Unlock()
	sent, err := x.send(ctx, data)
	if err != nil && ctx.Err() == nil {
		x.forget(r.id)
		return nil, asProblem(err, sent)
	}
	if err == nil {
		select {
		case got := <-c:
			return got.value, got.err
		case <-ctx.Done():
		}
	}
	if x.forget(r.id) && sent {
		x.aside(func() ([]byte, error) { return cancellation(r.id, ctx.Err()) })
	}
	return nil, asProblem(ctx.Err(), sent)
}

// forget stops waiting for an answer; false: it has come.
func (x *mux) forget(id int64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, waits := x.waiting[id]
	delete(x.waiting, id)
	return waits
}

func cancellation(id int64, why error) ([]byte, error) {
	params, err := json.Marshal(map[string]any{"requestId": id, "reason": why.Error()})
	if err != nil {
		return nil, err
	}
	return encode(message{Method: "notifications/cancelled", Params: params})
}

func (x *mux) notify(ctx context.Context, method string, params json.RawMessage) error {
	data, err := encode(message{Method: method, Params: params})
	if err == nil {
		_, err = x.send(ctx, data)
	}
	return err
}

// pass reads messages with next until it or one of them fails; the error is never nil.
func (x *mux) pass(next func() ([]byte, error)) error {
	for {
		data, err := next()
		if errors.Is(err, io.EOF) {
			return newProblem(Closed, true, err, "it closed the connection")
		}
		if err != nil {
			return err
		}
		if err := x.receive(data); err != nil {
			return err
		}
	}
}
