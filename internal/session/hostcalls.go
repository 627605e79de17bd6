package session

import (
	"context"
	"sync"
	"time"

	"paddock/internal/sandbox"
)

// ErrSuspended is why the ctx of a call ends that waits for a person when its run is
// suspended: it will be asked again, with the same number. See [Run.Suspend].
var ErrSuspended = sandbox.ErrWaiting

// hostCalls is the calls of a program that is going on. It knows when all that those do
// is wait for a person.
type hostCalls struct {
	// answer is what answers; suspend is the call's Run.Suspend.
	answer func(ctx context.Context, c sandbox.Call, suspend func(reason string)) []byte

	mu          sync.Mutex // guards what follows
	pending     map[int]*pendingCall
	waitInPlace func() time.Duration
	suspend     chan struct{} // closed when the program may be left; nil: never
	closed      bool
	timer       *time.Timer   // until then; nil: something else is done
	since       time.Time     // when all began to wait for a person; zero: they do not
	changed     chan struct{} // holds a token when a work is another one now
}

// pendingCall is a call that somebody answers.
type pendingCall struct {
	reason string // why it waits for a person; empty: it does not
	cancel context.CancelCauseFunc
	done   chan struct{}
	over   bool
	answer []byte // belongs to who has seen done
}

// next gives what tells the sandbox that the program may be left, of which nobody has
// been told before; timeout tells, when it begins to wait, how long it does so in place.
func (a *hostCalls) next(timeout func() time.Duration) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waitInPlace, a.suspend, a.closed = timeout, make(chan struct{}), false
	a.updateTimerLocked()
	return a.suspend
}

// call answers a call; see sandbox.Command. What was begun ends with it, unless the
// program is left: then it is settle's.
func (a *hostCalls) call(ctx context.Context, c sandbox.Call) []byte {
	one := a.start(ctx, c)
	select {
	case <-one.done:
	case <-ctx.Done():
		if context.Cause(ctx) == sandbox.ErrWaiting {
			return a.takeAnswer(c.Number)
		}
		one.cancel(context.Cause(ctx))
		<-one.done
	}
	a.forget(c.Number)
	return one.answer
}

// start has somebody answer a call, in the background.
func (a *hostCalls) start(ctx context.Context, c sandbox.Call) *pendingCall {
	one := &pendingCall{done: make(chan struct{})}
	ctx, one.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	a.mu.Lock()
	a.pending[c.Number] = one
	a.updateTimerLocked()
	a.mu.Unlock()
	go func() {
		one.answer = a.answer(ctx, c, func(reason string) { a.mark(one, reason) })
		one.cancel(nil)
		a.mu.Lock()
		one.over = true
		a.updateTimerLocked()
		a.mu.Unlock()
		close(one.done)
		a.notify()
	}()
	return one
}

func (a *hostCalls) notify() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// mark says for what a call waits.
func (a *hostCalls) mark(one *pendingCall, reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	one.reason = reason
	a.updateTimerLocked()
	a.notify()
}

// takeAnswer gives the answer of a call that came in time, and forgets it; nil: there is none yet.
func (a *hostCalls) takeAnswer(number int) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.pending[number]
	select {
	case <-one.done:
		delete(a.pending, number)
		return one.answer
	default:
		return nil
	}
}

func (a *hostCalls) forget(number int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pending, number)
	a.updateTimerLocked()
}

// waitsLocked tells whether all calls wait for a person.
func (a *hostCalls) waitsLocked() bool {
	for _, one := range a.pending {
		if one.over || one.reason == "" {
			return false
		}
	}
	return len(a.pending) > 0
}

// updateTimerLocked begins or ends the timeout.
func (a *hostCalls) updateTimerLocked() {
	waits := a.waitsLocked()
	switch {
	case !waits:
		a.since = time.Time{}
		if a.timer != nil {
			a.timer.Stop()
			a.timer = nil
		}
		return
	case a.since.IsZero():
		a.since = time.Now()
	}
	if a.timer != nil || a.suspend == nil || a.closed {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(a.waitInPlace(), func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.timer == timer && !a.closed {
			a.closed, a.timer = true, nil
			close(a.suspend)
		}
	})
	a.timer = timer
}

// drain deals with the calls for which a program waits that was left: those that wait
// for a person end, and of the others the answers are put in when they have come. It
// gives for what the program waits, by the calls' numbers; nothing: all is answered, or
// ctx has ended. How long it did nothing but wait for a person is given as well.
func (a *hostCalls) drain(ctx context.Context, open []sandbox.OpenCall) (reasons map[int]string, waited time.Duration) {
	waited = a.waited()
	for {
		ending, ready := a.cancelApprovals(open)
		if ready {
			return a.collectAnswers(ending, open), waited
		}
		select {
		case <-a.changed:
		case <-ctx.Done():
			a.end(context.Cause(ctx))
			return nil, waited
		}
	}
}

// cancelApprovals ends the calls that wait for a person, and those for which nobody waits, when
// nobody is at work for one that is open. It gives all that there are, and for what
// they waited.
func (a *hostCalls) cancelApprovals(open []sandbox.OpenCall) (ending map[int]string, ready bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range open {
		if one := a.pending[c.Number]; one != nil && !one.over && one.reason == "" {
			return nil, false
		}
	}
	ending = map[int]string{}
	for number, one := range a.pending {
		ending[number] = ""
		if !one.over {
			ending[number] = one.reason
			one.cancel(ErrSuspended)
		}
	}
	return ending, true
}

// collectAnswers waits for calls that end, and puts the answers in of those that did not wait
// for a person.
func (a *hostCalls) collectAnswers(ending map[int]string, open []sandbox.OpenCall) map[int]string {
	reasons := map[int]string{}
	for k := range open {
		number := open[k].Number
		reason, there := ending[number]
		if !there {
			continue
		}
		if answer := a.finish(number); reason == "" {
			open[k].Answer = answer
		} else {
			reasons[number] = reason
		}
	}
	a.end(nil)
	return reasons
}

// finish waits for a call, and forgets it.
func (a *hostCalls) finish(number int) []byte {
	a.mu.Lock()
	one := a.pending[number]
	a.mu.Unlock()
	<-one.done
	a.forget(number)
	return one.answer
}

// end ends the calls that there are, and waits for them.
func (a *hostCalls) end(why error) {
	a.mu.Lock()
	var all []int
	for number, one := range a.pending {
		one.cancel(why)
		all = append(all, number)
	}
	a.mu.Unlock()
	for _, number := range all {
		a.finish(number)
	}
}

// waited is for how long all calls have waited for a person.
func (a *hostCalls) waited() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.since.IsZero() {
		return 0
	}
	return time.Since(a.since)
}
