//go:build linux && (amd64 || arm64)

package linux

import (
	"net"
	"testing"
)

// listen takes connections on the host for the length of a test, and complains
// about each.
func listen(t *testing.T, network, address string) string {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Errorf("somebody reached %s", address)
			c.Close()
		}
	}()
	return l.Addr().String()
}
