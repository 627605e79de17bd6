package serve

import (
	"slices"
	"sync"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
)

// Calls are what the runs of an instance ask of the host. A guest that can go on
// meanwhile begins a call and takes the reply when there is News; another one asks,
// and waits. It is safe for concurrent use.
type Calls struct {
	conn *wire.Conn
	id   uint32
	news chan struct{} // holds a token when there are replies to take

	mu      sync.Mutex    // guards what follows
	over    chan struct{} // closed when the run has ended; nil without one
	left    chan struct{} // closed when a run that was left goes on or is over; nil where none is
	number  uint32        // of the latest call, of whatever run
	waiting map[uint32]waiter
	bytes   int // of those that wait
	replies []Reply
}

// waiter is a call that was not answered yet; to is nil where the reply is taken.
type waiter struct {
	to      chan []byte
	bytes   int
	givenUp bool
}

// Reply is the host's answer to a call that was begun; without a Body nothing
// answered.
type Reply struct {
	Number uint32
	Body   []byte
}

// NewCalls makes those of instance id.
func NewCalls(conn *wire.Conn, id uint32) *Calls {
	return &Calls{conn: conn, id: id, news: make(chan struct{}, 1), waiting: map[uint32]waiter{}}
}

// Open starts a run, which may call. One that goes on waits for some calls already:
// their replies go to whoever asked, where the run was left, else Take will give them.
func (c *Calls) Open(waits []uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == nil || len(waits) == 0 {
		c.endLocked()
		c.over = make(chan struct{})
		for _, number := range waits {
			c.waiting[number] = waiter{}
			c.number = max(c.number, number)
		}
		return
	}
	close(c.left)
	c.left = nil
	for _, number := range waits {
		if _, ok := c.waiting[number]; !ok { // it was given up meanwhile
			c.waiting[number] = waiter{}
			c.giveUpLocked(number)
		}
	}
}

// Leave ends the run for now, and gives the calls that it waits for. Whoever has asked
// goes on waiting, and who asks now begins to: until Open goes on with the run, or ends
// it. Without such calls nothing is done.
func (c *Calls) Leave() (waits []uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	waits = c.waitsLocked()
	if c.over == nil || c.left != nil || len(waits) == 0 {
		return nil
	}
	for number, w := range c.waiting {
		if w.givenUp {
			delete(c.waiting, number)
			c.bytes -= w.bytes
		}
	}
	c.left = make(chan struct{})
	return waits
}

// Waits gives the calls that the run waits for, and not those that it has given up.
func (c *Calls) Waits() []uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waitsLocked()
}

func (c *Calls) waitsLocked() []uint32 {
	var all []uint32
	for number, w := range c.waiting {
		if !w.givenUp {
			all = append(all, number)
		}
	}
	slices.Sort(all)
	return all
}

// End is the end of the run: what waits is not answered any more.
func (c *Calls) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endLocked()
}

func (c *Calls) endLocked() {
	for _, ends := range []chan struct{}{c.over, c.left} {
		if ends != nil {
			close(ends)
		}
	}
	clear(c.waiting)
	c.over, c.left, c.bytes, c.replies = nil, nil, 0, nil
	select {
	case <-c.news:
	default:
	}
}

// Begin makes a call, whose reply Take will give under the number. It is false where
// nothing can be called: without a run, and where as much is under way as there may
// be (sandbox.CallsAtOnce, sandbox.MaxCalls).
func (c *Calls) Begin(body []byte) (number uint32, ok bool) {
	number, _, ok = c.begin(body, nil)
	return number, ok
}

func (c *Calls) begin(body []byte, to chan []byte) (number uint32, over <-chan struct{}, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over == nil || c.left != nil || len(c.waiting) >= sandbox.CallsAtOnce || c.bytes+len(body) > sandbox.MaxCalls {
		return 0, nil, false
	}
	c.number++
	if err := c.conn.WriteCall(wire.KindCall, c.id, c.number, body); err != nil {
		return 0, nil, false
	}
	c.waiting[c.number] = waiter{to: to, bytes: len(body)}
	c.bytes += len(body)
	return c.number, c.over, true
}

// Ask makes a call and waits for its reply. It is false when stop was closed, the run
// ended, or nothing can be called.
func (c *Calls) Ask(body []byte, stop <-chan struct{}) ([]byte, bool) { return c.Start(body, stop)() }

// Reuse takes the memory of an answer that Ask or Take gave, for another one: the caller
// has no further use for it.
func (c *Calls) Reuse(answer []byte) { c.conn.Reuse(answer) }

// Start makes a call; what it gives waits for the reply, as Ask does.
func (c *Calls) Start(body []byte, stop <-chan struct{}) (wait func() ([]byte, bool)) {
	to := make(chan []byte, 1)
	left := c.whileLeft()
	var number uint32
	var over <-chan struct{}
	var ok bool
	if left == nil {
		number, over, ok = c.begin(body, to)
	}
	return func() ([]byte, bool) {
		if left != nil {
			select {
			case <-left:
			case <-stop:
				return nil, false
			}
			number, over, ok = c.begin(body, to)
		}
		if !ok {
			return nil, false
		}
		select {
		case body := <-to:
			return body, true
		case <-stop:
			c.GiveUp(number)
			return nil, false
		case <-over:
		}
		select { // it had come before that
		case body := <-to:
			return body, true
		default:
			return nil, false
		}
	}
}

// whileLeft gives what is closed when the run that was left goes on, or is over; nil:
// none was.
func (c *Calls) whileLeft() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left
}

// GiveUp tells the host that nobody waits for a call any more. It is under way until
// it is answered.
func (c *Calls) GiveUp(number uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w, ok := c.waiting[number]; ok && c.left != nil {
		delete(c.waiting, number) // the host hears of it when the run goes on
		c.bytes -= w.bytes
	} else if ok {
		c.giveUpLocked(number)
	}
}

func (c *Calls) giveUpLocked(number uint32) {
	w := c.waiting[number]
	w.to, w.givenUp = make(chan []byte, 1), true // to nobody
	c.waiting[number] = w
	_ = c.conn.WriteCall(wire.KindGiveUp, c.id, number, nil) // else the server is gone
}

// Push is called with what comes from the server. What nobody waits for is dropped.
func (c *Calls) Push(body []byte) error {
	number, rest, err := wire.SplitCall(body)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w, ok := c.waiting[number]
	if !ok || c.left != nil { // a run that was left is told again
		return nil
	}
	delete(c.waiting, number)
	c.bytes -= w.bytes
	if w.to != nil {
		w.to <- rest
		return nil
	}
	c.replies = append(c.replies, Reply{number, rest})
	select {
	case c.news <- struct{}{}:
	default:
	}
	return nil
}

// News gets a token when there may be replies to Take.
func (c *Calls) News() <-chan struct{} { return c.news }

// Take gives the replies that came, in the order of their coming.
func (c *Calls) Take() []Reply {
	c.mu.Lock()
	defer c.mu.Unlock()
	replies := c.replies
	c.replies = nil
	return replies
}
