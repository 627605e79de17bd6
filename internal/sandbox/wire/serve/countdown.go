package serve

import (
	"sync"
	"time"
)

// Clock tells how much processor time a program has taken, since whenever. It need not
// be the only one of its program's, and may be read from any goroutine.
type Clock func() time.Duration

// leastLook is how soon a countdown looks at its clock again: a program that is about to
// use its time up may be asleep.
const leastLook = 5 * time.Millisecond

// countdown calls over, once, when its clock has gone on by most, or after so much wall
// time. Without a clock it is the wall time.
type countdown struct {
	clock Clock // nil: none
	from  time.Duration
	most  time.Duration
	until time.Time
	over  func()

	mu    sync.Mutex // guards what follows; the clock is read under it
	timer *time.Timer
	ended bool // it is over, or was stopped
}

func startCountdown(clock Clock, most, wall time.Duration, over func()) *countdown {
	c := &countdown{clock: clock, most: most, until: time.Now().Add(wall), over: over}
	c.mu.Lock()
	defer c.mu.Unlock()
	if clock != nil {
		c.from = clock()
	}
	c.timer = time.AfterFunc(c.leftLocked(), c.look)
	return c
}

// leftLocked is the wall time that passes at least until it is over: a program of one
// thread takes no more processor time than that.
func (c *countdown) leftLocked() time.Duration {
	left := time.Until(c.until)
	if c.clock == nil {
		return left
	}
	return min(left, c.most-(c.clock()-c.from))
}

func (c *countdown) look() {
	if c.isOver() {
		c.over()
	}
}

// isOver reports whether it is over now; if it is not, it looks again.
func (c *countdown) isOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	left := c.leftLocked()
	if left > 0 {
		c.timer.Reset(max(left, min(leastLook, time.Until(c.until))))
		return false
	}
	c.ended = true
	return true
}

// stop ends it, if there is one. Its clock is not read any more; over may be running
// still.
func (c *countdown) stop() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.timer.Stop()
}
