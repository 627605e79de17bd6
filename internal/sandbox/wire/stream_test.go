package wire

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"paddock/internal/fault"
)

// listener dials a client to a child whose streams serve is called with, each in
// a goroutine of its own; port 1 is refused, and port 2 never answered.
func listener(t *testing.T, serve func(*Stream)) *Client {
	return dial(t, func(c child) {
		streams := NewStreams(c.Conn)
		var all sync.WaitGroup
		defer all.Wait()
		defer streams.End(io.ErrClosedPipe)
		for {
			f, err := c.Read()
			if err != nil {
				return
			}
			if f.Kind != KindDial {
				if err := streams.Deliver(f); err != nil {
					t.Error(err)
				}
				continue
			}
			s, err := streams.Open(f.ID)
			if err != nil {
				t.Error(err)
				return
			}
			all.Go(func() {
				defer s.Close()
				switch string(f.Body) {
				case `{"port":1}`:
					c.send(KindDialed, f.ID, ErrorBody(fault.New(fault.Unavailable, "nobody listens")))
				case `{"port":2}`:
					_, _ = io.Copy(io.Discard, s) // until it is given up
				default:
					c.send(KindDialed, f.ID, StatusBody{})
					serve(s)
				}
			})
		}
	})
}

// echo sends back what it reads.
func echo(s *Stream) {
	_, _ = io.Copy(s, s)
	_ = s.CloseWrite()
}

func TestAStreamCarriesMoreThanItsWindowBothWays(t *testing.T) {
	client := listener(t, echo)
	var all sync.WaitGroup
	defer all.Wait()
	for n := range 8 {
		all.Go(func() {
			s, err := client.Dial(t.Context(), uint16(80+n))
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			data := make([]byte, 5*streamWindow+n)
			random := rand.NewChaCha8([32]byte{byte(n)})
			_, _ = random.Read(data)
			go func() {
				if _, err := s.Write(data); err != nil {
					t.Error(err)
				}
				if err := s.CloseWrite(); err != nil {
					t.Error(err)
				}
			}()
			sum := sha256.New()
			if got, err := io.Copy(sum, s); err != nil || got != int64(len(data)) || !bytes.Equal(sum.Sum(nil), digest(data)) {
				t.Errorf("%d bytes of %d came back, %v", got, len(data), err)
			}
		})
	}
}

func digest(data []byte) []byte {
	sum := sha256.Sum256(data)
	return sum[:]
}

func TestAStreamWhoseOtherEndDoesNotReadWaitsAndIsEndedByClosing(t *testing.T) {
	hold := make(chan struct{})
	client := listener(t, func(*Stream) { <-hold })
	defer close(hold)
	s, err := client.Dial(t.Context(), 80)
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan int, 1)
	go func() {
		n, err := s.Write(make([]byte, 2*streamWindow))
		if err == nil {
			t.Error("more than the window was taken")
		}
		written <- n
	}()
	for { // until all that may be under way is
		s.mu.Lock()
		room := s.credit
		s.mu.Unlock()
		if room == 0 {
			break
		}
		runtime.Gosched()
	}
	s.Close()
	if n := <-written; n != streamWindow {
		t.Errorf("%d bytes were sent", n)
	}
	if client.streams.Len() != 0 {
		t.Error("a closed stream is still counted")
	}
}

func TestWhatWasSentBeforeTheOtherEndClosedArrives(t *testing.T) {
	client := listener(t, func(s *Stream) {
		_, _ = s.Write([]byte("last words"))
		_ = s.CloseWrite()
	})
	s, err := client.Dial(t.Context(), 80)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := io.ReadAll(s); string(all) != "last words" || err != nil {
		t.Errorf("%q, %v", all, err)
	}
	for !s.Over() {
		runtime.Gosched()
	}
	if _, err := s.Write([]byte("x")); err == nil {
		t.Error("it can still be written to")
	}
	if client.streams.Len() != 0 {
		t.Error("it is still counted")
	}
}

// What has no other end than the connection's, such as an answer of HTTP without a length,
// would look whole.
func TestAStreamThatIsCutOffDoesNotLookWhole(t *testing.T) {
	gone := errors.New("the machine is gone")
	for name, end := range map[string]struct {
		child  func(*Stream)
		server func(*Client)
		wraps  error
	}{
		"as the other end closes it": {func(s *Stream) { s.Close() }, func(*Client) {}, errStreamReset},
		"as the connection is lost":  {func(s *Stream) { s.all.conn.Close() }, func(*Client) {}, io.ErrUnexpectedEOF},
		"as all are cut":             {func(s *Stream) { s.Wait() }, func(c *Client) { c.streams.Cut(gone) }, gone},
		"as all are ended":           {func(s *Stream) { s.Wait() }, func(c *Client) { c.streams.End(gone) }, gone},
		"as the client is closed":    {func(s *Stream) { s.Wait() }, func(c *Client) { c.Close() }, io.ErrUnexpectedEOF},
	} {
		for _, ended := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ended), func(t *testing.T) {
				read := make(chan struct{})
				client := listener(t, func(s *Stream) {
					_, _ = s.Write([]byte("last words"))
					if ended {
						_ = s.CloseWrite()
					}
					<-read
					end.child(s)
				})
				s, err := client.Dial(t.Context(), 80)
				if err != nil {
					t.Fatal(err)
				}
				for { // until the words have come, and maybe that there are no more
					s.mu.Lock()
					come := len(s.in) > 0 && s.ended == ended
					s.mu.Unlock()
					if come {
						break
					}
					runtime.Gosched()
				}
				close(read)
				end.server(client)
				s.Wait()
				all, err := io.ReadAll(s)
				cut := errors.Is(err, io.ErrUnexpectedEOF) && errors.Is(err, end.wraps)
				if string(all) != "last words" || cut == ended || ended && err != nil {
					t.Errorf("it gives %q, %v", all, err)
				}
			})
		}
	}
}

func TestADialThatIsRefusedOrGivenUpLeavesNothing(t *testing.T) {
	client := listener(t, echo)
	if _, err := client.Dial(t.Context(), 1); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("where nobody listens it is %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client.Dial(ctx, 2); err == nil {
		t.Error("what is given up is there")
	}
	if client.streams.Len() != 0 {
		t.Errorf("%d streams are left", client.streams.Len())
	}
	s, err := client.Dial(t.Context(), 80)
	if err != nil {
		t.Fatal(err)
	}
	client.Close()
	if _, err := s.Read(make([]byte, 1)); !errors.Is(err, io.ErrUnexpectedEOF) || fault.KindOf(err) != fault.Unavailable {
		t.Errorf("after the connection's end reading gives %v", err)
	}
	if _, err := client.Dial(t.Context(), 80); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("after the connection's end dialling gives %v", err)
	}
}

func TestAChildThatSendsMoreIntoAStreamThanItMayIsCutOff(t *testing.T) {
	dialled := make(chan struct{})
	client := dial(t, func(c child) {
		id := c.expect(KindDial).ID
		c.send(KindDialed, id, StatusBody{})
		<-dialled
		for range streamWindow/streamPiece + 1 {
			c.send(KindStreamData, id, make([]byte, streamPiece))
		}
	})
	_, err := client.Dial(t.Context(), 80)
	close(dialled)
	if err != nil {
		t.Fatal(err)
	}
	<-client.Done()
}
