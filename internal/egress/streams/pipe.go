package streams

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// half is one direction of a stream: bytes that were written and not read yet, at most
// so many. It is for any number of goroutines.
type half struct {
	most int

	mu      sync.Mutex
	queue   queue
	end     error         // what a reader is told when there are no more bytes; nil: more may come
	gone    error         // what a writer is told, and nobody reads any more; nil: somebody may
	changed chan struct{} // closed when something of this changes; nil: no goroutine waits for that
}

func newHalf(most int) *half { return &half{most: most} }

func (h *half) changeLocked() {
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

// changesLocked is closed at the next change.
func (h *half) changesLocked() <-chan struct{} {
	if h.changed == nil {
		h.changed = make(chan struct{})
	}
	return h.changed
}

// read gives what there is, or waits for it until one of done is closed: then late.
func (h *half) read(p []byte, late error, done ...<-chan struct{}) (n int, err error) {
	err = h.whenReady(len(p) == 0, late, done, func(q *queue) { n = q.read(p) })
	return n, err
}

// take is read for at most so many bytes, which lie behind headroom free ones.
func (h *half) take(most int, late error, done ...<-chan struct{}) (b []byte, err error) {
	err = h.whenReady(false, late, done, func(q *queue) { b = q.take(most) })
	return b, err
}

// giveBack returns what take gave, to be written into again.
func (h *half) giveBack(b []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone == nil && h.end == nil {
		h.queue.giveBack(b)
	}
}

// whenReady waits until there are bytes, and calls f with them; or at once, if f wants
// none.
func (h *half) whenReady(none bool, late error, done []<-chan struct{}, f func(q *queue)) error {
	for {
		h.mu.Lock()
		if h.gone != nil {
			defer h.mu.Unlock()
			return h.gone
		}
		if isClosed(done) {
			defer h.mu.Unlock()
			return late
		}
		if h.queue.len() > 0 || none {
			defer h.mu.Unlock()
			f(&h.queue)
			h.changeLocked()
			return nil
		}
		if h.end != nil {
			defer h.mu.Unlock()
			return h.end
		}
		changed := h.changesLocked()
		h.mu.Unlock()
		wait(changed, done)
	}
}

// write waits until all of p is in, and tells how much is.
func (h *half) write(p []byte, late error, done ...<-chan struct{}) (n int, err error) {
	for {
		h.mu.Lock()
		switch {
		case h.gone != nil:
			err = h.gone
		case h.end != nil:
			err = io.ErrClosedPipe
		case n == len(p):
		case isClosed(done):
			err = late
		default:
			if room := min(h.most-h.queue.len(), len(p)-n); room > 0 {
				h.queue.put(p[n:n+room], h.most)
				n += room
				h.changeLocked()
			}
		}
		if err != nil || n == len(p) {
			h.mu.Unlock()
			return n, err
		}
		changed := h.changesLocked()
		h.mu.Unlock()
		wait(changed, done)
	}
}

// finish says that no more is written: readers get what there is, and then end.
func (h *half) finish(end error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.end == nil {
		h.end = end
		h.changeLocked()
	}
}

// leave says that nobody reads any more: what there is is forgotten.
func (h *half) leave(why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone == nil {
		h.gone = why
		h.queue = queue{}
		h.changeLocked()
	}
}

// ready tells whether read would not wait; changed is closed when that may be otherwise.
func (h *half) ready() (ready bool, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.queue.len() > 0 || h.end != nil || h.gone != nil, h.changesLocked()
}

func isClosed(done []<-chan struct{}) bool {
	for _, d := range done {
		select {
		case <-d:
			return true
		default:
		}
	}
	return false
}

// wait waits for the first of them; there are two of done at most.
func wait(changed <-chan struct{}, done []<-chan struct{}) {
	var a, b <-chan struct{}
	if len(done) > 0 {
		a = done[0]
	}
	if len(done) > 1 {
		b = done[1]
	}
	select {
	case <-changed:
	case <-a:
	case <-b:
	}
}

// conn is an end of a stream as a [net.Conn], with deadlines.
type conn struct {
	in, out         *half
	onClose         func()
	reading, writer deadline
}

var _ net.Conn = (*conn)(nil)

// newPipe makes two conns, each of which reads what is written to the other.
func newPipe(most int) (a, b *conn) {
	x, y := newHalf(most), newHalf(most)
	a, b = &conn{in: x, out: y}, &conn{in: y, out: x}
	for _, c := range []*conn{a, b} {
		c.reading.set(time.Time{})
		c.writer.set(time.Time{})
	}
	return a, b
}

func (c *conn) Read(p []byte) (int, error) {
	return c.in.read(p, os.ErrDeadlineExceeded, c.reading.wait())
}

func (c *conn) Write(p []byte) (int, error) {
	return c.out.write(p, os.ErrDeadlineExceeded, c.writer.wait())
}

// take is Read for at most so many bytes, which lie behind headroom free ones; it and
// writeContext wait until ctx ends.
func (c *conn) take(ctx context.Context, most int) ([]byte, error) {
	return c.in.take(most, os.ErrDeadlineExceeded, ctx.Done())
}

func (c *conn) writeContext(ctx context.Context, p []byte) (int, error) {
	return c.out.write(p, os.ErrDeadlineExceeded, ctx.Done())
}

// Close ends both directions. What was written can still be read.
func (c *conn) Close() error {
	c.out.finish(io.EOF)
	c.in.leave(io.ErrClosedPipe)
	if c.onClose != nil {
		c.onClose()
	}
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return address{} }
func (c *conn) RemoteAddr() net.Addr { return address{} }

func (c *conn) SetDeadline(t time.Time) error {
	c.reading.set(t)
	c.writer.set(t)
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error  { c.reading.set(t); return nil }
func (c *conn) SetWriteDeadline(t time.Time) error { c.writer.set(t); return nil }

// address is that of all streams.
type address struct{}

func (address) Network() string { return "paddock" }
func (address) String() string  { return "stream" }

// deadline is a channel that is closed at a time.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	over  chan struct{}
}

func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.over
}

// set has the channel be closed at t; zero: never. Who waits for an earlier one goes on
// to, unless it comes true.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		<-d.over // it is being closed
	}
	d.timer = nil
	if d.over == nil || isClosed([]<-chan struct{}{d.over}) {
		d.over = make(chan struct{})
	}
	if t.IsZero() {
		return
	}
	if left := time.Until(t); left > 0 {
		over := d.over
		d.timer = time.AfterFunc(left, func() { close(over) })
		return
	}
	close(d.over)
}
