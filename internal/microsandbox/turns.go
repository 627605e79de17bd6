package microsandbox

import (
	"context"
	"sync"

	"paddock/internal/session"
)

// turns has one after the other start or stop a sandbox of a name.
type turns struct {
	mu    sync.Mutex // guards what follows
	taken map[turn]chan struct{}
}

type turn struct {
	owner session.Owner
	name  Name
}

// take waits until nobody else changes the sandbox; done has to be called.
func (t *turns) take(ctx context.Context, owner session.Owner, name Name) (done func(), err error) {
	mine, over := turn{owner, name}, make(chan struct{})
	for {
		t.mu.Lock()
		other := t.taken[mine]
		if other == nil {
			if t.taken == nil {
				t.taken = map[turn]chan struct{}{}
			}
			t.taken[mine] = over
			t.mu.Unlock()
			return func() {
				t.mu.Lock()
				delete(t.taken, mine)
				t.mu.Unlock()
				close(over)
			}, nil
		}
		t.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
