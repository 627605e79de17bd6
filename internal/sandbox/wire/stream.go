package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"paddock/internal/fault"
)

// streamWindow is how many bytes of a [Stream] may be under way in each
// direction, and streamPiece how many one frame carries.
const (
	streamWindow = 256 << 10
	streamPiece  = 32 << 10
)

// MaxStreams is how many streams a child may have at once, in both directions.
const MaxStreams = 320

// DialBody asks the child to connect a new stream to a port of its own loopback
// address, or to a terminal; a [DialedBody] in a dialed frame answers it. The frame's ID is the
// stream's number, as in all frames about streams; those that the child opens are
// marked by their highest bit.
type DialBody struct {
	Port uint16 `json:"port,omitempty"`
	// Terminal is a [sandbox.Terminal]'s number; 0: none. What the child sends begins with
	// what was printed there from the offset From on.
	Terminal uint32 `json:"terminal,omitempty"`
	From     int64  `json:"from,omitempty"`
	// Envd asks for the daemon that the child serves itself.
	Envd bool `json:"envd,omitempty"`
}

// DialedBody says whether the stream is connected, and for a terminal from which offset on.
type DialedBody struct {
	StatusBody
	From int64 `json:"from,omitempty"`
}

// Stream is a connection to a port of the child's machine, or at the child's end
// the other half of it. Read may be called from one goroutine, Write from
// another, and the rest from any.
type Stream struct {
	all *Streams
	id  uint32
	own bool // see [Streams.OpenOwn]

	mu     sync.Mutex // guards what follows
	change sync.Cond  // of any of it
	in     []byte     // what has come and was not read
	ended  bool       // nothing more comes
	owed   int        // bytes that were read, of which the other end does not know
	credit int        // how much may be sent
	mute   bool       // CloseWrite was called
	closed bool       // here
	gone   error      // why nothing can be sent any more; nil: it can
	cut    error      // why less came than was meant to; nil: all came, or may yet
	// When who waits in Read, and in Write, gives up.
	reading, writing deadline
}

var (
	errStreamClosed = errors.New("the stream is closed")
	errStreamReset  = errors.New("the other end has closed the stream")
)

// Read gives what has come; io.EOF when the other end has said that there will be no more.
// A stream that ended before it did was cut off: after what had come that is an
// [io.ErrUnexpectedEOF], which wraps why as well.
func (s *Stream) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.in) == 0 && !s.ended && !s.closed && !s.reading.passed {
		s.change.Wait()
	}
	switch {
	case s.closed:
		return 0, errStreamClosed
	case s.reading.passed:
		return 0, os.ErrDeadlineExceeded
	case len(p) == 0:
		return 0, nil
	case len(s.in) == 0 && s.cut != nil:
		return 0, s.cut
	case len(s.in) == 0:
		return 0, io.EOF
	}
	n := copy(p, s.in)
	if s.in = s.in[n:]; len(s.in) == 0 {
		s.in = nil
	}
	if s.owed += n; s.owed >= streamWindow/4 && !s.ended {
		owed := s.owed
		s.owed = 0
		s.mu.Unlock()
		_ = s.all.conn.WriteJSON(KindStreamCredit, s.id, CreditBody{Bytes: owed}) // if it cannot be told, it is gone
		s.mu.Lock()
	}
	return n, nil
}

// Write sends all of p, as fast as the other end takes it.
func (s *Stream) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		room, err := s.reserve(min(len(p), streamPiece))
		if err != nil {
			return n, err
		}
		if err := s.all.conn.Write(KindStreamData, s.id, p[:room]); err != nil {
			return n, err
		}
		n, p = n+room, p[room:]
	}
	return n, nil
}

// reserve waits until something may be sent, and gives how much of n.
func (s *Stream) reserve(n int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.credit == 0 && !s.closed && !s.mute && s.gone == nil && !s.writing.passed {
		s.change.Wait()
	}
	switch {
	case s.closed || s.mute:
		return 0, errStreamClosed
	case s.writing.passed:
		return 0, os.ErrDeadlineExceeded
	case s.gone != nil:
		return 0, s.gone
	}
	n = min(n, s.credit)
	s.credit -= n
	return n, nil
}

// CloseWrite says that nothing more will be sent. It works twice.
func (s *Stream) CloseWrite() error {
	s.mu.Lock()
	again := s.mute || s.closed || s.gone != nil
	s.mute = true
	s.change.Broadcast()
	s.mu.Unlock()
	if again {
		return nil
	}
	return s.all.conn.Write(KindStreamEnd, s.id)
}

// Close ends the stream in both directions, also for who waits in Read or Write;
// what was sent before arrives. Without a CloseWrite before, the other end takes it for
// cut off. It works twice.
func (s *Stream) Close() error {
	if !s.drop() {
		return nil
	}
	return s.all.conn.Write(KindStreamClose, s.id)
}

// drop ends the stream here, and tells whether the other end has not done so.
func (s *Stream) drop() bool {
	s.mu.Lock()
	first, gone := !s.closed, s.gone != nil
	s.closed, s.in = true, nil
	s.reading.set(s, time.Time{})
	s.writing.set(s, time.Time{})
	s.change.Broadcast()
	s.mu.Unlock()
	if first && !s.own {
		s.all.forget(s)
	}
	return first && !gone
}

// Over tells whether the other end has closed the stream, so that nothing that is
// written arrives any more.
func (s *Stream) Over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone != nil
}

