package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"

	"paddock/internal/sandbox"
)

// callHeader is the length of the number before what a call, or its reply, says.
const callHeader = 4

// SplitCall takes the number off the body of a call, a reply or a giveUp.
func SplitCall(body []byte) (number uint32, rest []byte, err error) {
	if len(body) < callHeader {
		return 0, nil, errors.New("a call has no number")
	}
	return binary.LittleEndian.Uint32(body), body[callHeader:], nil
}

// WriteCall sends a call, a reply or a giveUp.
func (c *Conn) WriteCall(kind Kind, id, number uint32, rest []byte) error {
	return c.Write(kind, id, binary.LittleEndian.AppendUint32(nil, number), rest)
}

// calls are what a run asks of the host, seen from the server.
type calls struct {
	in     *Instance
	answer func(context.Context, sandbox.Call) []byte
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu     sync.Mutex // guards what follows
	number int
	going  map[uint32]context.CancelFunc
	bytes  int // of the bodies of those
	over   bool
}

func newCalls(ctx context.Context, in *Instance, answer func(context.Context, sandbox.Call) []byte) *calls {
	c := &calls{in: in, answer: answer, going: map[uint32]context.CancelFunc{}}
	c.ctx, c.cancel = context.WithCancel(ctx)
	return c
}

// end gives up what is under way, and waits for it.
func (c *calls) end() {
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.cancel()
	c.work.Wait()
}

// begin answers a call in the background. An error says that the child does not keep
// to the protocol.
func (c *calls) begin(body []byte) error {
	number, rest, err := SplitCall(body)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.going[number] != nil {
		return errors.New("it gave two calls one number")
	}
	if len(c.going) >= sandbox.CallsAtOnce || c.bytes+len(rest) > sandbox.MaxCalls {
		return errors.New("it made more calls at once than it may")
	}
	c.number, c.bytes = c.number+1, c.bytes+len(rest)
	call := sandbox.Call{Number: c.number, Body: rest}
	ctx, cancel := context.WithCancel(c.ctx)
	c.going[number] = cancel
	c.work.Go(func() { c.reply(ctx, number, call) })
	return nil
}

// reply answers one call. It does not where the run was over by then, or has been
// told to stop: the answer could come before the interrupt.
func (c *calls) reply(ctx context.Context, number uint32, call sandbox.Call) {
	stopped := ctx.Err() != nil // it is called while the program cleans up
	var answer []byte
	if c.answer != nil {
		answer = c.answer(ctx, call)
	}
	if len(answer) > sandbox.MaxAnswer {
		answer = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.going[number]()
	delete(c.going, number)
	c.bytes -= len(call.Body)
	if c.over || c.ctx.Err() != nil && !stopped {
		return
	}
	if err := c.in.client.conn.WriteCall(KindReply, c.in.id, number, answer); err != nil {
		c.in.client.fail(err)
	}
}

// giveUp ends the context of a call, which is answered all the same.
func (c *calls) giveUp(body []byte) error {
	number, _, err := SplitCall(body)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel := c.going[number]; cancel != nil {
		cancel()
	}
	return nil
}
