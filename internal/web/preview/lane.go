package preview

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"paddock/internal/sandbox"
)

// lane is what a preview may take of this process.
type lane struct {
	few     chan struct{} // holds a token for each request that is under way
	bytes   atomic.Int64  // that have passed
	expires time.Time
}

// lanes are those of all previews that were opened here.
type lanes struct {
	mu  sync.Mutex
	all map[string]*lane // guarded
}

// of gives a preview's lane. Those of previews that have expired are forgotten.
func (l *lanes) of(p Preview, atOnce int) *lane {
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
		l.all = map[string]*lane{}
	}
	one := &lane{few: make(chan struct{}, atOnce), expires: p.Expires}
	l.all[p.ID] = one
	return one
}

// patience is how long a request waits for others to end.
const patience = 10 * time.Second

// enter waits until there is room for a request.
func (l *lane) enter(ctx context.Context) (leave func(), err error) {
	leave = func() { <-l.few }
	select {
	case l.few <- struct{}{}:
		return leave, nil
	default:
	}
	late := time.NewTimer(patience)
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
	lane *lane
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

// address is no real one: the connection ends inside of a sandbox.
type address struct{}

func (address) Network() string { return "session" }
func (address) String() string  { return "session" }

func (c *conn) LocalAddr() net.Addr              { return address{} }
func (c *conn) RemoteAddr() net.Addr             { return address{} }
func (c *conn) SetDeadline(time.Time) error      { return nil }
func (c *conn) SetReadDeadline(time.Time) error  { return nil }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
