package pattern

import (
	"context"
	"runtime"
	"sync"
)

// slots bounds how many requests match for long at once: whatever they are, half of
// the CPUs are left for all else. Who waits for one is served in the order of
// coming, and there is one of each owner at most.
var slots = make(chan struct{}, max(1, runtime.NumCPU()/2))

// lines holds the owners of whom somebody matches for long, or waits to.
var lines struct {
	sync.Mutex // guards what follows
	of         map[string]*line
}

// line is where the requests of one owner wait for each other.
type line struct {
	first chan struct{} // full: somebody is at its head
	users int           // guarded by lines
}

// turn is the right to take one piece of long work. Nil is none.
type turn struct {
	owner string
	line  *line
}

// take waits for a turn until ctx ends; the error is its cause.
func take(ctx context.Context, owner string) (*turn, error) {
	t := &turn{owner: owner, line: join(owner)}
	select {
	case t.line.first <- struct{}{}:
	case <-ctx.Done():
		leave(owner)
		return nil, context.Cause(ctx)
	}
	select {
	case slots <- struct{}{}:
		return t, nil
	case <-ctx.Done():
		<-t.line.first
		leave(owner)
		return nil, context.Cause(ctx)
	}
}

// end gives the turn to the next one.
func (t *turn) end() {
	if t == nil {
		return
	}
	<-slots
	<-t.line.first
	leave(t.owner)
}

func join(owner string) *line {
	lines.Lock()
	defer lines.Unlock()
	l := lines.of[owner]
	if l == nil {
		if lines.of == nil {
			lines.of = map[string]*line{}
		}
		l = &line{first: make(chan struct{}, 1)}
		lines.of[owner] = l
	}
	l.users++
	return l
}

func leave(owner string) {
	lines.Lock()
	defer lines.Unlock()
	if l := lines.of[owner]; l.users == 1 {
		delete(lines.of, owner)
	} else {
		l.users--
	}
}
