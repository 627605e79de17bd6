package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"paddock/internal/sandbox"
)

// fromChild marks the numbers of the streams that a child opens, so that they are not
// those of the server's.
const fromChild = 1 << 31

// ChildStream is the number of a stream that a child opens as its nth.
func ChildStream(n uint32) uint32 { return n | fromChild }

// maxServed is how many streams of a child are served at once: as many as an honest one
// has open, and some that were closed by whoever goes on serving them. An honest child
// opens another one only when it knows the end of one: twice as many, of whose end the
// child cannot know, are never its.
const maxServed = sandbox.MaxProxied + 64

// Accept has serve called for each stream that the child opens from now on, in a
// goroutine of its own; nil: they are closed, as they are before Accept is called. The
// stream is closed when serve returns. Its ctx ends with the connection, after which
// serve has to return: Close waits for it.
func (c *Client) Accept(serve func(ctx context.Context, conn net.Conn)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serve = serve
}

// opened begins with a stream of the child's. It does not wait: whoever reads what comes
// may be needed by whoever is writing.
func (c *Client) opened(id uint32) error {
	if id&fromChild == 0 {
		return fmt.Errorf("it opened a stream with the number %d, which is not one of its own", id)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return c.cause
	}
	if c.untold.Add(1) > 2*maxServed {
		return errors.New("it opens streams and does not hear that they are closed")
	}
	serve := c.serve
	var s *Stream
	if serve != nil && c.served < maxServed {
		s, _ = c.streams.Open(id) // nil: there are too many
	}
	if s == nil {
		c.serving.Go(func() { c.tellClosed(id) })
		return nil
	}
	c.served++
	c.serving.Go(func() {
		defer c.unserve()
		conn := &accepted{Stream: s, client: c}
		defer conn.telling.Wait()
		defer conn.Close()
		serve(c.ctx, conn)
	})
	return nil
}

// tellClosed tells the child that a stream of its own is closed, after what else is to be
// said of it. The stream counts until nobody else writes: the child cannot hear of it
// before, and one that does not read has no more of them than that.
func (c *Client) tellClosed(id uint32, before ...Kind) {
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	c.untold.Add(-1)
	for _, kind := range append(before, KindStreamClose) {
		_ = c.conn.writeLocked(kind, id) // without a child nobody is told
	}
}

func (c *Client) unserve() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.served--
}

// accepted is a stream that the child opened, as a connection.
type accepted struct {
	*Stream
	client  *Client
	once    sync.Once
	telling sync.WaitGroup // the child that it was closed
}

// Read says of a stream that was cut off what net/http knows of connections that were
// reset: it is nothing to answer.
func (a *accepted) Read(p []byte) (int, error) {
	n, err := a.Stream.Read(p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = &net.OpError{Op: "read", Net: machine{}.Network(), Source: a.LocalAddr(), Addr: a.RemoteAddr(), Err: err}
	}
	return n, err
}

// Close ends it at once and in an orderly way, as connections are closed, whether the
// child can be told now or not: while the child is held nobody can.
func (a *accepted) Close() error {
	a.once.Do(func() {
		a.drop()
		a.telling.Go(func() { a.client.tellClosed(a.id, KindStreamEnd) })
	})
	return nil
}

// machine is the address of both ends.
type machine struct{}

func (machine) Network() string { return "paddock" }
func (machine) String() string  { return "sandbox" }

func (a *accepted) LocalAddr() net.Addr  { return machine{} }
func (a *accepted) RemoteAddr() net.Addr { return machine{} }

// deadline is a moment from which on something fails. It is guarded by its Stream.
type deadline struct {
	timer  *time.Timer // nil: none
	passed bool
}

// set makes it at, zero: never. The caller has locked the stream.
func (d *deadline) set(s *Stream, at time.Time) {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.passed = false
	if at.IsZero() || s.closed {
		return
	}
	left := time.Until(at)
	if left <= 0 {
		d.passed = true
		s.change.Broadcast()
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(left, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if d.timer == timer { // not another one's by now
			d.passed = true
			s.change.Broadcast()
		}
	})
	d.timer = timer
}

// SetReadDeadline has Read fail from at on with [os.ErrDeadlineExceeded]; zero: never.
// It may be changed at any time, also after it has passed.
func (s *Stream) SetReadDeadline(at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading.set(s, at)
	return nil
}

// SetWriteDeadline is SetReadDeadline for a Write that waits for the other end to read.
func (s *Stream) SetWriteDeadline(at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing.set(s, at)
	return nil
}

// SetDeadline is both.
func (s *Stream) SetDeadline(at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading.set(s, at)
	s.writing.set(s, at)
	return nil
}
