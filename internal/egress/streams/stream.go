package streams

import (
	"context"
	"errors"
	"hash/maphash"
	"io"
	"os"
	"sync"
	"time"
)

// stream is one connection of the guest's, or one request of its.
type stream struct {
	number int
	host   string
	port   int
	idle   *time.Timer
	cancel context.CancelFunc
	table  *Table

	// near is the guest's end, far the proxy's. Of what the guest reads, near.in has what
	// was not read yet; of a request whose answer is all that the guest reads, near.out
	// is its body.
	near, far *conn

	begin sync.Mutex // guards what follows
	began bool
	tls   bool
	end   func() // lets go of a connection that was opened ahead
	head  chan headed

	reading turn // guards what follows
	read    int64
	given   []byte // the last that was given, which may have got lost: it ends at read
	lent    []byte // the buffer of the queue's in which that lies; nil: it has none

	writing turn // guards what follows
	written int64
	putAt   int64  // where the last that was put begins; it ends at written
	putSum  uint64 // of its bytes
}

var seed = maphash.MakeSeed()

// turn is a lock that one can stop waiting for.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take(ctx context.Context) bool {
	select {
	case t <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (t turn) pass() { <-t }

func (t *Table) newStream(host string, port int) *stream {
	s := &stream{host: host, port: port, table: t, reading: newTurn(), writing: newTurn(), end: func() {}}
	s.near, s.far = newPipe(t.config.Buffer)
	return s
}

// start has the proxy serve the stream, when it is first used.
func (s *stream) start() bool {
	s.begin.Lock()
	defer s.begin.Unlock()
	if s.began {
		return true
	}
	s.began = s.table.goOn(func() {
		s.table.config.Proxy.ServeOrigin(s.table.ctx, s.far, s.host, s.port, s.tls)
		s.far.Close()
	})
	return s.began
}

// close ends the stream, whatever it is doing.
func (s *stream) close() {
	if s.idle != nil { // nil: it did not come into the table
		s.idle.Stop()
	}
	if s.cancel != nil {
		s.cancel()
		s.near.out.finish(io.ErrUnexpectedEOF) // a body that is given up does not look whole
	}
	s.near.Close()
	s.begin.Lock()
	defer s.begin.Unlock()
	s.end()
	s.end = func() {}
	if !s.began {
		s.far.Close()
	}
}

// touch says that somebody asks something of the stream.
func (s *stream) touch() { s.idle.Reset(s.table.config.Idle) }

var errReset = errors.New("the stream has gone on without the program")

// take gives up to most bytes from that one on, or waits for them, behind headroom free
// ones; io.EOF at the end, os.ErrDeadlineExceeded when ctx ended before there were any.
func (s *stream) take(ctx context.Context, at int64, most int) ([]byte, error) {
	if !s.reading.take(ctx) {
		return nil, os.ErrDeadlineExceeded
	}
	defer s.reading.pass()
	before := s.read - int64(len(s.given))
	if at < before || at > s.read {
		return nil, errReset
	}
	if again := s.given[at-before:]; len(again) > 0 {
		return append(make([]byte, headroom), again[:min(len(again), most)]...), nil
	}
	// Whoever asks for what comes next has what was given. One who says so before it is
	// true may find later bytes of the same stream there.
	if s.lent != nil {
		s.near.in.giveBack(s.lent)
		s.given, s.lent = nil, nil
	}
	b, err := s.near.take(ctx, most)
	if err != nil {
		return nil, err
	}
	s.given, s.lent = b[headroom:], b
	s.read += int64(len(s.given))
	return b, nil
}

// put writes what the stream has not got of bytes from that one on, and tells how many
// of them it has then. What it has got already are the last that were put, and no others:
// else the program was brought back, and would get the answer to something else.
func (s *stream) put(ctx context.Context, at int64, b []byte) (int, error) {
	if !s.writing.take(ctx) {
		return 0, os.ErrDeadlineExceeded
	}
	defer s.writing.pass()
	had := 0
	if at != s.written {
		if at != s.putAt || s.written-at > int64(len(b)) {
			return 0, errReset
		}
		if had = int(s.written - at); maphash.Bytes(seed, b[:had]) != s.putSum {
			return 0, errReset
		}
	}
	n, err := s.near.writeContext(ctx, b[had:])
	if n > 0 {
		s.written, s.putAt, s.putSum = s.written+int64(n), at, maphash.Bytes(seed, b[:had+n])
	}
	if n+had > 0 && !errors.Is(err, io.ErrClosedPipe) {
		err = nil
	}
	return n + had, err
}
