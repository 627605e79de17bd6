// Package hostcalls keeps the calls that one run of a program makes to the host: it has
// them answered, counts those that the background makes, and finds out when the run does
// nothing but wait for a person, so that it can be suspended.
//
// A program's calls are answered at once and independently of each other, each in a
// goroutine of its own. An answer can say that it waits for a person. When all open calls
// have waited for a while, the channel that [Calls.Begin] returned is closed: the sandbox
// may now suspend the program. [Calls.Drain] then ends the calls that wait for a person,
// and returns the reasons; the answers of all other calls are not lost.
//
// The package knows neither sessions nor tools; package session uses it in run.go.
package hostcalls

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"paddock/internal/sandbox"
)

// An Answer answers one call of a program. It calls suspend, from any goroutine until it
// returns, with the reason for which it waits for a person, and with "" when it no longer
// does. Its ctx ends because of [sandbox.ErrWaiting] when the run is suspended: then the
// call is made again, with the same number, when the run continues.
type Answer func(ctx context.Context, c sandbox.Call, suspend func(reason string)) []byte

// Calls are the calls of one run. The methods are safe for concurrent use, but one run
// uses Begin, Drain and End one after the other.
type Calls struct {
	answer     Answer
	background atomic.Int64
	changed    chan struct{} // holds a token after a call has changed its state

	mu          sync.Mutex // guards the fields below
	pending     map[int]*pendingCall
	waitInPlace func() time.Duration
	suspend     chan struct{} // closed when the program may be suspended; nil: never
	closed      bool          // suspend is
	timer       *time.Timer   // closes suspend; nil: the run does something else
	since       time.Time     // when all calls began to wait for a person; zero: they do not
}

// pendingCall is a call that is being answered.
type pendingCall struct {
	reason string // for which it waits for a person; empty: it does not
	cancel context.CancelCauseFunc
	done   chan struct{}
	over   bool   // it has its answer
	answer []byte // set before done is closed
}

// New returns the calls of a run that has made none yet.
func New(answer Answer) *Calls {
	return &Calls{answer: answer, pending: map[int]*pendingCall{}, changed: make(chan struct{}, 1)}
}

// Begin is called each time that the program begins to run or continues. It returns the
// channel that is closed when the program may be suspended. When all open calls begin to
// wait for a person, timeout is asked how long they do so before that.
func (c *Calls) Begin(timeout func() time.Duration) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waitInPlace, c.suspend, c.closed = timeout, make(chan struct{}), false
	c.updateTimerLocked()
	return c.suspend
}

// Call answers a call, as [sandbox.Command.Call] asks for. When ctx ends the call is
// cancelled and its answer awaited. When ctx ends because the program is suspended, Call
// returns at once, nil if there is no answer yet, and the call goes on for Drain.
func (c *Calls) Call(ctx context.Context, call sandbox.Call) []byte {
	one := c.start(ctx, call)
	select {
	case <-one.done:
	case <-ctx.Done():
		if context.Cause(ctx) == sandbox.ErrWaiting {
			return c.takeAnswer(call.Number)
		}
		one.cancel(context.Cause(ctx))
		<-one.done
	}
	c.remove(call.Number)
	return one.answer
}

// CountBackground counts a call that the program's runtime makes, and not a tool call.
func (c *Calls) CountBackground() { c.background.Add(1) }

// Background returns how many calls CountBackground has counted.
func (c *Calls) Background() int { return int(c.background.Load()) }

// start has a call answered in the background.
func (c *Calls) start(ctx context.Context, call sandbox.Call) *pendingCall {
	one := &pendingCall{done: make(chan struct{})}
	ctx, one.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	c.mu.Lock()
	c.pending[call.Number] = one
	c.updateTimerLocked()
	c.mu.Unlock()
	go func() {
		one.answer = c.answer(ctx, call, func(reason string) { c.setReason(one, reason) })
		one.cancel(nil)
		c.mu.Lock()
		one.over = true
		c.updateTimerLocked()
		c.mu.Unlock()
		close(one.done)
		c.notify()
	}()
	return one
}

