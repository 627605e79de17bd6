// Package loopback publishes ports of a machine at this host's loopback address:
// what connects there is connected to the machine.
package loopback

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"

	"paddock/internal/fault"
)

// maxConnections is how many connections a machine's ports have at once, all
// together; more wait until one of them ends.
const maxConnections = 128

// Port is one of the machine's that is reached through one of the host's.
type Port struct{ Host, Guest uint16 }

// Stream is a connection to the machine. Read and Write may be called at the same
// time; Close ends both, and works twice.
type Stream interface {
	// Read gives io.EOF where the machine has said that nothing more comes, and another
	// error where that was cut off.
	io.ReadWriteCloser
	// CloseWrite says that nothing more will be sent.
	CloseWrite() error
}

// Dial connects to a port of the machine; ctx bounds the connecting alone.
type Dial func(ctx context.Context, port uint16) (Stream, error)

// Ports are those that are published. The methods may be called from any goroutine.
type Ports struct {
	dial      Dial
	log       *slog.Logger
	listeners []net.Listener
	few       chan struct{} // holds a token for each connection
	ctx       context.Context
	stop      context.CancelFunc
	all       sync.WaitGroup
}

// Publish opens ports, all of them or none: one that is taken is a fault.Conflict.
// ctx bounds only that.
func Publish(ctx context.Context, ports []Port, dial Dial, log *slog.Logger) (*Ports, error) {
	p := &Ports{dial: dial, log: log, few: make(chan struct{}, maxConnections)}
	p.ctx, p.stop = context.WithCancel(context.Background())
	for _, port := range ports {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port.Host)
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", at.String())
		if err != nil {
			p.Close()
			return nil, explain(port, err)
		}
		p.listeners = append(p.listeners, l)
		p.all.Go(func() { p.accept(l.(*net.TCPListener).AcceptTCP, port.Guest) })
	}
	return p, nil
}

func explain(port Port, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fault.New(fault.Conflict, "the port %d of this machine is taken", port.Host).
			WithHint("choose another one for the sandbox's port %d, or stop what has it", port.Guest).WithCause(err)
	}
	return fault.New(fault.Unavailable, "the port %d of this machine cannot be opened", port.Host).WithHint("choose another one").WithCause(err)
}

// Close closes the ports, and what is connected to them, and waits. It works twice.
func (p *Ports) Close() {
	p.stop()
	for _, l := range p.listeners {
		_ = l.Close() // nobody waits for it
	}
	p.all.Wait()
}

// The pause after a connection that could not be taken, as no descriptor is free.
const firstPause, longestPause = 5 * time.Millisecond, time.Second

func (p *Ports) accept(next func() (*net.TCPConn, error), port uint16) {
	pauses := backoff.ExponentialBackOff{InitialInterval: firstPause, Multiplier: 2, MaxInterval: longestPause}
	for p.take() {
		conn, err := next()
		if err == nil {
			pauses.Reset()
			p.all.Go(func() {
				defer p.give()
				p.forward(conn, port)
			})
			continue
		}
		p.give()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		pause := pauses.NextBackOff()
		if pause == firstPause {
			p.log.Warn("a published port takes no connections just now", "cause", err)
		}
		select {
		case <-time.After(pause):
		case <-p.ctx.Done():
			return
		}
	}
}

// take waits for room for a connection, which give gives back; false: it is over.
func (p *Ports) take() bool {
	select {
	case p.few <- struct{}{}:
		return true
	case <-p.ctx.Done():
		return false
	}
}

func (p *Ports) give() { <-p.few }

// forward carries bytes between a connection and the machine until both are done. Who
// connected is told the end of an answer only where the machine has: a connection to a
// program or a machine that is gone, or to ports that are closed, is reset.
func (p *Ports) forward(conn *net.TCPConn, port uint16) {
	defer conn.Close()
	inside, err := p.dial(p.ctx, port)
	if err != nil {
		p.log.Debug("a connection to a published port came to nothing", "cause", err)
		_ = conn.SetLinger(0) // whoever called is told that nobody is there
		return
	}
	defer inside.Close()
	stop := context.AfterFunc(p.ctx, func() {
		reset(conn)
		inside.Close()
	})
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { pourIn(inside, conn) })
	pourOut(conn, inside)
	both.Wait()
}

// pourIn copies what a client sends. One whose connection fails has not said all; a
// program that takes no more may still have something to say, as servers do that refuse
// what is too large.
func pourIn(inside Stream, conn *net.TCPConn) {
	to := &taker{Writer: inside}
	_, err := io.Copy(to, conn)
	switch {
	case err == nil:
		_ = inside.CloseWrite() // without the machine there is nobody to tell
	case to.refused:
		_, _ = io.Copy(io.Discard, conn) // until its end, or that of the answer if that is cut off
	default:
		_ = inside.Close()
	}
}

// taker is a Writer that remembers that it failed.
type taker struct {
	io.Writer
	refused bool
}

func (t *taker) Write(p []byte) (int, error) {
	n, err := t.Writer.Write(p)
	t.refused = t.refused || err != nil
	return n, err
}

// pourOut copies what the machine sends. What ends in another way than by an end is not
// to look whole.
func pourOut(conn *net.TCPConn, inside Stream) {
	_, err := io.Copy(conn, inside)
	if err == nil {
		err = conn.CloseWrite()
	}
	if err != nil {
		reset(conn)
		_ = inside.Close() // it is told that nobody listens any more
	}
}

// reset ends a connection so that what was sent does not look whole.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0) // it may be closed by now
	conn.Close()
}
