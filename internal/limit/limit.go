// Package limit shares a host out among its principals: how many requests each
// may make in a while, how many may be in hand, how many programs run at once,
// and who comes next when not all can.
//
// Executions wait in one line for each principal, and the lines take turns: a
// principal who asks for a thousand waits behind their own, and the next one
// to come is served after at most one of theirs. Principals whose programs are
// brief come before those whose programs run for long.
package limit

import (
	"cmp"
	"container/list"
	"errors"
	"runtime"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"paddock/internal/fault"
)

// Config sets a Gate up. It is copied. A zero is the default, never "no limit".
type Config struct {
	// Requests are how many a principal may make in a Window, and how many at
	// once after a rest; TotalRequests those of all together. Zero: 6000 and ten
	// times Requests; Window: a minute.
	Requests, TotalRequests int
	Window                  time.Duration
	// Concurrent is how many requests of a principal may be in hand,
	// TotalConcurrent of all; zero: 64 and eight times Concurrent.
	Concurrent, TotalConcurrent int
	// Streams is how many streams a principal may listen to, TotalStreams all
	// together; zero: 256 and four times Streams. They are no requests in hand:
	// a client that only listens keeps none of its calls out.
	Streams, TotalStreams int
	// Executions is how many programs of a principal run at once,
	// TotalExecutions of all. Zero: half of the total, so that nobody alone can
	// make all others wait; the total: two for each CPU, and two at least. A quarter
	// of the total is for principals whose programs are brief.
	Executions, TotalExecutions int
	// Queue is how many executions of a principal may wait, TotalQueue of all;
	// zero: 256 and eight times Queue.
	Queue, TotalQueue int
	// Wait is how long one may wait; zero: a minute.
	Wait time.Duration
}

// complete puts the defaults in.
func (c *Config) complete() error {
	for _, n := range []int{c.Requests, c.TotalRequests, c.Concurrent, c.TotalConcurrent, c.Streams, c.TotalStreams, c.Executions, c.TotalExecutions, c.Queue, c.TotalQueue, int(c.Window), int(c.Wait)} {
		if n < 0 {
			return errors.New("limit: limits are not negative")
		}
	}
	c.Requests = cmp.Or(c.Requests, 6000)
	c.TotalRequests = cmp.Or(c.TotalRequests, 10*c.Requests)
	c.Window = cmp.Or(c.Window, time.Minute)
	c.Concurrent = cmp.Or(c.Concurrent, 64)
	c.TotalConcurrent = cmp.Or(c.TotalConcurrent, 8*c.Concurrent)
	c.Streams = cmp.Or(c.Streams, 256)
	c.TotalStreams = cmp.Or(c.TotalStreams, 4*c.Streams)
	c.TotalExecutions = cmp.Or(c.TotalExecutions, max(2, 2*runtime.NumCPU()))
	c.Executions = cmp.Or(c.Executions, max(1, c.TotalExecutions/2))
	c.Queue = cmp.Or(c.Queue, 256)
	c.TotalQueue = cmp.Or(c.TotalQueue, 8*c.Queue)
	c.Wait = cmp.Or(c.Wait, time.Minute)
	return nil
}

// reserve is how many places principals have to themselves whose programs are brief: others
// together cannot keep them waiting.
func (c *Config) reserve() int {
	if c.TotalExecutions == 1 {
		return 0
	}
	return max(1, c.TotalExecutions/4)
}

const (
	// brief is how long a program runs at most that keeps nobody waiting, and remembered
	// how long it counts that one ran for longer.
	brief      = 2 * time.Second
	remembered = 5 * time.Minute
	// maxIdle bounds how many principals are remembered of whom nothing is in
	// hand. All that is lost with one is how many requests they made just now.
	maxIdle = 10_000
	// soon is when to try again where nobody can know.
	soon = time.Second
)

// Gate decides who may do what now. It is safe for concurrent use; every
// method costs about the same however many principals there are.
type Gate struct {
	config Config

	mu         sync.Mutex // guards what follows
	principals map[string]*principal
	idle       list.List // of *principal with nothing in hand, the longest idle first
	// quick and slow are lists of *principal who wait and may run more, the next one first.
	quick, slow list.List
	bucket      *rate.Limiter // the requests of all
	load        Load
}

// Load is what a Gate has in hand now.
type Load struct {
	Requests int // that Hold let in
	Streams  int // that Listen let in
	Running  int // executions
	Waiting  int // executions
}

// principal is one of those who share. It is either in Gate.idle or has
// something in hand.
type principal struct {
	name     string
	bucket   *rate.Limiter
	used     time.Time // when the last request was made
	requests int
	streams  int
	running  list.List // of *waiter, the first to run first
	waiting  list.List // of *waiter, the first to come first
	// slowUntil is how long it is remembered that a program ran for long.
	slowUntil time.Time
	idle      *list.Element // in Gate.idle; nil: something is in hand
	turn      *list.Element // in line; nil: in none
	line      *list.List    // Gate.quick or Gate.slow
}

