package loopback

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"paddock/internal/fault"
)

// echo is a machine in which every port gives back what it is sent.
type echo struct{ net.Conn }

func (e echo) CloseWrite() error { return e.Conn.(*net.TCPConn).CloseWrite() }

func echoing(t *testing.T) Dial {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return func(ctx context.Context, port uint16) (Stream, error) {
		if port != 80 {
			return nil, errors.New("nobody listens there")
		}
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
		if err != nil {
			return nil, err
		}
		return echo{conn}, nil
	}
}

// free gives a port that nobody has.
func free(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

func address(port uint16) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))) }

// say sends a text and gives what comes back until the end.
func say(port uint16, text string) (string, error) {
	conn, err := net.Dial("tcp", address(port))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		return "", err
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return "", err
	}
	all, err := io.ReadAll(conn)
	return string(all), err
}

func TestWhatConnectsIsConnectedToTheMachineUntilThePortsAreClosed(t *testing.T) {
	port, other := free(t), free(t)
	p, err := Publish(t.Context(), []Port{{port, 80}, {other, 81}}, echoing(t), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if got, err := say(port, "hello"); got != "hello" || err != nil {
		t.Errorf("it says %q, %v", got, err)
	}
	if got, _ := say(other, "hello"); got != "" {
		t.Errorf("where nobody listens it says %q", got)
	}
	open, err := net.Dial("tcp", address(port))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if _, err := open.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(open, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p.Close()
	}
	if _, err := open.Read(make([]byte, 1)); err == nil {
		t.Error("a connection is still there")
	}
	if _, err := say(port, "hello"); err == nil {
		t.Error("the port is still open")
	}
}

// counted is a stream that tells when it is closed.
type counted struct {
	Stream
	closed func()
}

func (c counted) Close() error {
	c.closed()
	return c.Stream.Close()
}

func TestConnectionsBeyondTheirNumberWait(t *testing.T) {
	port, dial := free(t), echoing(t)
	var now, most atomic.Int32
	connected := make(chan struct{}, 2*maxConnections)
	p, err := Publish(t.Context(), []Port{{port, 80}}, func(ctx context.Context, port uint16) (Stream, error) {
		s, err := dial(ctx, port)
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		connected <- struct{}{}
		return counted{s, sync.OnceFunc(func() { now.Add(-1) })}, err
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var open []net.Conn
	for range 2 * maxConnections {
		conn, err := net.Dial("tcp", address(port))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
	}
	for range maxConnections { // there is room for so many, before any has ended
		<-connected
	}
	for _, conn := range open { // each has its turn when those before it have ended
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	if n := most.Load(); n != maxConnections {
		t.Errorf("%d were connected to the machine at once", n)
	}
}

func TestPortsAreOpenedAllOrNone(t *testing.T) {
	port := free(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := uint16(l.Addr().(*net.TCPAddr).Port)
	_, err = Publish(t.Context(), []Port{{port, 80}, {taken, 80}}, echoing(t), slog.New(slog.DiscardHandler))
	if f := fault.Of(err); fault.KindOf(err) != fault.Conflict || f.Hint == "" {
		t.Errorf("it says %v", err)
	}
	again, err := net.Listen("tcp", address(port))
	if err != nil {
		t.Fatalf("the first one is still open: %v", err)
	}
	again.Close()
}

// far is a machine's end of a stream, as a test has it.
type far struct {
	net.Conn       // one of a pipe
	says     error // what Read gives in the place of an end; nil: the end
	deaf     bool  // it takes nothing
	closed   chan struct{}
	once     sync.Once
	finished atomic.Bool // CloseWrite was called
}

func (f *far) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	if errors.Is(err, io.EOF) && f.says != nil {
		err = f.says
	}
	return n, err
}

func (f *far) Write(p []byte) (int, error) {
	if f.deaf {
		return 0, errors.New("the other end has closed the stream")
	}
	return f.Conn.Write(p)
}

func (f *far) CloseWrite() error { f.finished.Store(true); return nil }

func (f *far) Close() error {
	f.once.Do(func() { close(f.closed) })
	return f.Conn.Close()
}

// published gives a connection to a port behind which is a stream, and the machine's end
// of that.
func published(t *testing.T, f *far) (client *net.TCPConn, machine net.Conn, p *Ports) {
	t.Helper()
	port := free(t)
	f.Conn, machine = net.Pipe()
	f.closed = make(chan struct{})
	p, err := Publish(t.Context(), []Port{{port, 80}}, func(context.Context, uint16) (Stream, error) { return f, nil }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	conn, err := net.Dial("tcp", address(port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn.(*net.TCPConn), machine, p
}

// Who reads until the end, as clients of HTTP/1.0 do, can tell a part from the whole.
func TestAnAnswerThatIsCutOffDoesNotLookWhole(t *testing.T) {
	cut := fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, errors.New("the box is gone"))
	for name, c := range map[string]struct {
		says error
		end  func(*Ports, net.Conn)
		cut  bool
	}{
		"the program ends it":        {nil, func(_ *Ports, m net.Conn) { m.Close() }, false},
		"the machine goes":           {cut, func(_ *Ports, m net.Conn) { m.Close() }, true},
		"the ports are closed":       {nil, func(p *Ports, _ net.Conn) { p.Close() }, true},
		"the stream is not a stream": {errors.New("it cannot be read"), func(_ *Ports, m net.Conn) { m.Close() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := &far{says: c.says}
			conn, machine, p := published(t, f)
			if _, err := machine.Write([]byte("half")); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 4)
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != "half" {
				t.Fatalf("it says %q, %v", got, err)
			}
			c.end(p, machine)
			if rest, err := io.ReadAll(conn); len(rest) > 0 || (err != nil) != c.cut {
				t.Errorf("then it says %q, and ends with %v", rest, err)
			}
			conn.Close()
			<-f.closed
		})
	}
}

// A server that has heard enough answers, and goes.
func TestAnAnswerIsWholeThoughTheProgramTakesNoMore(t *testing.T) {
	f := &far{deaf: true}
	conn, machine, _ := published(t, f)
	if _, err := conn.Write([]byte("more than it wants")); err != nil {
		t.Fatal(err)
	}
	if _, err := machine.Write([]byte("too large")); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("and more")); err != nil {
		t.Fatal(err)
	}
	machine.Close()
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); string(got) != "too large" || err != nil {
		t.Errorf("it says %q, %v", got, err)
	}
	<-f.closed
}

// A client that is gone has not said all.
func TestARequestThatIsCutOffDoesNotLookWhole(t *testing.T) {
	f := &far{}
	conn, machine, _ := published(t, f)
	if _, err := conn.Write([]byte("half")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(machine, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	<-f.closed
	if f.finished.Load() {
		t.Error("the machine was told that there is no more")
	}
}

// A process that has no descriptor free just now has some again later.
func TestAConnectionThatCannotBeTakenNowIsTakenLater(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Publish(t.Context(), nil, echoing(t), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	p.all.Go(func() {
		p.accept(func() (*net.TCPConn, error) {
			if asked.Add(1) < 4 {
				return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
			}
			return l.(*net.TCPListener).AcceptTCP()
		}, 80)
	})
	if got, err := say(uint16(l.Addr().(*net.TCPAddr).Port), "hello"); got != "hello" || err != nil {
		t.Errorf("it says %q, %v", got, err)
	}
	l.Close()
	p.Close()
}