// Wait waits until the stream is Over, or closed here.
func (s *Stream) Wait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.gone == nil && !s.closed {
		s.change.Wait()
	}
}

// Settle waits until the stream is Over, whether it is closed here or not.
func (s *Stream) Settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.gone == nil {
		s.change.Wait()
	}
}

// deliver takes a frame. An error means that the other end does not keep to the
// protocol.
func (s *Stream) deliver(f Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.change.Broadcast()
	switch f.Kind {
	case KindStreamData:
		if s.ended || len(s.in)+s.owed+len(f.Body) > streamWindow {
			return errors.New("it sent more into a stream than it may")
		}
		if !s.closed {
			s.in = append(s.in, f.Body...)
		}
	case KindStreamEnd:
		s.ended = true
	case KindStreamCredit:
		var body CreditBody
		if err := json.Unmarshal(f.Body, &body); err != nil {
			return fmt.Errorf("reading a stream's credit: %w", err)
		}
		s.credit = min(s.credit+max(body.Bytes, 0), streamWindow)
	}
	return nil
}

// end is deliver for a stream of which nothing more comes, because of err.
func (s *Stream) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.cut = fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, err)
	}
	s.ended, s.gone = true, err
	s.change.Broadcast()
}

// Streams are those of one connection, at either end of it. They are safe for
// concurrent use.
type Streams struct {
	conn *Conn

	mu   sync.Mutex // guards what follows
	all  map[uint32]*Stream
	gone error // why there are no more
}

// NewStreams is without any.
func NewStreams(conn *Conn) *Streams {
	return &Streams{conn: conn, all: map[uint32]*Stream{}}
}

// Open makes the stream of a number; it is an error when there are too many.
func (t *Streams) Open(id uint32) (*Stream, error) { return t.open(id, false) }

// OpenOwn is Open for a stream that this end opens, as a child does: it counts until the
// other end has closed it as well, for which [Stream.Settle] waits.
func (t *Streams) OpenOwn(id uint32) (*Stream, error) { return t.open(id, true) }

func (t *Streams) open(id uint32, own bool) (*Stream, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.gone != nil:
		return nil, t.gone
	case len(t.all) >= MaxStreams || t.all[id] != nil:
		return nil, fault.New(fault.Exhausted, "the machine has %d connections already", len(t.all)).WithHint("close some")
	}
	s := &Stream{all: t, id: id, own: own, credit: streamWindow}
	s.change.L = &s.mu
	t.all[id] = s
	return s, nil
}

// Len tells how many there are.
func (t *Streams) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.all)
}

func (t *Streams) forget(s *Stream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all[s.id] == s {
		delete(t.all, s.id)
	}
}

// Deliver takes a frame about a stream. What is for one that is closed is late,
// and dropped. It does not wait.
func (t *Streams) Deliver(f Frame) error {
	t.mu.Lock()
	s := t.all[f.ID]
	if f.Kind == KindStreamClose {
		delete(t.all, f.ID)
	}
	t.mu.Unlock()
	switch {
	case s == nil:
		return nil
	case f.Kind == KindStreamClose:
		s.end(errStreamReset)
		return nil
	}
	return s.deliver(f)
}

// End ends all of them, and those to come, because of err.
func (t *Streams) End(err error) {
	t.mu.Lock()
	t.gone = err
	t.mu.Unlock()
	t.Cut(err)
}

// Cut ends all of them because of err; there may be others later.
func (t *Streams) Cut(err error) {
	t.mu.Lock()
	all := t.all
	t.all = map[uint32]*Stream{}
	t.mu.Unlock()
	for _, s := range all {
		s.end(err)
	}
}

// Dial connects a stream to a port of the child's loopback address. Only children
// that have a machine of their own answer. Where nobody listens it is a
// fault.Unavailable.
func (c *Client) Dial(ctx context.Context, port uint16) (*Stream, error) {
	s, _, err := c.dial(ctx, DialBody{Port: port})
	return s, err
}

// DialEnvd connects a stream to the daemon that the child serves.
func (c *Client) DialEnvd(ctx context.Context) (*Stream, error) {
	s, _, err := c.dial(ctx, DialBody{Envd: true})
	return s, err
}

// dial connects a stream, and gives what was answered.
func (c *Client) dial(ctx context.Context, body DialBody) (*Stream, DialedBody, error) {
	answer := make(chan DialedBody, 1)
	c.mu.Lock()
	if c.cause != nil {
		c.mu.Unlock()
		return nil, DialedBody{}, gone(c.cause)
	}
	c.dialled = (c.dialled + 1) &^ fromChild
	id := c.dialled
	c.dialling[id] = answer
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.dialling, id)
	}()
	s, err := c.streams.Open(id)
	if err != nil {
		return nil, DialedBody{}, err
	}
	if err := c.conn.WriteJSON(KindDial, id, body); err != nil {
		s.Close()
		return nil, DialedBody{}, gone(err)
	}
	var a DialedBody
	select {
	case a = <-answer:
		err = a.err()
	case <-c.ended:
		err = gone(c.Err())
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		s.Close()
		return nil, DialedBody{}, err
	}
	return s, a, nil
}

// answered hands an answer to whom it is for. One that nobody waits for is late.
func (c *Client) answered(f Frame) error {
	var a DialedBody
	if err := json.Unmarshal(f.Body, &a); err != nil {
		return fmt.Errorf("reading the answer to a dial: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if answer := c.dialling[f.ID]; answer != nil {
		delete(c.dialling, f.ID)
		answer <- a
	}
	return nil
}
