package web

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"paddock/internal/fault"
)

// place finds the address to listen at, and refuses to be open where it should
// not be.
func (s *Server) place() error {
	c := &s.config
	c.Host = strings.TrimSuffix(strings.TrimPrefix(c.Host, "["), "]")
	at, err := net.ResolveTCPAddr("tcp", net.JoinHostPort(c.Host, strconv.Itoa(c.Port)))
	if err != nil {
		return fault.New(fault.Invalid, "%q with port %d is not an address to listen at", c.Host, c.Port).WithCause(err).
			WithHint("--host (transport_http.host) takes an address of this machine; 127.0.0.1 is for this machine alone, 0.0.0.0 for everybody")
	}
	s.bound = bound{address: at.String(), loopback: at.IP.IsLoopback()}
	safe := c.CertFile != "" || c.AllowPlain
	s.bound.local = !s.bound.loopback && !safe
	switch {
	case s.bound.loopback:
		return nil
	case c.Dev:
		return fault.New(fault.Denied, "without a token %s would let the whole network in", c.Host).WithHint("leave --dev out, or listen at 127.0.0.1")
	case !safe && len(c.TrustedProxies) == 0:
		return fault.New(fault.Denied, "at %s tokens and programs would cross the network unencrypted", c.Host).
			WithHint("set transport_http.tls_cert and tls_key, or trusted_proxies for a proxy that has TLS, or listen at 127.0.0.1; --insecure-http serves plain HTTP all the same")
	}
	return nil
}

// listen binds the address. From then on the server answers to its names.
func (s *Server) listen(ctx context.Context) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", s.bound.address)
	if err != nil {
		return nil, s.cannotListen(err)
	}
	s.port = l.Addr().(*net.TCPAddr).Port
	s.listensAt(s.port)
	return &bounded{TCPListener: l.(*net.TCPListener), most: s.config.MaxConnections, proxies: s.proxies, log: s.log}, nil
}

func (s *Server) cannotListen(err error) error {
	switch {
	case isErrno(err, syscall.EADDRINUSE, 10048):
		return fault.New(fault.Conflict, "something listens at %s already", s.bound.address).WithCause(err).
			WithHint("if it is another paddock, use that or end it; --port chooses another port, 0 any that is free")
	case isErrno(err, syscall.EADDRNOTAVAIL, 10049):
		return fault.New(fault.Invalid, "this machine has no address %s", s.config.Host).WithCause(err).
			WithHint("127.0.0.1 is for this machine alone, 0.0.0.0 for everybody")
	case isErrno(err, syscall.EACCES, 10013):
		return fault.New(fault.Denied, "this user may not listen at port %d", s.config.Port).WithCause(err).
			WithHint("choose a port above 1023, or let a proxy or the service manager open it")
	}
	return fault.New(fault.Unavailable, "listening at %s does not work: %v", s.bound.address, err).WithCause(err)
}

// isErrno reports whether err is a system's error; Windows' sockets have numbers
// of their own.
func isErrno(err error, e, windows syscall.Errno) bool {
	if runtime.GOOS == "windows" {
		e = windows
	}
	return errors.Is(err, e)
}

// bounded is a listener with so many open connections at most, and fewer from one address.
// What comes beyond is closed at once: a client that waits would not know why.
type bounded struct {
	*net.TCPListener
	most    int
	proxies []netip.Prefix // who may have as many as there are
	log     *slog.Logger

	mu   sync.Mutex // guards what follows
	open int
	from map[netip.Prefix]int
	full bool // it has been logged
}

// Accept waits for a connection that there is room for.
func (l *bounded) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			return nil, err
		}
		at := addressOf(c.RemoteAddr())
		if l.enter(at) {
			return &counted{TCPConn: c, leave: sync.OnceFunc(func() { l.leave(network(at)) })}, nil
		}
		_ = c.Close()
	}
}

// enter counts one more connection, unless there are as many as there may be.
func (l *bounded) enter(at netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := network(at)
	if l.open >= l.most || l.from[from] >= l.share(at) {
		if !l.full {
			l.full = true
			l.log.Warn("there are as many connections as there may be, in all or from this address; further ones are closed", "connections", l.open, "address", from, "from it", l.from[from])
		}
		return false
	}
	if l.from == nil {
		l.from = map[netip.Prefix]int{}
	}
	l.open++
	l.from[from]++
	l.full = false
	return true
}

// share is how many connections an address may have: a quarter; where many share one, as
// this machine's users do, three quarters; and a trusted proxy all of them.
func (l *bounded) share(at netip.Addr) int {
	switch {
	case slices.ContainsFunc(l.proxies, func(p netip.Prefix) bool { return p.Contains(at) }):
		return l.most
	case at.IsLoopback():
		return l.most - l.most/4
	}
	return max(1, l.most/4)
}

func (l *bounded) leave(from netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.from[from]--; l.from[from] == 0 {
		delete(l.from, from)
	}
}

func addressOf(a net.Addr) netip.Addr {
	if at, ok := a.(*net.TCPAddr); ok {
		return at.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// network is what counts as one address: of IPv6, whose users have a network each, that.
func network(at netip.Addr) netip.Prefix {
	bits := at.BitLen()
	if at.Is6() && !at.IsLoopback() {
		bits = 64
	}
	return netip.PrefixFrom(at, bits).Masked()
}

// counted is one of them. It can do what else a TCP connection can: net/http
// ends one by halves, so that a refusal arrives before a reset does.
type counted struct {
	*net.TCPConn
	leave func()
}

// Close may be called twice.
func (c *counted) Close() error {
	defer c.leave()
	return c.TCPConn.Close()
}
