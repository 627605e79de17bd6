package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"paddock/internal/bindings"
	"paddock/internal/fault"
)

const (
	// DefaultIdle is how long a connection is kept unused where nothing else is
	// configured: Mayflower's number.
	DefaultIdle = 300 * time.Second
	// DefaultConcurrent is how many calls one connection carries at a time.
	DefaultConcurrent = 32
	// DefaultConns is how many connections a pool holds. A server that is a program
	// costs tens of megabytes.
	DefaultConns = 256
)

const (
	// firstBackoff and longestBackoff bound how long a server is left alone that
	// failed; it doubles with each failure in between.
	firstBackoff   = 500 * time.Millisecond
	longestBackoff = time.Minute
	// tooShort is how long a connection has to last for its end not to be a failure.
	tooShort = 10 * time.Second
)

// Key is what a connection belongs to: two callers share one if all of it is the same.
type Key struct {
	Session  string // the session whose code calls
	Server   string // which server, and which definition of it: Server.Key
	Identity string // as whom the server is spoken to; empty: as nobody
}

// PoolConfig is how a pool works.
type PoolConfig struct {
	// Dial makes a key's connection; it must not be nil. It is not called twice at a
	// time for one key.
	Dial func(context.Context, Key) (*Conn, error)
	// Idle is how long a connection is kept unused; 0: DefaultIdle. It may take a tenth longer.
	Idle time.Duration
	// Interval is how long after the beginning of one call the next of the same key
	// begins; 0: at once.
	Interval time.Duration
	// Concurrent is how many calls of a key are under way at a time, others wait;
	// 0: DefaultConcurrent.
	Concurrent int
	// Conns is how many keys there may be; 0: DefaultConns. The one that was not used
	// for longest makes room.
	Conns int
}

// Pool keeps one connection for each key, made when it is first needed and again when
// it has ended. It may be used by any number of goroutines.
type Pool struct {
	config PoolConfig
	life   context.Context // ends with Close
	end    context.CancelFunc
	tasks  sync.WaitGroup // the janitor, and connections that are being closed

	mu      sync.Mutex // guards what follows, and users and used of entries
	entries map[Key]*entry
	closed  bool
}

// entry is one key's place.
type entry struct {
	key   Key
	users int
	used  time.Time // when the last user left

	turn  chan struct{} // holds one token while a connection is made
	slots chan struct{} // one token for each call

	mu       sync.Mutex // guards what follows
	conn     *Conn
	born     time.Time
	next     time.Time // when the next call may begin
	failures int       // since the last success
	pauses   backoff.ExponentialBackOff
	rests    time.Time // until when the server is left alone
	dropped  bool
}

// NewPool makes a pool, which Close ends.
func NewPool(config PoolConfig) *Pool {
	if config.Idle <= 0 {
		config.Idle = DefaultIdle
	}
	if config.Concurrent <= 0 {
		config.Concurrent = DefaultConcurrent
	}
	if config.Conns <= 0 {
		config.Conns = DefaultConns
	}
	p := &Pool{config: config, entries: map[Key]*entry{}}
	p.life, p.end = context.WithCancel(context.Background())
	p.tasks.Go(p.tidy)
	return p
}

// tidy closes what was not used for long.
func (p *Pool) tidy() {
	ticker := time.NewTicker(max(p.config.Idle/10, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-p.life.Done():
			return
		}
		now := time.Now()
		p.drop(func(e *entry) bool { return e.users == 0 && now.Sub(e.used) >= p.config.Idle })
	}
}

// drop takes out what matches, and has it closed on the side.
func (p *Pool) drop(matches func(*entry) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, e := range p.entries {
		if matches(e) {
			delete(p.entries, key)
			p.retireLocked(e)
		}
	}
}

func (p *Pool) retireLocked(e *entry) {
	e.mu.Lock()
	conn := e.conn
	e.conn, e.dropped = nil, true
	e.mu.Unlock()
	if conn != nil {
		p.tasks.Go(func() { _ = conn.Close() })
	}
}

