package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// opener dials a client to a child that script opens streams of, and whose other frames
// about streams are taken meanwhile.
func opener(t *testing.T, script func(c child, open func(n uint32) *Stream)) *Client {
	return dial(t, func(c child) {
		streams := NewStreams(c.Conn)
		var works sync.WaitGroup
		defer works.Wait()
		defer streams.End(io.ErrClosedPipe)
		works.Go(func() {
			script(c, func(n uint32) *Stream {
				s, err := streams.Open(ChildStream(n))
				if err != nil {
					t.Error(err)
				}
				c.send(KindOpened, ChildStream(n), []byte(nil))
				return s
			})
		})
		for {
			f, err := c.Read()
			if err != nil {
				return
			}
			if err := streams.Deliver(f); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestAStreamOfTheChildsIsServed(t *testing.T) {
	accept, answers := make(chan struct{}), make(chan []byte, 8)
	client := opener(t, func(_ child, open func(uint32) *Stream) {
		<-accept
		var all sync.WaitGroup
		for n := range 8 {
			s := open(uint32(n + 1))
			all.Go(func() {
				defer s.Close()
				data := bytes.Repeat([]byte{byte(n)}, 3*streamWindow)
				go func() {
					_, _ = s.Write(data)
					_ = s.CloseWrite()
				}()
				got, err := io.ReadAll(s)
				if err != nil || !bytes.Equal(got, data) {
					t.Errorf("%d bytes came back, %v", len(got), err)
				}
				answers <- got
			})
		}
		all.Wait()
	})
	client.Accept(func(_ context.Context, conn net.Conn) {
		if conn.LocalAddr().Network() != "paddock" || conn.RemoteAddr().String() != "sandbox" {
			t.Error("it has other addresses")
		}
		_, _ = io.Copy(conn, conn)
		_ = conn.(interface{ CloseWrite() error }).CloseWrite()
		_, _ = conn.Read(make([]byte, 1)) // until it is closed
	})
	close(accept)
	for range 8 {
		<-answers
	}
}

func TestAStreamThatNobodyServesIsClosed(t *testing.T) {
	over := make(chan error, 1)
	opener(t, func(_ child, open func(uint32) *Stream) {
		s := open(1)
		_, err := io.ReadAll(s)
		if !s.Over() {
			t.Error("it is not over")
		}
		over <- err
	})
	if err := <-over; !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("reading it gives %v", err)
	}
}

// net/http answers whoever says something odd, and nobody whose connection was reset.
func TestAServedStreamThatIsCutOffIsAConnectionThatWasReset(t *testing.T) {
	accept, errs := make(chan struct{}), make(chan error, 2)
	client := opener(t, func(_ child, open func(uint32) *Stream) {
		<-accept
		whole, part := open(1), open(2)
		for _, s := range []*Stream{whole, part} {
			if _, err := s.Write([]byte("text")); err != nil {
				t.Error(err)
			}
		}
		_ = whole.CloseWrite()
		whole.Close()
		part.Close()
	})
	client.Accept(func(_ context.Context, conn net.Conn) {
		text, err := io.ReadAll(conn)
		if string(text) != "text" {
			t.Errorf("%q came", text)
		}
		errs <- err
	})
	close(accept)
	one, other := <-errs, <-errs
	if one != nil {
		one, other = other, one
	}
	var reset *net.OpError
	if one != nil || !errors.As(other, &reset) || reset.Op != "read" || reset.Timeout() || !errors.Is(other, io.ErrUnexpectedEOF) {
		t.Errorf("reading gives %v and %v", one, other)
	}
}

func TestWhatServesAStreamEndsWithTheConnection(t *testing.T) {
	begun, ended := make(chan struct{}), false
	accept := make(chan struct{})
	client := opener(t, func(_ child, open func(uint32) *Stream) {
		<-accept
		open(1)
	})
	client.Accept(func(ctx context.Context, conn net.Conn) {
		close(begun)
		<-ctx.Done()
		if _, err := conn.Write([]byte("late")); err == nil {
			t.Error("it can be written to")
		}
		ended = true
	})
	close(accept)
	<-begun
	client.Close()
	if !ended {
		t.Error("it was not waited for")
	}
}

// Nothing bounds what a child sends but its own end of the protocol: one that does not
// keep to it costs its connection.
func TestAChildThatOpensStreamsAsItMayNotIsGivenUp(t *testing.T) {
	for name, script := range map[string]func(c child){
		"with a number of the server's": func(c child) { c.send(KindOpened, 7, []byte(nil)) },
		"without reading":               func(c child) { flood(c) },
	} {
		t.Run(name, func(t *testing.T) {
			client := dial(t, script)
			<-client.Done()
			if client.Err() == nil {
				t.Error("there is no reason")
			}
		})
	}
}

// A child knows of the end of each stream, whoever ended it: it counts them by that.
func TestAChildHearsOnceOfTheEndOfEachOfItsStreams(t *testing.T) {
	accept, ended, heard := make(chan struct{}), make(chan struct{}), make(chan uint32, 8)
	client := dial(t, func(c child) {
		<-accept
		for n := range uint32(3) {
			c.send(KindOpened, ChildStream(n), []byte(nil))
		}
		c.send(KindStreamClose, ChildStream(0), []byte(nil))
		for {
			f, err := c.Read()
			if err != nil {
				close(heard)
				return
			}
			if f.Kind == KindStreamClose {
				heard <- f.ID
			}
		}
	})
	serving := make(chan net.Conn, 3)
	client.Accept(func(_ context.Context, conn net.Conn) {
		serving <- conn
		if _, err := conn.Read(make([]byte, 1)); err == nil { // the first one's alone ends by itself
			t.Error("something came")
		}
		<-ended
		conn.Close()
	})
	close(accept)
	all := []net.Conn{<-serving, <-serving, <-serving}
	if n := client.untold.Load(); n != 3 {
		t.Errorf("%d streams count while they are served", n)
	}
	for _, conn := range all {
		_ = conn.SetReadDeadline(time.Unix(1, 0))
	}
	close(ended)
	told := map[uint32]int{}
	for range 3 {
		told[<-heard]++
	}
	client.Close()
	for id := range heard {
		told[id]++
	}
	if want := map[uint32]int{ChildStream(0): 1, ChildStream(1): 1, ChildStream(2): 1}; !maps.Equal(told, want) || client.untold.Load() != 0 {
		t.Errorf("it heard %v, and %d still count", told, client.untold.Load())
	}
}

func TestAStreamOfTheChildsCountsThereUntilTheServerHasClosedIt(t *testing.T) {
	accept, going, gone := make(chan struct{}), make(chan struct{}), make(chan struct{})
	client := dial(t, func(c child) {
		<-accept
		streams := NewStreams(c.Conn)
		s, err := streams.OpenOwn(ChildStream(1))
		if err != nil {
			t.Error(err)
			return
		}
		c.send(KindOpened, ChildStream(1), []byte(nil))
		s.Close()
		if streams.Len() != 1 {
			t.Error("it does not count")
		}
		close(going)
		for streams.Len() > 0 {
			f, err := c.Read()
			if err != nil {
				t.Error(err)
				return
			}
			if err := streams.Deliver(f); err != nil {
				t.Error(err)
			}
		}
		s.Settle()
		close(gone)
	})
	client.Accept(func(_ context.Context, conn net.Conn) {
		_, _ = conn.Write([]byte("late"))
		<-going
	})
	close(accept)
	<-gone
}

func flood(c child) {
	for n := range uint32(3 * maxServed) {
		if c.Write(KindOpened, ChildStream(n)) != nil {
			return
		}
	}
	for {
		if _, err := c.Read(); err != nil {
			return
		}
	}
}

func TestAServedStreamKeepsDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		accept, done := make(chan struct{}), make(chan struct{})
		client := opener(t, func(c child, open func(uint32) *Stream) {
			<-accept
			open(1)
			<-done
		})
		served := make(chan struct{})
		client.Accept(func(_ context.Context, conn net.Conn) {
			defer close(served)
			began := time.Now()
			passes := func(what string, after time.Duration, err error) {
				if got := time.Since(began); got != after || !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%s ended after %v: %v", what, got, err)
				}
			}
			_ = conn.SetReadDeadline(began.Add(time.Second))
			_, err := conn.Read(make([]byte, 1))
			passes("a read", time.Second, err)
			_, err = conn.Read(make([]byte, 1))
			passes("a read after that", time.Second, err)
			_ = conn.SetWriteDeadline(began.Add(2 * time.Second))
			n, err := conn.Write(make([]byte, 2*streamWindow))
			passes("a write", 2*time.Second, err)
			if n != streamWindow {
				t.Errorf("%d bytes were written", n)
			}
			_ = conn.SetDeadline(began.Add(time.Hour))
			time.AfterFunc(time.Second, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
			_, err = conn.Read(make([]byte, 1))
			passes("a read whose deadline was moved", 3*time.Second, err)
			_ = conn.SetDeadline(time.Time{})
			time.AfterFunc(time.Second, func() { conn.Close() })
			if _, err = conn.Read(make([]byte, 1)); time.Since(began) != 4*time.Second || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a closed one gives %v", err)
			}
		})
		close(accept)
		<-served
		close(done)
		client.Close()
		synctest.Wait()
	})
}

// While the child is held nobody can be told anything, and nobody waits for that.
func TestAServedStreamIsClosedWhileTheChildIsHeld(t *testing.T) {
	accept, told := make(chan struct{}), make(chan Kind, 4)
	client := dial(t, func(c child) {
		<-accept
		c.send(KindOpened, ChildStream(1), []byte(nil))
		for {
			f, err := c.Read()
			if err != nil {
				return
			}
			if f.Kind == KindHold {
				c.send(KindHeld, f.ID, StatusBody{})
			}
			told <- f.Kind
		}
	})
	conns := make(chan net.Conn)
	client.Accept(func(ctx context.Context, conn net.Conn) {
		conns <- conn
		<-ctx.Done()
	})
	close(accept)
	conn := <-conns
	err := client.Hold(t.Context(), func() error {
		if kind := <-told; kind != KindHold {
			t.Errorf("it was told %d", kind)
		}
		return errors.Join(conn.Close(), conn.Close())
	})
	if err != nil {
		t.Error(err)
	}
	if got := [3]Kind{<-told, <-told, <-told}; got != [3]Kind{KindGoOn, KindStreamEnd, KindStreamClose} {
		t.Errorf("it was told %v", got)
	}
}
