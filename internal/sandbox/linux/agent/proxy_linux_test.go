package agent_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"paddock/internal/sandbox"
)

// Programs that connect and go away, faster than anybody can serve them, are not more at
// once than may be: the server would end the machine for that.
func TestConnectionsThatProgramsHaveLeftCountUntilTheServerIsDoneWithThem(t *testing.T) {
	requireRoot(t)
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().(*net.TCPAddr)
	l.Close()
	p, err := startAgent(t.Context(), &root{Listen: uint16(at.Port)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.close(); p.quiet(t) })
	const many = 5 * sandbox.MaxProxied
	left, release := make(chan struct{}, many+1), make(chan struct{})
	var now, most atomic.Int64
	p.client.Accept(func(ctx context.Context, conn net.Conn) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		line := make([]byte, 5)
		if _, err := io.ReadFull(conn, line); err == nil {
			fmt.Fprintf(conn, "heard %s", line)
		}
		left <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
		}
	})
	for range many {
		conn, err := net.DialTCP("tcp4", nil, at)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetLinger(0)
		conn.Close()
	}
	for range sandbox.MaxProxied {
		<-left
	}
	last, err := net.DialTCP("tcp4", nil, at)
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	if _, err := last.Write([]byte("still")); err != nil {
		t.Fatal(err)
	}
	_ = last.CloseWrite()
	close(release)
	if got, err := io.ReadAll(last); string(got) != "heard still" || err != nil {
		t.Errorf("the last one is told %q, %v", got, err)
	}
	if most.Load() > sandbox.MaxProxied {
		t.Errorf("%d were served at once", most.Load())
	}
	if err := p.client.Err(); err != nil {
		t.Error(err)
	}
}
