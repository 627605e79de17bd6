package session

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// maxForwarded is how many connections a machine's ports have at once; more wait
// until one of them ends.
const maxForwarded = 128

// ports are a machine's, published at the loopback address of this host.
type ports struct {
	s         *session
	dialer    sandbox.Dialer
	listeners []net.Listener
	few       chan struct{}
	ctx       context.Context // ends with them
	stop      context.CancelFunc
	all       sync.WaitGroup
}

// publish opens the ports of the session's machine, which is about to boot. One
// that is taken is a fault.Conflict, and then none is open. It works twice.
func (s *session) publish(ctx context.Context) error {
	s.mu.Lock()
	machine := s.record.Settings.Machine
	s.mu.Unlock()
	if s.ports != nil || machine == nil || len(machine.Ports) == 0 || !hasMachines(s.backend) {
		return nil
	}
	dialer, ok := s.backend.(sandbox.Dialer)
	if !ok {
		return fault.New(fault.Unsupported, "the isolation %q publishes no ports", s.backend.Name()).WithHint("leave ports away")
	}
	p := &ports{s: s, dialer: dialer, few: make(chan struct{}, maxForwarded)}
	p.ctx, p.stop = context.WithCancel(context.Background())
	for _, port := range machine.Ports {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port.Host)
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", at.String())
		if err != nil {
			p.close()
			return portTaken(port, err)
		}
		p.listeners = append(p.listeners, l)
		p.all.Go(func() { p.accept(l, port.Guest) })
	}
	s.ports = p
	return nil
}

func portTaken(port Port, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fault.New(fault.Conflict, "the port %d of this machine is taken", port.Host).
			WithHint("choose another one for the sandbox's port %d, or stop what has it", port.Guest).WithCause(err)
	}
	return fault.New(fault.Unavailable, "the port %d of this machine cannot be opened", port.Host).WithHint("choose another one").WithCause(err)
}

// unpublish closes the ports, and what is connected to them, and waits.
func (s *session) unpublish() {
	if s.ports != nil {
		s.ports.close()
		s.ports = nil
	}
}

func (p *ports) close() {
	p.stop()
	for _, l := range p.listeners {
		_ = l.Close() // nobody waits for it
	}
	p.all.Wait()
}

func (p *ports) accept(l net.Listener, port uint16) {
	for {
		select {
		case p.few <- struct{}{}:
		case <-p.ctx.Done():
			return
		}
		conn, err := l.Accept()
		if err != nil {
			<-p.few
			if p.ctx.Err() == nil {
				p.s.manager.log.Warn("a published port takes no connections any more", "session", p.s.id, "cause", err)
			}
			return
		}
		p.all.Go(func() {
			defer func() { <-p.few }()
			p.forward(conn.(*net.TCPConn), port)
		})
	}
}

// forward carries bytes between a connection and the machine until both are done.
func (p *ports) forward(conn *net.TCPConn, port uint16) {
	defer conn.Close()
	inside, err := p.dialer.Dial(p.ctx, string(p.s.owner), string(p.s.id), port)
	if err != nil {
		p.s.manager.log.Debug("a connection to a published port came to nothing", "session", p.s.id, "cause", err)
		_ = conn.SetLinger(0) // whoever called is told that nobody is there
		return
	}
	defer inside.Close()
	stop := context.AfterFunc(p.ctx, func() {
		conn.Close()
		inside.Close()
	})
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { pour(inside, conn, inside.CloseWrite, conn, inside) })
	pour(conn, inside, conn.CloseWrite, conn, inside)
	both.Wait()
}

// pour copies to the end, and passes it on; a failure ends both connections.
func pour(to io.Writer, from io.Reader, end func() error, both ...io.Closer) {
	_, err := io.Copy(to, from)
	if err == nil {
		err = end()
	}
	if err == nil {
		return
	}
	for _, c := range both {
		_ = c.Close() // it fails where the other one did
	}
}