// Drop closes the connections whose key matches, such as those of a session that has
// ended or a server whose definition has changed. Calls that are under way fail. It
// does not wait for the ends, as Close does.
func (p *Pool) Drop(matches func(Key) bool) { p.drop(func(e *entry) bool { return matches(e.key) }) }

// Close closes everything and waits for it. Calls that are under way fail.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.end()
	p.drop(func(*entry) bool { return true })
	p.tasks.Wait()
	return nil
}

var errPoolClosed = fault.New(fault.Unavailable, "paddock is shutting down")

// enter gives a key's place; leave gives it back.
func (p *Pool) enter(key Key) (*entry, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, &Error{Server: key.Server, Reason: Closed, err: errPoolClosed}
	}
	e, ok := p.entries[key]
	if !ok {
		if len(p.entries) >= p.config.Conns && !p.makeRoomLocked() {
			f := fault.New(fault.Exhausted, "there are %d connections to servers already, and all of them are in use", p.config.Conns)
			return nil, &Error{Server: key.Server, Reason: Resting, err: f}
		}
		e = &entry{
			key: key, turn: make(chan struct{}, 1), slots: make(chan struct{}, p.config.Concurrent),
			pauses: backoff.ExponentialBackOff{InitialInterval: firstBackoff, Multiplier: 2, MaxInterval: longestBackoff},
		}
		p.entries[key] = e
	}
	e.users++
	return e, nil
}

func (p *Pool) makeRoomLocked() bool {
	var oldest *entry
	for _, e := range p.entries {
		if e.users == 0 && (oldest == nil || e.used.Before(oldest.used)) {
			oldest = e
		}
	}
	if oldest == nil {
		return false
	}
	delete(p.entries, oldest.key)
	p.retireLocked(oldest)
	return true
}

func (p *Pool) leave(e *entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e.users--
	e.used = time.Now()
}

// Call calls a tool of the key's server; see [Conn.Call]. It waits for its turn, which
// ctx bounds. A call that never reached the server is repeated once over a new
// connection. One whose outcome is unknown because the connection ended is repeated
// once if its options allow that and the tool says that it only reads or that calling
// it twice is calling it once; else it ends with an error that is Unknown.
func (p *Pool) Call(ctx context.Context, key Key, tool string, arguments json.RawMessage, o CallOptions) (Result, error) {
	e, err := p.enter(key)
	if err != nil {
		return Result{}, err
	}
	defer p.leave(e)
	select {
	case e.slots <- struct{}{}:
		defer func() { <-e.slots }()
	case <-ctx.Done():
		return Result{}, p.waited(key, tool, ctx.Err())
	}
	if err := e.pause(ctx, p.config.Interval); err != nil {
		return Result{}, p.waited(key, tool, err)
	}
	if err := o.Rate.wait(ctx); err != nil {
		return Result{}, p.waited(key, tool, err)
	}
	for again := true; ; again = false {
		conn, err := p.connection(ctx, e)
		if err != nil {
			return Result{}, err
		}
		calling := ctx
		if o.Life != nil {
			if err := ctx.Err(); err != nil {
				return Result{}, p.waited(key, tool, err)
			}
			calling = o.Life
		}
		result, err := conn.Call(calling, tool, arguments, o)
		if err == nil {
			e.succeeded()
			return result, nil
		}
		if !again || ctx.Err() != nil || p.life.Err() != nil || !repeatable(conn, tool, err, o) {
			return Result{}, err
		}
	}
}

// waited is the error of who did not wait for his turn.
func (p *Pool) waited(key Key, tool string, err error) error {
	return report(Server{Name: key.Server}, tool, "", asProblem(err, false))
}

