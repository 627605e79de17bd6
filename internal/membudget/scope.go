package membudget

import (
	"context"
	"sync"
)

// scope is what one request, or one call, holds until its end.
type scope struct {
	budget *Budget
	owner  string

	mu       sync.Mutex // guards what follows
	held     int64
	releases []func()
	closed   bool
}

type scopeKey struct{}

// Scope gives a context for work that is done for an owner, and what ends it: end
// releases what [Hold] took for the context, or for one made of it. It is called when
// the result has been passed on. Scopes nest; the innermost counts.
func (b *Budget) Scope(ctx context.Context, owner string) (_ context.Context, end func()) {
	if b == nil {
		return ctx, func() {}
	}
	s := &scope{budget: b, owner: owner}
	return context.WithValue(ctx, scopeKey{}, s), s.end
}

func (s *scope) end() {
	s.mu.Lock()
	releases := s.releases
	s.releases, s.closed = nil, true
	s.mu.Unlock()
	for _, release := range releases {
		release()
	}
}

// Hold has the scope of ctx hold n bytes at least, until its end; it waits as
// [Budget.Acquire] does. Without a scope, or after its end, it takes none: what belongs
// to no request is bounded by whoever keeps it.
func Hold(ctx context.Context, n int64) error {
	s, ok := ctx.Value(scopeKey{}).(*scope)
	if !ok {
		return nil
	}
	s.mu.Lock()
	n -= s.held
	s.mu.Unlock()
	release, err := s.budget.Acquire(ctx, s.owner, n)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		release()
		return nil
	}
	s.releases, s.held = append(s.releases, release), s.held+max(n, 0)
	return nil
}