func (c *Calls) notify() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// setReason notes for what a call waits; "": for no person.
func (c *Calls) setReason(one *pendingCall, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one.reason = reason
	c.updateTimerLocked()
	c.notify()
}

// takeAnswer returns the answer of a call and removes the call; nil: it has none yet.
func (c *Calls) takeAnswer(number int) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.pending[number]
	select {
	case <-one.done:
		delete(c.pending, number)
		return one.answer
	default:
		return nil
	}
}

func (c *Calls) remove(number int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, number)
	c.updateTimerLocked()
}

// allWaitLocked reports whether there are calls and all of them wait for a person.
func (c *Calls) allWaitLocked() bool {
	for _, one := range c.pending {
		if one.over || one.reason == "" {
			return false
		}
	}
	return len(c.pending) > 0
}

// updateTimerLocked starts the timer when all calls wait for a person, and stops it when
// they no longer do.
func (c *Calls) updateTimerLocked() {
	waits := c.allWaitLocked()
	switch {
	case !waits:
		c.since = time.Time{}
		if c.timer != nil {
			c.timer.Stop()
			c.timer = nil
		}
		return
	case c.since.IsZero():
		c.since = time.Now()
	}
	if c.timer != nil || c.suspend == nil || c.closed {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(c.waitInPlace(), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.timer == timer && !c.closed {
			c.closed, c.timer = true, nil
			close(c.suspend)
		}
	})
	c.timer = timer
}

// Drain settles the open calls of a program that was suspended: it ends those that wait
// for a person, and waits for the answers of all others, which it puts into open. It
// returns for what the ended ones waited, by their numbers; none: all calls are answered,
// or ctx has ended. waited is how long the run did nothing but wait for a person.
func (c *Calls) Drain(ctx context.Context, open []sandbox.OpenCall) (reasons map[int]string, waited time.Duration) {
	waited = c.waited()
	for {
		ending, ready := c.cancelWaiting(open)
		if ready {
			return c.collectAnswers(ending, open), waited
		}
		select {
		case <-c.changed:
		case <-ctx.Done():
			c.End(context.Cause(ctx))
			return nil, waited
		}
	}
}

// cancelWaiting ends the calls that wait for a person, and those for which the program no
// longer waits, as soon as each open one has its answer or waits for a person. It returns
// all calls, and for what they waited.
func (c *Calls) cancelWaiting(open []sandbox.OpenCall) (ending map[int]string, ready bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range open {
		if one := c.pending[call.Number]; one != nil && !one.over && one.reason == "" {
			return nil, false
		}
	}
	ending = map[int]string{}
	for number, one := range c.pending {
		ending[number] = ""
		if !one.over {
			ending[number] = one.reason
			one.cancel(sandbox.ErrWaiting)
		}
	}
	return ending, true
}

// collectAnswers waits for the calls that end, and puts in the answers of those that did
// not wait for a person.
func (c *Calls) collectAnswers(ending map[int]string, open []sandbox.OpenCall) map[int]string {
	reasons := map[int]string{}
	for k := range open {
		number := open[k].Number
		reason, there := ending[number]
		if !there {
			continue
		}
		if answer := c.await(number); reason == "" {
			open[k].Answer = answer
		} else {
			reasons[number] = reason
		}
	}
	c.End(nil)
	return reasons
}

// await waits for the answer of a call, and removes the call.
func (c *Calls) await(number int) []byte {
	c.mu.Lock()
	one := c.pending[number]
	c.mu.Unlock()
	<-one.done
	c.remove(number)
	return one.answer
}

// End cancels all calls because of why, and waits for them.
func (c *Calls) End(why error) {
	c.mu.Lock()
	all := maps.Clone(c.pending)
	c.mu.Unlock()
	for _, one := range all {
		one.cancel(why)
	}
	for number, one := range all {
		<-one.done
		c.remove(number)
	}
}

// waited returns for how long all calls have waited for a person.
func (c *Calls) waited() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() {
		return 0
	}
	return time.Since(c.since)
}
