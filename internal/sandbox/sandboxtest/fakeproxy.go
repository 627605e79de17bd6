package sandboxtest

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
)

// proxyOf is the proxy that a machine has when it is connected to. The caller holds
// nothing.
func (b *FakeMachines) proxyOf(m *fakeBox) func(context.Context, net.Conn) {
	return func(_ context.Context, conn net.Conn) {
		b.mu.Lock()
		serve := m.spec.Proxy
		b.mu.Unlock()
		m.proxied.Go(func() {
			defer conn.Close()
			serve(m.alive, conn)
		})
	}
}

// halved is an end of a pipe that can say that nothing more will be sent: who reads at
// the other end does not wait for it.
type halved struct{ net.Conn }

func (halved) CloseWrite() error { return nil }

// proxied sends a line to the machine's proxy, and gives the line that comes back.
func (r *fakeRun) proxied(text string) (any, error) {
	begin := r.in.spec.Proxy
	if begin == nil {
		return "refused", nil
	}
	ours, theirs := net.Pipe()
	defer ours.Close()
	begin(r.ctx, halved{theirs})
	fmt.Fprintln(ours, text)
	line, err := bufio.NewReader(ours).ReadString('\n')
	if err != nil {
		return nil, &raised{kind: "OSError", message: err.Error()}
	}
	return strings.TrimSpace(line), nil
}
