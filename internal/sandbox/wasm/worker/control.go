package worker

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"paddock/internal/sandbox"
)

// quantum is after how many loop rounds and calls a guest gives the host a
// word. CPython does 80 to 200 million a second on wazero, so that is 0.1 to
// 0.3 ms: the collector and an interrupt wait no longer than that.
const quantum = 25_000

// defaultGrace is how long a program may take to end when it is interrupted.
const defaultGrace = 100 * time.Millisecond

// errKilled unwinds a guest that has to be stopped by force.
var errKilled = errors.New("stopped by force")

// How far a run has been told to stop.
const (
	running int32 = iota
	interrupted
	killed
)

// control stops a run: gently at first, by force after the grace. begin and
// end are called by the goroutine that runs the guest, interrupt by any.
type control struct {
	level atomic.Int32 // running, interrupted or killed

	mu     sync.Mutex // guards what follows
	active bool
	cause  sandbox.Cause
	grace  time.Duration
	timer  *time.Timer
	soft   chan struct{} // closed at the interrupt: whatever waits returns
	hard   chan struct{} // closed at the kill
}

// begin starts a run that can be stopped.
func (c *control) begin(grace time.Duration) {
	if grace <= 0 {
		grace = defaultGrace
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.level.Store(running)
	c.active, c.cause, c.grace = true, 0, grace
	c.soft, c.hard = make(chan struct{}), make(chan struct{})
}

// end tells how the run was stopped, if it was: 0 when not.
func (c *control) end() sandbox.Cause {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active = false
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	c.level.Store(running)
	return c.cause
}

// interrupt stops the run because of cause; the first cause counts, and
// without a run nothing happens.
func (c *control) interrupt(cause sandbox.Cause) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.active || c.cause != 0 {
		return
	}
	c.cause = cause
	c.level.Store(interrupted)
	close(c.soft)
	hard := c.hard
	c.timer = time.AfterFunc(c.grace, func() { c.kill(hard) })
}

// kill stops by force the run whose channel hard is, unless it has ended.
func (c *control) kill(hard chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.active && c.hard == hard && c.level.Load() == interrupted {
		c.level.Store(killed)
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

// stops gives the channels of the present run; nil before the first.
func (c *control) stops() (soft, hard <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.soft, c.hard
}

// nudge sets a guest's words once. Whoever comes second finds them set. While
// it is locked the guest is told in another way.
type nudge struct {
	sync.Mutex
	done bool // guarded
}

// once tells whether it was this call that did it.
func (n *nudge) once(set func()) bool {
	n.Lock()
	defer n.Unlock()
	if n.done {
		return false
	}
	n.done = true
	set()
	return true
}

// meter counts a run's fuel. It belongs to the goroutine that runs the guest.
type meter struct {
	limit uint64 // 0: none
	used  uint64 // before the present portion
	given uint64 // the present portion
}

// portion is how much the guest may do until it ticks again.
func (m *meter) portion() int32 {
	m.given = quantum
	if m.limit > 0 && m.used < m.limit {
		m.given = min(m.given, m.limit-m.used)
	}
	return int32(m.given) - 1
}

// spend counts the present portion, left of which is what the counter says.
func (m *meter) spend(left int32) {
	m.used += uint64(int64(m.given) - 1 - int64(left))
	m.given = 0
}

func (m *meter) empty() bool { return m.limit > 0 && m.used >= m.limit }
