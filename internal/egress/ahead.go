package egress

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"strconv"
	"sync"
)

// ahead are connections that were opened before there was a request.
type ahead struct {
	mu    sync.Mutex
	conns map[string][]net.Conn // by scheme and address
}

// Ahead opens a connection to a canonical host before there is a request, so that who
// will make one learns at once whether there is such a host, and whether it is who it
// says. A request takes the connection in the place of one of its own. After end it is
// closed where none did. Errors are as those of RoundTrip.
func (t *Transport) Ahead(ctx context.Context, scheme, host string, port int) (end func(), err error) {
	to := net.JoinHostPort(host, strconv.Itoa(port))
	open := t.dial
	if scheme == "https" {
		open = t.dialTLS
	}
	conn, err := open(ctx, "tcp", to)
	if err != nil {
		return nil, explain(ctx, host, err)
	}
	key := scheme + " " + to
	t.early.put(key, conn)
	return func() { t.early.drop(key, conn) }, nil
}

// dialTLS opens a connection to a host and greets it.
func (t *Transport) dialTLS(ctx context.Context, network, to string) (net.Conn, error) {
	raw, err := t.dial(ctx, network, to)
	if err != nil {
		return nil, err
	}
	config := t.config.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(to)
	}
	conn := tls.Client(raw, config)
	ctx, cancel := context.WithTimeout(ctx, t.dialer.Timeout)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, err
	}
	return conn, nil
}

// orEarly gives a connection that is there already, else dials.
func (t *Transport) orEarly(scheme string, dial dialFunc) dialFunc {
	return func(ctx context.Context, network, to string) (net.Conn, error) {
		if conn := t.early.take(scheme + " " + to); conn != nil {
			return conn, nil
		}
		return dial(ctx, network, to)
	}
}

type dialFunc = func(ctx context.Context, network, to string) (net.Conn, error)

// put keeps a connection until it is taken or dropped.
func (a *ahead) put(key string, conn net.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.conns == nil {
		a.conns = map[string][]net.Conn{}
	}
	a.conns[key] = append(a.conns[key], conn)
}

// take gives the youngest, which a host has least likely closed.
func (a *ahead) take(key string) net.Conn {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.conns[key]
	if len(all) == 0 {
		return nil
	}
	conn := all[len(all)-1]
	a.keepLocked(key, all[:len(all)-1])
	return conn
}

func (a *ahead) drop(key string, conn net.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if k := slices.Index(a.conns[key], conn); k >= 0 {
		a.keepLocked(key, slices.Delete(a.conns[key], k, k+1))
		conn.Close()
	}
}

func (a *ahead) keepLocked(key string, left []net.Conn) {
	if len(left) == 0 {
		delete(a.conns, key)
		return
	}
	a.conns[key] = left
}

// close closes what nobody took until now.
func (a *ahead) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, all := range a.conns {
		for _, conn := range all {
			conn.Close()
		}
	}
	clear(a.conns)
}
