package skill

import (
	"context"
	"sync"
)

// turns has goroutines come one after the other, for each owner in the order in which
// they came. The zero value is ready.
type turns struct {
	mu    sync.Mutex // guards what follows
	lines map[string][]chan struct{}
}

// take waits for its turn, until ctx ends. Who has it leaves. A turn that is due at once
// is not waited for.
func (t *turns) take(ctx context.Context, owner string) (leave func(), err error) {
	mine := make(chan struct{})
	t.mu.Lock()
	if t.lines == nil {
		t.lines = map[string][]chan struct{}{}
	}
	if len(t.lines[owner]) == 0 {
		close(mine)
	}
	t.lines[owner] = append(t.lines[owner], mine)
	t.mu.Unlock()
	leave = func() { t.leave(owner, mine) }
	select {
	case <-mine:
		return leave, nil // whatever ctx is
	default:
	}
	select {
	case <-mine:
		return leave, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}

// leave takes somebody out of the line; if his turn was due, the next one's is.
func (t *turns) leave(owner string, who chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	line := t.lines[owner]
	for at, other := range line {
		if other != who {
			continue
		}
		line = append(line[:at], line[at+1:]...)
		if at == 0 && len(line) > 0 {
			close(line[0])
		}
		break
	}
	if t.lines[owner] = line; len(line) == 0 {
		delete(t.lines, owner)
	}
}
