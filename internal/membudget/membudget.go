// Package membudget bounds the bytes that the server holds for its callers.
//
// Go ends a process that runs out of memory, with all owners' calls in it. So work
// whose size a caller chooses takes its bytes from a [Budget] before it allocates
// them, and gives them back when it has let go of them. A caller who asks for more
// than its share at once is refused; one who asks for more than there is waits.
package membudget

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"paddock/internal/fault"
	"paddock/internal/share"
)

// maxWait bounds how long Acquire waits. What holds bytes ends within seconds as a
// rule; a client gives up after a minute.
const maxWait = 30 * time.Second

// Budget is a number of bytes that owners share. Its methods may be called by
// several goroutines. A nil Budget bounds nothing.
type Budget struct {
	pool *share.Pool
	most int64
	held atomic.Int64
}

// New makes a budget of total bytes, of which one owner may hold perOwner.
func New(total, perOwner int64) *Budget {
	return &Budget{pool: share.New(total, perOwner), most: total}
}

// Acquire takes n bytes for an owner, and waits for them while others hold too many,
// the longest waiting first. It ends with ctx, or with a fault of kind Exhausted
// where n is more than an owner may hold, or after half a minute. The caller calls
// release once it holds the bytes no longer; calling it again does nothing.
func (b *Budget) Acquire(ctx context.Context, owner string, n int64) (release func(), err error) {
	if b == nil || n <= 0 {
		return func() {}, nil
	}
	if most := b.pool.PerOwner(); n > most {
		return nil, fault.New(fault.Exhausted, "this takes %s of the server's memory, and one caller may hold %s", mebibytes(n), mebibytes(most)).
			WithHint("do it in smaller parts, or in a program in the sandbox, which has memory of its own")
	}
	limited, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	give, err := b.pool.Take(limited, owner, n)
	if err != nil {
		return nil, busy(ctx)
	}
	b.held.Add(n)
	return sync.OnceFunc(func() {
		b.held.Add(-n)
		give()
	}), nil
}

// Held gives the bytes that are held now.
func (b *Budget) Held() int64 {
	if b == nil {
		return 0
	}
	return b.held.Load()
}

// Total gives the bytes that all owners together may hold; 0: nothing is bounded.
func (b *Budget) Total() int64 {
	if b == nil {
		return 0
	}
	return b.most
}

// busy says why nothing was taken: the caller gave up, or the wait was too long.
func busy(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	f := fault.New(fault.Exhausted, "the server's memory is taken by other calls").WithHint("try again in a moment, or with less at once")
	f.RetryAfter = time.Second
	return f
}

func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", (n+1<<20-1)>>20) }
