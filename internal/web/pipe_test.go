package web

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
)

// pipes is a listener without a network, for tests whose time is not the
// world's.
type pipes struct {
	made   chan net.Conn
	closed chan struct{}
	once   sync.Once
	dialed []net.Conn // the clients' ends
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.made:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(t *testing.T) net.Conn {
	t.Helper()
	client, server := net.Pipe()
	p.made <- server
	p.dialed = append(p.dialed, client)
	return client
}

// timeless is a server in a bubble, by the name of localhost:80.
type timeless struct {
	*pipes
	own    *Server
	cancel context.CancelFunc // begins its end
	ended  chan error
}

// inBubble runs f with a server whose clock stands still while something works.
func inBubble(t *testing.T, c Config, f func(t *testing.T, s *timeless)) {
	synctest.Test(t, func(t *testing.T) {
		s := &timeless{pipes: &pipes{made: make(chan net.Conn), closed: make(chan struct{})}, own: create(t, c), ended: make(chan error, 1)}
		s.own.listensAt(80)
		var ctx context.Context
		ctx, s.cancel = context.WithCancel(context.Background())
		defer s.cancel()
		var serving sync.WaitGroup
		serving.Go(func() { s.ended <- s.own.serve(ctx, s) })
		f(t, s)
		s.cancel()
		for _, c := range s.dialed {
			c.Close()
		}
		serving.Wait()
	})
}
