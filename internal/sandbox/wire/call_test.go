package wire

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"paddock/internal/sandbox"
)

func number(n byte) []byte { return []byte{n, 0, 0, 0} }

func TestAChildThatCallsMoreThanItMayIsHungUpOn(t *testing.T) {
	large := make([]byte, sandbox.MaxCalls/2)
	for name, misbehave := range map[string]func(c child, id uint32) error{
		"without a number": func(c child, id uint32) error { return c.Write(KindCall, id, []byte{1, 2, 3}) },
		"with one number twice": func(c child, id uint32) error {
			return c.Write(KindCall, id, number(1)) // the second: see below
		},
		"more at once than it may": func(c child, id uint32) error {
			for n := range byte(sandbox.CallsAtOnce) {
				if err := c.Write(KindCall, id, number(2+n)); err != nil {
					return err
				}
			}
			return nil
		},
		"more bytes at once than it may": func(c child, id uint32) error {
			for n := range byte(3) {
				if err := c.Write(KindCall, id, number(2+n), large); err != nil {
					return err
				}
			}
			return nil
		},
		"and gives up without a number": func(c child, id uint32) error { return c.Write(KindGiveUp, id, []byte{1}) },
	} {
		t.Run(name, func(t *testing.T) {
			client := dial(t, func(c child) {
				id := c.started()
				c.expect(KindRun)
				_ = c.Write(KindCall, id, number(1), []byte("waits"))
				_ = misbehave(c, id) // it may be hung up on in the midst
			})
			in := start(t, client)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err := in.Run(ctx, sandbox.Command{Call: func(ctx context.Context, _ sandbox.Call) []byte {
				<-ctx.Done()
				return nil
			}})
			if err == nil || ctx.Err() != nil {
				t.Errorf("the run ended with %v", err)
			}
		})
	}
}

func TestCallsAreAnsweredUnderTheirNumbers(t *testing.T) {
	client := dial(t, func(c child) {
		id := c.started()
		c.expect(KindRun)
		_ = c.Write(KindCall, id, number(7), []byte("one"))
		first := c.expect(KindReply)
		_ = c.Write(KindGiveUp, id, number(9)) // of which nobody knows
		_ = c.Write(KindCall, id, number(7), []byte("two"))
		second := c.expect(KindReply)
		if !bytes.Equal(first.Body, append(number(7), "1 one"...)) || !bytes.Equal(second.Body, append(number(7), "2 two"...)) {
			t.Errorf("the replies are %q and %q", first.Body, second.Body)
		}
		c.send(KindDone, id, exited)
	})
	in := start(t, client)
	_, err := in.Run(t.Context(), sandbox.Command{Call: func(_ context.Context, c sandbox.Call) []byte {
		return []byte(strings.Join([]string{string(rune('0' + c.Number)), string(c.Body)}, " "))
	}})
	if err != nil {
		t.Error(err)
	}
}

// What answers a call may take its time to see that its run has ended.
func TestARunEndsWhenItsCallsHave(t *testing.T) {
	client := dial(t, func(c child) {
		id := c.started()
		for range 2 {
			c.expect(KindRun)
			_ = c.Write(KindCall, id, number(1), []byte("x"))
			c.send(KindDone, id, exited)
		}
	})
	in := start(t, client)
	for range 2 {
		ended := false
		_, err := in.Run(t.Context(), sandbox.Command{Call: func(ctx context.Context, c sandbox.Call) []byte {
			<-ctx.Done()
			ended = true // the race detector looks as well
			return []byte("too late")
		}})
		if err != nil || !ended {
			t.Errorf("it ended before its call had: %v", err)
		}
	}
}
