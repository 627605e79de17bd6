package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox/wire"
)

// dialTime bounds how long a program of the box may take to be connected to.
const dialTime = 5 * time.Second

// takeTime bounds how long a program may take nothing of what was sent to it before the
// server closed the connection: as long as somebody at a pager who does not scroll on.
const takeTime = time.Minute

// stream takes a frame about a connection to a port of the box.
func (a *agent) stream(f wire.Frame) error {
	if f.Kind != wire.KindDial {
		return a.streams.Deliver(f)
	}
	var body wire.DialBody
	if err := json.Unmarshal(f.Body, &body); err != nil {
		return fmt.Errorf("reading a dial: %w", err)
	}
	s, err := a.streams.Open(f.ID) // here: data may follow at once
	if err != nil {
		a.send(wire.KindDialed, f.ID, wire.ErrorBody(fault.Of(err)))
		return nil
	}
	if body.Envd {
		a.loop.Go(func() { a.serveEnvd(f.ID, s) })
		return nil
	}
	if body.Terminal != 0 {
		a.loop.Go(func() { a.attach(f.ID, s, body) })
		return nil
	}
	a.loop.Go(func() { a.connect(f.ID, s, body.Port) })
	return nil
}

// connect carries bytes between a stream and a port until both are done with it.
func (a *agent) connect(id uint32, s *wire.Stream, port uint16) {
	defer s.Close()
	if a.isProxy(port) { // whoever connects from outside is not a program of the box
		a.send(wire.KindDialed, id, wire.ErrorBody(fault.New(fault.Denied, "the port %d leads out of the sandbox, not into it", port).
			WithHint("have the program listen at another one")))
		return
	}
	conn, err := dialPort(port)
	if err != nil {
		a.send(wire.KindDialed, id, wire.ErrorBody(fault.New(fault.Unavailable, "no program in the sandbox listens at port %d", port).
			WithHint("start a program there that does, at 127.0.0.1 or all addresses")))
		return
	}
	defer conn.Close()
	a.send(wire.KindDialed, id, wire.StatusBody{})
	carry(s, conn, takeTime, func(conn *net.TCPConn) { conn.Close() })
}

// carry copies both ways between a stream and a connection until both are done. The
// server is told that a program has sent all only where it has: one whose connection was
// reset is cut off. end is called when all that the server has sent is written, and it
// wants nothing more. From then on that the server has closed the stream, a program that
// takes nothing for so long is left.
func carry(s *wire.Stream, conn *net.TCPConn, takes time.Duration, end func(*net.TCPConn)) {
	var both sync.WaitGroup
	var in, out atomic.Bool // ended, in an orderly way
	both.Go(func() {
		if s.Wait(); s.Over() { // who writes now waits for no longer
			_ = conn.SetWriteDeadline(time.Now().Add(takes))
		}
	})
	both.Go(func() {
		switch _, err := io.Copy(&taker{conn, s, takes}, s); {
		case err == nil && !s.Over():
			_ = conn.CloseWrite() // it may be closed by now
			if in.Store(true); out.Load() {
				s.Close()
				return
			}
			s.Wait()
			end(conn)
		case err == nil, errors.Is(err, io.ErrUnexpectedEOF):
			end(conn)
		case errors.Is(err, syscall.EPIPE): // it has said all it had to say, and went
			if in.Store(true); out.Load() {
				s.Close()
			}
		default:
			_ = conn.SetLinger(0) // what it got does not look whole
			conn.Close()
			s.Close()
		}
	})
	switch _, err := io.Copy(s, conn); {
	case err == nil:
		_ = s.CloseWrite() // without the server there is nobody to tell
		if out.Store(true); in.Load() {
			s.Close()
		}
	case s.Over():
		_, _ = io.Copy(io.Discard, conn) // until its end
	default:
		conn.Close()
		s.Close()
	}
	both.Wait()
}

// taker writes to a program, which may take its time: all of it while the server has the
// stream, and so much for each piece that it takes afterwards.
type taker struct {
	conn  *net.TCPConn
	s     *wire.Stream
	takes time.Duration
}

func (t *taker) Write(p []byte) (n int, err error) {
	if t.s.Over() {
		_ = t.conn.SetWriteDeadline(time.Now().Add(t.takes))
	}
	for {
		took, err := t.conn.Write(p[n:])
		n += took
		if took == 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		_ = t.conn.SetWriteDeadline(time.Now().Add(t.takes))
	}
}

// dialPort connects to a program that listens on the box's loopback network.
func dialPort(port uint16) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: dialTime}
	var conn net.Conn
	var err error
	for _, host := range []string{"127.0.0.1", "::1"} {
		if conn, err = d.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(int(port)))); err == nil {
			return conn.(*net.TCPConn), nil
		}
	}
	return nil, err
}
