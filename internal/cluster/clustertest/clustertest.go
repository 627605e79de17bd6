// Package clustertest has NATS servers in the test's process, which sync what they
// acknowledge.
package clustertest

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"paddock/internal/cluster/natsserver"
)

// Servers are the servers of one cluster. It is used from the test's goroutine.
type Servers struct {
	t       *testing.T
	configs []natsserver.Config
	running []*natsserver.Server // nil: stopped
	urls    []string
}

// Start starts n servers, which end with the test.
func Start(t *testing.T, n int) *Servers {
	t.Helper()
	s := &Servers{t: t, running: make([]*natsserver.Server, n)}
	ports := freePorts(t, 2*n)
	dir := t.TempDir()
	for i := range n {
		c := natsserver.Config{Name: fmt.Sprintf("n%d", i), Dir: filepath.Join(dir, fmt.Sprint(i)), MaxBytes: 1 << 30, Listen: ports[i]}
		if n > 1 {
			c.Cluster, c.Routes = ports[n+i], ports[n:]
		}
		s.configs = append(s.configs, c)
		s.urls = append(s.urls, "nats://"+ports[i])
	}
	t.Cleanup(func() {
		for i := range s.running {
			s.Stop(i)
		}
	})
	for i := range n {
		s.Restart(i)
	}
	return s
}

// Stop stops a server at once.
func (s *Servers) Stop(i int) {
	if s.running[i] != nil {
		s.running[i].Close()
		s.running[i] = nil
	}
}

// Restart starts a stopped server on its data.
func (s *Servers) Restart(i int) {
	s.t.Helper()
	server, err := natsserver.Start(s.configs[i])
	if err != nil {
		s.t.Fatal(err)
	}
	s.running[i] = server
}

// Leader is the server that leads the stream; -1: none does.
func (s *Servers) Leader(stream string) int {
	for i, server := range s.running {
		if server != nil && server.Leads(stream) {
			return i
		}
	}
	return -1
}

// Len is how many servers there are.
func (s *Servers) Len() int { return len(s.configs) }

// URLs are where nodes reach them, as nats.Connect has it.
func (s *Servers) URLs() string { return strings.Join(s.urls, ",") }

// Connect connects to the servers, until the test ends.
func (s *Servers) Connect() *nats.Conn {
	s.t.Helper()
	nc, err := nats.Connect(s.URLs(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(nc.Close)
	return nc
}

// freePorts are addresses that were free a moment ago.
func freePorts(t *testing.T, n int) []string {
	t.Helper()
	var addrs []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs
}
