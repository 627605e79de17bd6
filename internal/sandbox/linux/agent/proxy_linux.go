package agent

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
)

// lingerTime bounds how long is read what a program still sends after its connection to
// the server has ended: closed at once, it might not get what was sent to it before.
const lingerTime = 2 * time.Second

// firstPause and longestPause are how long is waited after a connection that could not
// be taken, as no descriptor is free.
const firstPause, longestPause = 5 * time.Millisecond, time.Second

// proxy is where programs of the box connect to the server. It listens from before the
// first program until the box ends, so that nobody else can have its port.
type proxy struct {
	agent    *agent
	port     uint16
	listener *net.TCPListener
	few      chan struct{} // holds a token for each connection
	ended    chan struct{}

	mu    sync.Mutex // guards what follows
	conns map[*net.TCPConn]struct{}
}

// listen begins at a port.
func (a *agent) listen(port uint16) error {
	at := net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port))
	l, err := net.ListenTCP("tcp4", at)
	if err != nil {
		return fmt.Errorf("listening for programs that want to the network: %w", err)
	}
	p := &proxy{
		agent: a, port: port, listener: l, few: make(chan struct{}, sandbox.MaxProxied), conns: map[*net.TCPConn]struct{}{}, ended: make(chan struct{}),
	}
	a.proxy.Store(p)
	a.passing.Go(p.accept)
	return nil
}

// relisten makes the port the one that the server of now wants; 0: none. Whoever is
// connected is not any more.
func (a *agent) relisten(port uint16) error {
	p := a.proxy.Load()
	if p != nil && p.port == port {
		p.cut()
		return nil
	}
	if p != nil {
		p.close()
		a.proxy.Store(nil)
	}
	if port == 0 {
		return nil
	}
	return a.listen(port)
}

// isProxy tells whether a port is the agent's own.
func (a *agent) isProxy(port uint16) bool {
	p := a.proxy.Load()
	return p != nil && p.port == port
}

func (p *proxy) accept() {
	pauses := backoff.ExponentialBackOff{InitialInterval: firstPause, Multiplier: 2, MaxInterval: longestPause}
	for p.take() {
		conn, err := p.listener.AcceptTCP()
		if err == nil {
			pauses.Reset()
			p.agent.passing.Go(func() {
				defer p.give()
				p.pass(conn)
			})
			continue
		}
		p.give()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		select {
		case <-time.After(pauses.NextBackOff()):
		case <-p.ended:
			return
		}
	}
}

// take waits for room for a connection; false: it is over. Those to come wait in the
// listener's queue, and then in their connecting.
func (p *proxy) take() bool {
	select {
	case p.few <- struct{}{}:
		return true
	case <-p.ended:
		return false
	}
}

func (p *proxy) give() { <-p.few }

// pass carries bytes between a program and the server until both are done, and the server
// has said so: until then it counts the stream, which is one of those at once.
func (p *proxy) pass(conn *net.TCPConn) {
	if s := p.through(conn); s != nil {
		s.Settle()
	}
}

// through gives the stream through which it was carried; nil: there was none.
func (p *proxy) through(conn *net.TCPConn) *wire.Stream {
	defer conn.Close()
	p.mu.Lock()
	p.conns[conn] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, conn)
	}()
	a := p.agent
	id := wire.ChildStream(a.passed.Add(1))
	s, err := a.streams.OpenOwn(id)
	if err != nil {
		return nil // too many, or the server is gone
	}
	defer s.Close()
	_ = a.conn.Write(wire.KindOpened, id) // without the server the stream ends
	if s.Over() {                         // another server was told of it than that with which it ended
		_ = a.conn.Write(wire.KindStreamClose, id)
	}
	carry(s, conn, takeTime, linger)
	return s
}

// linger ends a connection of which the server wants nothing more: what the program
// still sends is read for a moment.
func linger(conn *net.TCPConn) {
	_ = conn.CloseWrite() // it may be closed by now
	_ = conn.SetReadDeadline(time.Now().Add(lingerTime))
}

// cut ends the connections that there are.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		_ = conn.SetLinger(0) // the program is told that it was cut
		conn.Close()
	}
}

// close ends all of it; agent.passing tells when it has.
func (p *proxy) close() {
	close(p.ended)
	p.listener.Close()
	p.cut()
}
