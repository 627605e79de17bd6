package agent

import (
	"bufio"
	"os"
	"sync"
	"sync/atomic"

	"paddock/internal/sandbox"
)

// caller has the host answer what a kernel's programs ask of it, over a socket of its
// own. As many calls are under way as may be; a kernel that sends more waits.
type caller struct {
	channel *channel
	socket  *os.File
	room    chan struct{} // holds a token for each call under way

	refuses atomic.Bool // nothing is called: a program is given up

	writing sync.Mutex

	mu    sync.Mutex               // guards what follows
	going map[uint32]chan struct{} // closed when nobody waits for a call any more
}

func newCaller(c *channel, s *os.File) *caller {
	return &caller{channel: c, socket: s, room: make(chan struct{}, sandbox.CallsAtOnce), going: map[uint32]chan struct{}{}}
}

// read takes calls until the socket ends; errBroken is for what makes no sense.
func (c *caller) read() error {
	in := bufio.NewReaderSize(c.socket, readAhead)
	for {
		kind, number, body, err := readFrame(in, mostOfCalls)
		if err != nil {
			return err
		}
		if kind == frameGiveUp {
			c.forget(number, true)
			continue
		}
		select {
		case c.room <- struct{}{}:
		case <-c.channel.gone:
			return os.ErrClosed
		}
		stop := c.remember(number)
		if stop == nil {
			return errBroken
		}
		wait := func() ([]byte, bool) { return nil, false }
		if !c.refuses.Load() {
			wait = c.channel.calls.Start(body, stop) // here, for their order
		}
		c.channel.work.Go(func() { c.answer(number, wait) })
	}
}

// answer ends at the latest with the run, whose calls they are; where that is left as
// it waits, so is the call.
func (c *caller) answer(number uint32, wait func() ([]byte, bool)) {
	answer, _ := wait()
	c.forget(number, false)
	<-c.room
	c.write(frame(frameReply, number, answer))
}

func (c *caller) write(frame []byte) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if _, err := c.socket.Write(frame); err != nil {
		c.channel.fail(err)
	}
}

// remember gives what is closed when a call is given up; nil: the number is taken.
func (c *caller) remember(number uint32) chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.going[number] != nil {
		return nil
	}
	c.going[number] = make(chan struct{})
	return c.going[number]
}

func (c *caller) forget(number uint32, stop bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if going := c.going[number]; going != nil && stop {
		close(going)
	}
	delete(c.going, number)
}
