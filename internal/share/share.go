// Package share divides something countable (bytes, processes, processors) among owners:
// all of them together have so much, and one of them so much of it.
package share

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Pool is what is divided. Its methods may be called by several goroutines.
type Pool struct {
	all      *semaphore.Weighted
	perOwner int64

	mu     sync.Mutex // guards owners
	owners map[string]*owner
}

// owner is one who has, or waits for, a part.
type owner struct {
	free  *semaphore.Weighted
	calls int // of Take that wait or have something
}

// New makes a pool of total units, of which one owner may have perOwner.
func New(total, perOwner int64) *Pool {
	return &Pool{all: semaphore.NewWeighted(total), perOwner: min(perOwner, total), owners: map[string]*owner{}}
}

// PerOwner gives the most that one owner may have.
func (p *Pool) PerOwner() int64 { return p.perOwner }

// Take waits until an owner may have n units more, the longest waiting first: for the
// owner's own others, then for those of all. The error is ctx's cause. The caller calls
// release when it needs them no longer; calling it again does nothing. More units than
// PerOwner are never to be had.
func (p *Pool) Take(ctx context.Context, name string, n int64) (release func(), err error) {
	o := p.enter(name)
	if err := o.free.Acquire(ctx, n); err != nil {
		p.leave(name, o)
		return nil, context.Cause(ctx)
	}
	if err := p.all.Acquire(ctx, n); err != nil {
		o.free.Release(n)
		p.leave(name, o)
		return nil, context.Cause(ctx)
	}
	return sync.OnceFunc(func() {
		p.all.Release(n)
		o.free.Release(n)
		p.leave(name, o)
	}), nil
}

// enter finds what an owner has, and keeps it until leave.
func (p *Pool) enter(name string) *owner {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.owners[name]
	if o == nil {
		o = &owner{free: semaphore.NewWeighted(p.perOwner)}
		p.owners[name] = o
	}
	o.calls++
	return o
}

func (p *Pool) leave(name string, o *owner) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o.calls--; o.calls == 0 {
		delete(p.owners, name)
	}
}
