package agent_test

import (
	"errors"
	"io"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/internal/sandbox/wire"
)

// program listens at a port of this process, and gives what a client has dialled there,
// at both its ends.
func program(t *testing.T, client *wire.Client) (*wire.Stream, *net.TCPConn) {
	t.Helper()
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, err := client.Dial(t.Context(), uint16(l.Addr().(*net.TCPAddr).Port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	conn, err := l.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return s, conn
}

func TestWhatAProgramSentIsWholeOnlyWhereItClosed(t *testing.T) {
	p, err := startAgent(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.close(); p.quiet(t) })
	for name, c := range map[string]struct {
		end func(s *wire.Stream, conn *net.TCPConn)
		cut bool
	}{
		"closed":             {func(_ *wire.Stream, conn *net.TCPConn) { conn.Close() }, false},
		"closed for writing": {func(_ *wire.Stream, conn *net.TCPConn) { _ = conn.CloseWrite() }, false},
		"closed while it is spoken to": {func(s *wire.Stream, conn *net.TCPConn) {
			conn.Close()
			for {
				if _, err := s.Write([]byte("late")); err != nil {
					return
				}
			}
		}, false},
		"closed after the server": {func(s *wire.Stream, conn *net.TCPConn) {
			_ = s.CloseWrite()
			_, _ = io.Copy(io.Discard, conn)
			conn.Close()
		}, false},
		"reset": {func(_ *wire.Stream, conn *net.TCPConn) {
			_ = conn.SetLinger(0)
			conn.Close()
		}, true},
		"closed without reading": {func(s *wire.Stream, conn *net.TCPConn) {
			if _, err := s.Write([]byte("a question")); err != nil {
				t.Error(err)
			}
			_ = s.CloseWrite()
			waitFor(t, conn)
			conn.Close()
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, conn := program(t, p.client)
			if _, err := conn.Write([]byte("all ")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(s, make([]byte, 4)); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write([]byte("of it")); err != nil {
				t.Fatal(err)
			}
			c.end(s, conn)
			got, err := io.ReadAll(s)
			if cut := errors.Is(err, io.ErrUnexpectedEOF); cut != c.cut || !cut && (string(got) != "of it" || err != nil) {
				t.Errorf("it gives %q, %v", got, err)
			}
		})
	}
}

// waitFor waits until something can be read.
func waitFor(t *testing.T, conn *net.TCPConn) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err == nil {
		err = raw.Read(func(fd uintptr) bool {
			_, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
			return err != unix.EAGAIN
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}
