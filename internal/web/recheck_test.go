package web

import (
	"bufio"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/auth"
	"paddock/internal/fault"
)

// revocable lets in whoever comes until it has a reason not to.
type revocable struct {
	until  time.Time
	reason atomic.Pointer[fault.Error]
}

func (v *revocable) Verify(context.Context, string) (*auth.Principal, error) {
	if f := v.reason.Load(); f != nil {
		return nil, f
	}
	return &auth.Principal{ID: "token:1", Name: "ann", Expires: v.until}, nil
}

func TestARevokedTokenEndsWhatItBegan(t *testing.T) {
	for _, line := range []string{"GET /mcp", "POST /mcp", "POST /api/v1/rpc"} {
		t.Run(line, func(t *testing.T) {
			k, v := &works{}, &revocable{}
			inBubble(t, Config{MCP: k, RPC: k, Verifier: v}, func(t *testing.T, s *timeless) {
				k.inside()
				c := s.dial(t)
				write(t, c, line+" "+toLocal+"Content-Length: 0\n\n")
				answer := make(chan reply, 1)
				go func() { answer <- receive(t, bufio.NewReader(c)) }()
				<-k.begun
				v.reason.Store(fault.New(fault.Unavailable, "the issuer does not answer"))
				time.Sleep(time.Hour + time.Second)
				select {
				case err := <-k.ended:
					t.Fatalf("it ended because of %v", err)
				default:
				}
				v.reason.Store(fault.New(fault.Denied, "it was revoked"))
				revoked := time.Now()
				select {
				case err := <-k.ended:
					if !errors.Is(err, errRevoked) {
						t.Errorf("after %v it ended because of %v", time.Since(revoked), err)
					}
					<-answer
				case <-time.After(recheckEvery + 1):
					t.Error("it goes on")
					c.Close()
				}
			})
		})
	}
}

func TestACallOutlivesItsToken(t *testing.T) {
	k, v := &works{}, &revocable{}
	inBubble(t, Config{MCP: k, Verifier: v}, func(t *testing.T, s *timeless) {
		k.inside()
		v.until = time.Now().Add(time.Minute)
		c := s.dial(t)
		write(t, c, "POST /mcp "+toLocal+"Content-Length: 0\n\n")
		answer := make(chan reply, 1)
		go func() { answer <- receive(t, bufio.NewReader(c)) }()
		<-k.begun
		time.Sleep(59 * time.Second)
		synctest.Wait()
		time.Sleep(2 * time.Second)
		v.reason.Store(fault.New(fault.Denied, "it has expired"))
		time.Sleep(time.Hour)
		close(k.done)
		if err := <-k.ended; err != nil {
			t.Errorf("it ended because of %v", err)
		}
		<-answer
	})
}
