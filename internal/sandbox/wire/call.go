package wire

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
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
	cancel context.CancelCauseFunc
	work   sync.WaitGroup

	mu     sync.Mutex // guards what follows
	number int
	going  map[uint32]*going
	bytes  int // of the bodies of those
	over   bool
	why    error // as the calls' ctx ends then; nil: it is cancelled
	// late are answers that were sent after the child was told to suspend the run: it
	// may have done so without them; with those that came when it had. Nil before that.
	late map[uint32]sandbox.OpenCall
}

// going is a call that was not answered yet.
type going struct {
	sandbox.Call
	cancel context.CancelFunc
}

func newCalls(ctx context.Context, in *Instance, answer func(context.Context, sandbox.Call) []byte) *calls {
	c := &calls{in: in, answer: answer, going: map[uint32]*going{}}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	return c
}

// end gives up what is under way, and waits for it.
func (c *calls) end() {
	c.mu.Lock()
	c.over = true
	why := c.why
	c.mu.Unlock()
	c.cancel(why)
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
	c.number++
	c.askLocked(number, sandbox.Call{Number: c.number, Body: rest})
	return nil
}

// askLocked has a call answered in the background.
func (c *calls) askLocked(number uint32, call sandbox.Call) {
	ctx, cancel := context.WithCancel(c.ctx)
	c.going[number] = &going{call, cancel}
	c.bytes += len(call.Body)
	c.work.Go(func() { c.reply(ctx, number, call) })
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
	c.going[number].cancel()
	if c.late != nil {
		c.late[number] = sandbox.OpenCall{Call: call, ID: number, Answer: answer}
	}
	if c.over || c.ctx.Err() != nil && !stopped {
		return // what is left of it stays as it is
	}
	delete(c.going, number)
	c.bytes -= len(call.Body)
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
	if one := c.going[number]; one != nil {
		one.cancel()
	}
	return nil
}

// suspend tells the child that it may end the run while that waits for calls.
func (c *calls) suspend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late = map[uint32]sandbox.OpenCall{}
	if err := c.in.client.conn.Write(KindSuspend, c.in.id); err != nil {
		c.in.client.fail(err)
	}
}

// left gives the calls that a run waits for which ended so, in their order, and how
// many it has made. An error says that the child does not keep to the protocol.
func (c *calls) left(waiting bool, done []byte) ([]sandbox.OpenCall, int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if !waiting {
		return nil, c.number, nil
	}
	var said DoneBody
	if err := json.Unmarshal(done, &said); err != nil || c.late == nil || len(said.Waits) == 0 {
		return nil, 0, errors.New("it suspended a run that was not to be, or for nothing")
	}
	var open []sandbox.OpenCall
	for _, id := range said.Waits {
		late, ok := c.late[id]
		if one := c.going[id]; !ok && one != nil {
			late, ok = sandbox.OpenCall{Call: one.Call, ID: id}, true
		}
		if !ok {
			return nil, 0, errors.New("a run waits for a call that it did not make")
		}
		open = append(open, late)
	}
	c.why = sandbox.ErrWaiting
	slices.SortFunc(open, func(a, b sandbox.OpenCall) int { return cmp.Compare(a.Number, b.Number) })
	return open, c.number, nil
}

// answered puts the answers in that came after a run had ended as Waiting. All calls
// have ended.
func (c *calls) answered(open []sandbox.OpenCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range open {
		open[k].Answer = c.late[open[k].ID].Answer
	}
}

// continued are the calls that a run waits for which goes on.
func (c *calls) continued(from *sandbox.Continuation) []uint32 {
	if from == nil {
		return nil
	}
	var all []uint32
	for _, one := range from.Open {
		all = append(all, one.ID)
	}
	return all
}

// reopen answers the calls of a run that goes on.
func (c *calls) reopen(from *sandbox.Continuation) {
	if from == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.number = from.Calls
	for _, one := range from.Open {
		if one.Answer == nil {
			c.askLocked(one.ID, one.Call)
		} else if err := c.in.client.conn.WriteCall(KindReply, c.in.id, one.ID, one.Answer); err != nil {
			c.in.client.fail(err)
		}
	}
}
