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
type Control struct {
	level atomic.Int32

	mu     sync.Mutex // guards what follows
	active bool
	cause  sandbox.Cause // why it was stopped; the first one counts
	grace  time.Duration
	timer  *time.Timer
	quiet  chan struct{} // closed when the run may end while it waits for calls
	soft   chan struct{} // closed at the interrupt: whatever waits returns
	hard   chan struct{} // closed at the kill
}

// Begin starts a run that can be stopped. One that was begun before and did not
// end is over with it.
func (c *Control) Begin(grace time.Duration) {
	if grace <= 0 {
		grace = sandbox.DefaultGrace
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.level.Store(int32(Going))
	c.active, c.cause, c.grace = true, 0, grace
	c.quiet, c.soft, c.hard = make(chan struct{}), make(chan struct{}), make(chan struct{})
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
	c.active = false
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
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
	if !c.active || c.cause != 0 {
		return
	}
	c.cause = cause
	c.level.Store(int32(Interrupted))
	close(c.soft)
	hard := c.hard
	c.timer = time.AfterFunc(c.grace, func() { c.kill(hard) })
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
