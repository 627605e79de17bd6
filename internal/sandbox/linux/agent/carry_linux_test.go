package agent

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"paddock/internal/sandbox/wire"
)

// carried is a stream that is carried to a program: the server's end, the program's, and
// what is closed when nothing works for it any more.
func carried(t *testing.T, takes time.Duration, end func(*net.TCPConn)) (*wire.Stream, *net.TCPConn, <-chan struct{}) {
	t.Helper()
	ours, theirs := net.Pipe()
	open := func(stream net.Conn) (*wire.Stream, *wire.Streams) {
		conn := wire.NewConn(stream)
		streams := wire.NewStreams(conn)
		s, err := streams.Open(1)
		if err != nil {
			t.Fatal(err)
		}
		reading := make(chan struct{})
		t.Cleanup(func() { conn.Close(); <-reading })
		go func() {
			defer close(reading)
			for {
				f, err := conn.Read()
				if err != nil {
					streams.End(err)
					return
				}
				if err := streams.Deliver(f); err != nil {
					t.Error(err)
				}
			}
		}()
		return s, streams
	}
	server, _ := open(ours)
	agent, _ := open(theirs)
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	program, err := net.DialTCP("tcp4", nil, l.Addr().(*net.TCPAddr))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := l.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer conn.Close()
		defer agent.Close()
		carry(agent, conn, takes, end)
	}()
	t.Cleanup(func() { program.Close(); <-done })
	return server, program, done
}

// fill writes until a program that does not read takes nothing more, closes the stream in
// an orderly way, and gives how much was written.
func fill(t *testing.T, server *wire.Stream) (all int) {
	t.Helper()
	text := make([]byte, 1<<20)
	for none := 0; none < 5; { // on a busy machine what lies between may only not have had its turn
		_ = server.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		n, err := server.Write(text)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		if none++; n > 0 {
			none = 0
		}
		all += n
	}
	_ = server.CloseWrite()
	server.Close()
	return all
}

func closing(conn *net.TCPConn) { conn.Close() }

// A program that does not read keeps neither a goroutine nor a descriptor of what the
// server has closed.
func TestAProgramThatDoesNotReadIsLeft(t *testing.T) {
	for name, end := range map[string]func(*net.TCPConn){"dialled": closing, "proxied": linger} {
		t.Run(name, func(t *testing.T) {
			server, program, done := carried(t, 20*time.Millisecond, end)
			want := fill(t, server)
			<-done
			// On a busy machine the system's buffers may have had room for the rest.
			if got, err := io.Copy(io.Discard, program); err == nil && got != int64(want) {
				t.Errorf("what was cut off after %d bytes of %d looks whole", got, want)
			}
		})
	}
}

// One that reads late gets all of it.
func TestAProgramThatReadsLateGetsAll(t *testing.T) {
	for name, end := range map[string]func(*net.TCPConn){"dialled": closing, "proxied": linger} {
		t.Run(name, func(t *testing.T) {
			server, program, done := carried(t, time.Minute, end)
			want := fill(t, server)
			if got, err := io.Copy(io.Discard, program); got != int64(want) || err != nil {
				t.Errorf("%d bytes of %d came, %v", got, want, err)
			}
			program.Close()
			<-done
		})
	}
}
