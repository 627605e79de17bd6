package preview

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"paddock/internal/sandbox"
	"paddock/internal/session"
)

// limiter is what a preview may take of this process.
type limiter struct {
	few     chan struct{} // holds a token for each request that is under way
	bytes   atomic.Int64  // that have passed
	expires time.Time
	owner   session.Owner
	lanes   *lanes
}

// lanes are those of all previews that were opened here.
type lanes struct {
	mu     sync.Mutex // guards what follows
	all    map[string]*limiter
	owners map[session.Owner]int // the requests under way to an owner's previews
	total  int                   // those of all owners
}

// The requests that may be under way to the previews of one owner, as a multiple of those
// to one preview, and of all owners. Each holds a connection of the server, of which there
// are 2048: who makes many previews leaves some to the others, and previews leave some to
// the API.
const (
	ofOwner = 4
	ofAll   = 16
)

// take counts a request, and reports whether there is room for it.
func (l *lanes) take(owner session.Owner, atOnce int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owners[owner] >= ofOwner*atOnce || l.total >= ofAll*atOnce {
		return false
	}
	if l.owners == nil {
		l.owners = map[session.Owner]int{}
	}
	l.owners[owner]++
	l.total++
	return true
}

func (l *lanes) give(owner session.Owner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	if l.owners[owner]--; l.owners[owner] == 0 {
		delete(l.owners, owner)
	}
}

// of gives a preview's lane. Those of previews that have expired are forgotten.
func (l *lanes) of(p Preview, atOnce int) *limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one := l.all[p.ID]; one != nil {
		return one
	}
	now := time.Now()
	for id, one := range l.all {
		if !now.Before(one.expires) {
			delete(l.all, id)
		}
	}
	if l.all == nil {
		l.all = map[string]*limiter{}
	}
	one := &limiter{few: make(chan struct{}, atOnce), expires: p.Expires, owner: p.Owner, lanes: l}
	l.all[p.ID] = one
	return one
}

// slotTimeout is how long a request waits for others to end.
const slotTimeout = 10 * time.Second

// enter waits until there is room for a request to the preview. Where its owner's previews
// or all have as many as they may, it does not wait: a request that waits holds as much as
// one that is answered.
func (l *limiter) enter(ctx context.Context) (leave func(), err error) {
	if !l.lanes.take(l.owner, cap(l.few)) {
		return nil, errCrowded
	}
	defer func() {
		if err != nil {
			l.lanes.give(l.owner)
		}
	}()
	leave = func() { <-l.few; l.lanes.give(l.owner) }
	select {
	case l.few <- struct{}{}:
		return leave, nil
	default:
	}
	late := time.NewTimer(slotTimeout)
	defer late.Stop()
	select {
	case l.few <- struct{}{}:
		return leave, nil
	case <-late.C:
		return nil, errBusy
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// conn is a connection to a session's program as net/http has them, whose bytes count.
// Its deadlines do nothing: contexts bound what is done with it.
type conn struct {
	sandbox.Stream
	lane *limiter
	most int64
}

var _ net.Conn = (*conn)(nil)

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Stream.Read(p)
	return n, c.count(n, err)
}

func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Stream.Write(p)
	return n, c.count(n, err)
}

func (c *conn) count(n int, err error) error {
	if c.lane.bytes.Add(int64(n)) > c.most && err == nil {
		return errSpent
	}
	return err
}

// address is not a real one: the connection ends inside of a sandbox.
type address struct{}

func (address) Network() string { return "session" }
func (address) String() string  { return "session" }

func (c *conn) LocalAddr() net.Addr              { return address{} }
func (c *conn) RemoteAddr() net.Addr             { return address{} }
func (c *conn) SetDeadline(time.Time) error      { return nil }
func (c *conn) SetReadDeadline(time.Time) error  { return nil }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