// pause waits until the next call may begin.
func (e *entry) pause(ctx context.Context, interval time.Duration) error {
	if interval <= 0 {
		return ctx.Err()
	}
	e.mu.Lock()
	now := time.Now()
	at := e.next
	if at.Before(now) {
		at = now
	}
	e.next = at.Add(interval)
	e.mu.Unlock()
	timer := time.NewTimer(at.Sub(now))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// repeatable tells whether a call may be made again after err.
func repeatable(conn *Conn, tool string, err error, o CallOptions) bool {
	var e *Error
	if !errors.As(err, &e) || e.Reason != Closed && e.Reason != SessionGone && e.Reason != Unreachable {
		return false
	}
	if !e.Sent {
		return e.Reason != Unreachable // it was tried just now
	}
	if !e.Unknown() || !o.Repeatable {
		return false
	}
	conn.list.mu.Lock()
	defer conn.list.mu.Unlock()
	i := slices.IndexFunc(conn.list.tools, func(t bindings.Tool) bool { return t.Name == tool })
	if i < 0 {
		return false
	}
	a := conn.list.tools[i].Annotations
	return a.ReadOnly != nil && *a.ReadOnly || a.Idempotent != nil && *a.Idempotent
}

// Tools gives the tools of the key's server; see [Conn.Tools].
func (p *Pool) Tools(ctx context.Context, key Key) ([]bindings.Tool, error) {
	l, err := p.List(ctx, key)
	return l.Tools, err
}

// List gives the same as [Pool.Tools], and how long it is good for.
func (p *Pool) List(ctx context.Context, key Key) (Listing, error) {
	e, err := p.enter(key)
	if err != nil {
		return Listing{}, err
	}
	defer p.leave(e)
	for again := true; ; again = false {
		conn, err := p.connection(ctx, e)
		if err != nil {
			return Listing{}, err
		}
		l, err := conn.List(ctx)
		if err == nil {
			e.succeeded()
			return l, nil
		}
		if reason := ReasonOf(err); !again || ctx.Err() != nil || p.life.Err() != nil || reason != Closed && reason != SessionGone {
			return Listing{}, err
		}
	}
}

// Info tells about the key's server, once it is connected to.
func (p *Pool) Info(ctx context.Context, key Key) (Info, error) {
	e, err := p.enter(key)
	if err != nil {
		return Info{}, err
	}
	defer p.leave(e)
	conn, err := p.connection(ctx, e)
	if err != nil {
		return Info{}, err
	}
	return conn.Info(), nil
}

// connection gives a key's connection, which may end at any moment, and makes it if
// there is none.
func (p *Pool) connection(ctx context.Context, e *entry) (*Conn, error) {
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return nil, p.waited(e.key, "", ctx.Err())
	}
	if conn := p.living(e); conn != nil {
		return conn, nil
	}
	if err := e.rested(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.life, cancel)()
	conn, err := p.config.Dial(ctx, e.key)
	if err != nil {
		if ctx.Err() == nil && ReasonOf(err) != Unauthorized {
			e.failed()
		}
		return nil, err
	}
	e.mu.Lock()
	dropped := e.dropped
	if !dropped {
		e.conn, e.born = conn, time.Now()
	}
	e.mu.Unlock()
	if dropped {
		_ = conn.Close()
		return nil, p.waited(e.key, "", newProblem(Closed, false, errClosed, "the connection was closed"))
	}
	return conn, nil
}

// living gives the connection if it has not ended, and puts it away if it has.
func (p *Pool) living(e *entry) *Conn {
	e.mu.Lock()
	conn, age := e.conn, time.Since(e.born)
	e.mu.Unlock()
	if conn == nil {
		return nil
	}
	select {
	case <-conn.Done():
	default:
		return conn
	}
	e.mu.Lock()
	mine := e.conn == conn
	e.conn = nil
	e.mu.Unlock()
	if !mine {
		return nil // it was dropped, and is being closed
	}
	_ = conn.Close() // it has ended, so that this takes no time
	if age < tooShort && ReasonOf(conn.Err()) != SessionGone {
		e.failed()
	}
	return nil
}

func (e *entry) failed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failures++
	if e.failures > 1 { // the first one is free: servers are restarted
		e.rests = time.Now().Add(e.pauses.NextBackOff())
	}
}

func (e *entry) succeeded() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failures = 0
	e.pauses.Reset()
}

// rested tells whether the server may be bothered again.
func (e *entry) rested() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	left := time.Until(e.rests)
	if left <= 0 {
		return nil
	}
	f := fault.New(fault.Unavailable, "the server has failed %d times in a row and is left alone for a while", e.failures)
	f.RetryAfter = left
	return &Error{Server: e.key.Server, Reason: Resting, err: f}
}
