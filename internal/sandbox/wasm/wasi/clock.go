package wasi

import (
	"encoding/binary"
	"io"
	"math"
	"time"
)

// The clocks.
const (
	clockReal = iota
	clockMonotonic
	clockProcess
	clockThread
	clocks
)

// now is what a clock shows, in ns.
func (s *System) now(clock uint32) (int64, errno) {
	switch clock {
	case clockReal:
		return s.config.Now().UnixNano(), success
	case clockMonotonic:
		return s.Monotonic(), success
	case clockProcess, clockThread:
		if s.config.CPU != nil {
			return int64(s.config.CPU()), success
		}
		return int64(s.since()), success
	}
	return 0, einval
}

func clockResGet(c *call) errno {
	to := c.u64At(1)
	switch {
	case c.u32(0) >= clocks:
		return einval
	case to == nil:
		return efault
	}
	to.put(1)
	return success
}

func clockTimeGet(c *call) errno {
	to := c.u64At(2)
	if to == nil {
		return efault
	}
	t, e := c.now(c.u32(0))
	if e == success {
		to.put(t)
	}
	return e
}

const (
	subscriptionSize = 48
	eventSize        = 32

	eventClock = 0
	eventRead  = 1
	eventWrite = 2
)

// pollOneoff waits for the first of several clocks, or answers at once when a
// descriptor is asked about: files and output are always ready, and so is
// input, whose read does the waiting. An interrupt ends the waiting as though
// the clock had elapsed: of an error, wasi-libc would make that there are no
// clocks.
func pollOneoff(c *call) errno {
	count := c.u32(2)
	if count == 0 || count > maxEvents {
		return einval
	}
	in, out, n := c.slice(c.u32(0), count*subscriptionSize), c.slice(c.u32(1), count*eventSize), c.u32At(3)
	if in == nil || out == nil || n == nil {
		return efault
	}
	var clock [clocks]int64 // as they were when the waiting began
	for i := range clock {
		clock[i], _ = c.now(uint32(i))
	}
	// The guest may have put the events over the subscriptions.
	asked := make([]subscription, count)
	first := int64(math.MaxInt64)
	for i := range asked {
		x, e := c.subscription(in[i*subscriptionSize:], &clock)
		if e != success {
			return e
		}
		asked[i], first = x, min(first, x.wait)
	}
	if first > 0 {
		c.sleep(time.Duration(first))
	}
	events := 0
	for _, x := range asked {
		if x.wait <= first {
			x.put(out[events*eventSize:][:eventSize])
			events++
		}
	}
	n.put(events)
	return success
}

// subscription is something that poll waits for.
type subscription struct {
	user  uint64
	kind  uint8
	e     errno
	wait  int64 // ns
	ready int64 // bytes that can be read, at least
}

// subscription reads one. What is wrong with the clock or the descriptor that
// it names is an event; one of an unknown kind fails the call.
func (c *call) subscription(b []byte, clock *[clocks]int64) (subscription, errno) {
	le := binary.LittleEndian
	x := subscription{user: le.Uint64(b), kind: b[8]}
	which := le.Uint32(b[16:])
	switch x.kind {
	case eventClock:
		if which >= clocks {
			x.e = einval
			break
		}
		x.wait = int64(min(le.Uint64(b[24:]), math.MaxInt64))
		if absolute := le.Uint16(b[40:])&1 != 0; absolute {
			x.wait = max(x.wait-clock[which], 0)
		}
	case eventRead, eventWrite:
		var d *descriptor
		d, x.e = c.get(which)
		if x.e != success {
			break
		}
		x.ready = 1
		if d.kind == file && x.kind == eventRead {
			s, e := d.body.fstat()
			x.e, x.ready = e, max(s.size-d.offset, 0)
		}
	default:
		return x, einval
	}
	return x, success
}

func (x subscription) put(b []byte) {
	clear(b)
	binary.LittleEndian.PutUint64(b, x.user)
	binary.LittleEndian.PutUint16(b[8:], uint16(x.e))
	b[10] = x.kind
	if x.kind != eventClock {
		binary.LittleEndian.PutUint64(b[16:], uint64(x.ready))
	}
}

// sleep waits for d, or until the program is interrupted.
func (s *System) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.interrupted():
	}
}

// randomGet takes the bytes in pieces, so that a guest that fills its whole
// memory can be interrupted.
func randomGet(c *call) errno {
	const piece = 1 << 20
	b := c.slice(c.u32(0), c.u32(1))
	if b == nil {
		return efault
	}
	for len(b) > piece {
		if _, err := io.ReadFull(c.config.Random, b[:piece]); err != nil {
			return eio
		}
		b = b[piece:]
		select {
		case <-c.interrupted():
			return eintr
		default:
		}
	}
	if _, err := io.ReadFull(c.config.Random, b); err != nil {
		return eio
	}
	return success
}
