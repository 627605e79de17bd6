package serve

import (
	"sync"
	"sync/atomic"
	"time"

	"paddock/internal/sandbox"
)

// Level is how far a run has been told to stop.
type Level int32

// The levels, one after the other. Without a run it is Going.
const (
	Going Level = iota
	Interrupted
	Killed
)

// Control stops a run: gently at first, by force after the grace. Between Begin
// and End there is a run; any goroutine may stop it.
//
// Lock order: Control.mu, countdown.mu.
type Control struct {
	level atomic.Int32

	mu     sync.Mutex // guards what follows
	active bool
	cause  sandbox.Cause // why it was stopped; the first one counts
	grace  time.Duration // in wall time
	until  time.Time     // when it is over, once the run was interrupted
	clock  Clock         // nil: nothing counts the run's processor time
	most   time.Duration // how much of that it may take after its interrupt
	counts [2]*countdown // of the grace, and of Bound; nil: none
	quiet  chan struct{} // closed when the run may end while it waits for calls
	soft   chan struct{} // closed at the interrupt: whatever waits returns
	hard   chan struct{} // closed at the kill
}

// Begin starts a run that can be stopped, and may go on for that long after its
// interrupt; zero or less: [sandbox.DefaultGrace]. One that was begun before and did
// not end is over with it.
func (c *Control) Begin(grace time.Duration) {
	if grace <= 0 {
		grace = sandbox.DefaultGrace
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.level.Store(int32(Going))
	c.stopCountdownsLocked()
	c.active, c.cause, c.grace, c.clock = true, 0, grace, nil
	c.quiet, c.soft, c.hard = make(chan struct{}), make(chan struct{}), make(chan struct{})
}

// Count has the run stopped by force, too, when clock has gone on by most since its
// interrupt. The clock is read until End returns. A run that was interrupted before has
// that much from now on, within its grace.
func (c *Control) Count(clock Clock, most time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.active {
		return
	}
	c.clock, c.most = clock, most
	if c.Level() == Interrupted {
		c.counts[0].stop()
		c.beginGraceLocked()
	}
}

// Bound has the run stopped by force because of cause when its clock has gone on by most
// from now on, or after so much wall time.
func (c *Control) Bound(most, wall time.Duration, cause sandbox.Cause) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.active {
		return
	}
	hard := c.hard
	c.counts[1].stop()
	c.counts[1] = startCountdown(c.clock, most, wall, func() {
		c.interrupt(cause, hard)
		c.kill(hard)
	})
}

func (c *Control) beginGraceLocked() {
	hard := c.hard
	c.counts[0] = startCountdown(c.clock, c.most, time.Until(c.until), func() { c.kill(hard) })
}

// stopCountdownsLocked ends them; their clock is not read any more.
func (c *Control) stopCountdownsLocked() {
	for n, d := range c.counts {
		d.stop()
		c.counts[n] = nil
	}
}

// Suspend lets the run end while it waits for calls.
func (c *Control) Suspend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.active && !isOver(c.quiet) {
		close(c.quiet)
	}
}

// Suspended gives a channel that is closed when the latest run may end while it waits
// for calls; nil before the first.
func (c *Control) Suspended() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.quiet
}

func isOver(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// End tells why the run was stopped; 0 when it was not.
func (c *Control) End() sandbox.Cause {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active, c.clock = false, nil
	c.stopCountdownsLocked()
	c.level.Store(int32(Going))
	return c.cause
}

// Level tells how far the run has been told to stop. It takes no lock.
func (c *Control) Level() Level { return Level(c.level.Load()) }

// Interrupt stops the run because of cause; the first cause counts, and without
// a run nothing happens.
func (c *Control) Interrupt(cause sandbox.Cause) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.interruptLocked(cause)
}

// interrupt interrupts the run whose channel hard is, unless it has ended.
func (c *Control) interrupt(cause sandbox.Cause, hard chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hard == hard {
		c.interruptLocked(cause)
	}
}

func (c *Control) interruptLocked(cause sandbox.Cause) {
	if !c.active || c.cause != 0 {
		return
	}
	c.cause = cause
	c.level.Store(int32(Interrupted))
	close(c.soft)
	c.until = time.Now().Add(c.grace)
	c.beginGraceLocked()
}

// kill stops by force the run whose channel hard is, unless it has ended.
func (c *Control) kill(hard chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.active && c.hard == hard && c.Level() == Interrupted {
		c.level.Store(int32(Killed))
		close(hard)
	}
}

// Force stops the run at once, without a grace.
func (c *Control) Force(cause sandbox.Cause) {
	c.Interrupt(cause)
	c.mu.Lock()
	hard := c.hard
	c.mu.Unlock()
	c.kill(hard)
}

// Stops gives the channels of the latest run, nil before the first: soft is closed
// when it is interrupted, hard when it is stopped by force.
func (c *Control) Stops() (soft, hard <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.soft, c.hard
}
