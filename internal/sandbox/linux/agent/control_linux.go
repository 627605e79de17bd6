package agent

import (
	"sync"
	"time"

	"paddock/internal/sandbox"
)

// defaultGrace is how long a program may take to end when it is interrupted.
const defaultGrace = 100 * time.Millisecond

// control stops a run: gently at first, by force after the grace. Between begin
// and end there is a run; any goroutine may interrupt it.
type control struct {
	mu      sync.Mutex // guards what follows
	running bool
	cause   sandbox.Cause // why it was interrupted; the first one counts
	grace   time.Duration
	timer   *time.Timer
	soft    chan struct{} // closed at the interrupt: whatever waits returns
	hard    chan struct{} // closed when it has to be stopped by force
}

// begin starts a run that can be stopped. One that has begun and not ended is
// the same.
func (c *control) begin(grace time.Duration) {
	if grace <= 0 {
		grace = defaultGrace
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running, c.cause, c.grace = true, 0, grace
	c.soft, c.hard = make(chan struct{}), make(chan struct{})
}

// end tells why the run was interrupted; 0 when it was not.
func (c *control) end() sandbox.Cause {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = false
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	return c.cause
}

// interrupt stops the run; without one nothing happens.
func (c *control) interrupt(cause sandbox.Cause) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running || c.cause != 0 {
		return
	}
	c.cause = cause
	close(c.soft)
	hard := c.hard
	c.timer = time.AfterFunc(c.grace, func() { c.kill(hard) })
}

// kill stops by force the run whose channel hard is, unless it has ended.
func (c *control) kill(hard chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running && c.hard == hard && !isClosed(hard) {
		close(hard)
	}
}

// force stops the run at once, without a grace.
func (c *control) force(cause sandbox.Cause) {
	c.interrupt(cause)
	c.mu.Lock()
	hard := c.hard
	c.mu.Unlock()
	c.kill(hard)
}

// stops gives the channels of the run; nil before the first.
func (c *control) stops() (soft, hard chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.soft, c.hard
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