// New makes a Gate with nothing in hand.
func New(config Config) (*Gate, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	g := &Gate{config: config, principals: map[string]*principal{}}
	g.bucket = bucket(config.TotalRequests, config.Window)
	return g, nil
}

// bucket lets n through at once and n in each window after that.
func bucket(n int, window time.Duration) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(float64(n)/window.Seconds()), n)
}

// Load tells what is in hand.
func (g *Gate) Load() Load {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.load
}

// Request counts one request of a principal; a fault.Exhausted says that it
// was one too many, and when the next may be made.
func (g *Gate) Request(name string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	p := g.principalLocked(name, now)
	p.used = now
	defer g.restLocked(p)
	own := p.bucket.ReserveN(now, 1)
	if wait := own.DelayFrom(now); wait > 0 {
		own.CancelAt(now)
		return exhausted(wait, "more than %d requests in %v", g.config.Requests, g.config.Window).
			WithHint("make fewer; the operator can raise transport_http.rate_limit_requests")
	}
	all := g.bucket.ReserveN(now, 1)
	if wait := all.DelayFrom(now); wait > 0 {
		all.CancelAt(now)
		own.CancelAt(now)
		return exhausted(wait, "the server has more requests than the %d in %v that it takes", g.config.TotalRequests, g.config.Window).
			WithHint("try again; the operator can raise limits.max_requests")
	}
	return nil
}

// Hold takes one request of a principal in hand until release is called, which
// may be done twice. It does not wait.
func (g *Gate) Hold(name string) (release func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.principalLocked(name, time.Now())
	defer g.restLocked(p)
	switch {
	case p.requests >= g.config.Concurrent:
		return nil, exhausted(soon, "%d requests are being answered already, and no more are allowed at once", p.requests).
			WithHint("wait for one of them; the operator can raise transport_http.max_concurrent_requests")
	case g.load.Requests >= g.config.TotalConcurrent:
		return nil, exhausted(soon, "the server answers %d requests already", g.load.Requests).
			WithHint("try again; the operator can raise limits.max_concurrent_requests")
	}
	return g.takeLocked(p, &p.requests, &g.load.Requests), nil
}

// Listen does for a stream that a principal only listens to what Hold does for
// other requests.
func (g *Gate) Listen(name string) (release func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.principalLocked(name, time.Now())
	defer g.restLocked(p)
	switch {
	case p.streams >= g.config.Streams:
		return nil, exhausted(soon, "%d streams are open already, and no more are allowed at once", p.streams).
			WithHint("close one of them; the operator can raise limits.max_streams_per_client")
	case g.load.Streams >= g.config.TotalStreams:
		return nil, exhausted(soon, "the server has %d streams open already", g.load.Streams).
			WithHint("try again; the operator can raise limits.max_streams")
	}
	return g.takeLocked(p, &p.streams, &g.load.Streams), nil
}

// takeLocked counts one more of a principal's and of all, until it is released.
func (g *Gate) takeLocked(p *principal, own, all *int) (release func()) {
	*own++
	*all++
	return sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		*own--
		*all--
		g.restLocked(p)
	})
}

// principalLocked gives a principal, who is not idle from here to restLocked.
func (g *Gate) principalLocked(name string, now time.Time) *principal {
	g.forgetLocked(now)
	p := g.principals[name]
	if p == nil {
		p = &principal{name: name, bucket: bucket(g.config.Requests, g.config.Window), used: now}
		g.principals[name] = p
	}
	if p.idle != nil {
		g.idle.Remove(p.idle)
		p.idle = nil
	}
	return p
}

// restLocked notes that a principal has nothing in hand, if that is so.
func (g *Gate) restLocked(p *principal) {
	if p.idle == nil && p.requests == 0 && p.streams == 0 && p.running.Len() == 0 && p.waiting.Len() == 0 {
		p.idle = g.idle.PushBack(p)
	}
}

// forgetLocked lets go of idle principals whose requests count no more, a few
// at a time: each call can add one.
func (g *Gate) forgetLocked(now time.Time) {
	for range 2 {
		first := g.idle.Front()
		if first == nil {
			return
		}
		p := first.Value.(*principal)
		if g.idle.Len() < maxIdle && now.Sub(p.used) < g.config.Window {
			return
		}
		g.idle.Remove(first)
		delete(g.principals, p.name)
	}
}

func exhausted(retry time.Duration, format string, args ...any) *fault.Error {
	f := fault.New(fault.Exhausted, format, args...)
	f.RetryAfter = retry
	return f
}
