package wasi

import (
	"encoding/binary"
	"math"
	"time"
)

const (
	clockRealtime  = 0
	clockMonotonic = 1
)

// now is what a clock shows, in ns.
func (s *System) now(clock uint32) (int64, errno) {
	switch clock {
	case clockRealtime:
		return time.Now().UnixNano(), success
	case clockMonotonic, 2, 3: // CPU time: nearest is the time since the start
		return s.Monotonic(), success
	}
	return 0, einval
}

func clockRes(c *call) errno {
	if _, e := c.now(c.u32(0)); e != success {
		return e
	}
	c.put64(c.u32(1), 1)
	return success
}

func clockTime(c *call) errno {
	t, e := c.now(c.u32(0))
	if e == success {
		c.put64(c.u32(2), uint64(t))
	}
	return e
}

// event is one answer of poll.
type event struct {
	user  uint64
	error errno
	kind  uint8
}

// poll waits for the first of several clocks, or answers at once when there
// is a descriptor among the subscriptions: files and output are always ready,
// and so is input, whose read waits by itself.
func poll(c *call) errno {
	n := c.u32(2)
	if n == 0 || n > maxEvents {
		return einval
	}
	subscriptions := c.bytes(c.u32(0), 48*n)
	room := c.bytes(c.u32(1), 32*n)
	if c.fault || c.bytes(c.u32(3), 4) == nil {
		return efault
	}
	var ready, timers []event
	first := int64(math.MaxInt64)
	for i := range n {
		s := subscriptions[48*i : 48*i+48]
		x := event{user: binary.LittleEndian.Uint64(s), kind: s[8]}
		switch s[8] {
		case 0:
			wait, e := c.clockWait(s)
			x.error = e
			switch {
			case e != success:
				ready = append(ready, x)
			case wait < first:
				first, timers = wait, []event{x}
			case wait == first:
				timers = append(timers, x)
			}
		case 1, 2:
			_, x.error = c.get(binary.LittleEndian.Uint32(s[16:]))
			ready = append(ready, x)
		default:
			return einval
		}
	}
	if len(ready) == 0 || first <= 0 {
		if len(ready) == 0 && !c.sleep(time.Duration(first)) {
			return eintr
		}
		ready = append(ready, timers...)
	}
	for i, x := range ready {
		b := room[32*i : 32*i+32]
		clear(b)
		binary.LittleEndian.PutUint64(b, x.user)
		binary.LittleEndian.PutUint16(b[8:], uint16(x.error))
		b[10] = x.kind
	}
	c.put32(c.u32(3), uint32(len(ready)))
	return success
}

// clockWait is how long a clock's subscription has to wait.
func (c *call) clockWait(s []byte) (int64, errno) {
	clock, timeout := binary.LittleEndian.Uint32(s[16:]), binary.LittleEndian.Uint64(s[24:])
	now, e := c.now(clock)
	wait := int64(min(timeout, math.MaxInt64))
	if binary.LittleEndian.Uint16(s[40:])&1 != 0 { // an absolute time
		wait -= now
	}
	return wait, e
}

// sleep tells whether it slept to the end.
func (c *call) sleep(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	var interrupted <-chan struct{}
	if c.config.Interrupted != nil {
		interrupted = c.config.Interrupted()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-interrupted:
		return false
	}
}
