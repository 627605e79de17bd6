package limit

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// waiter is one execution that waits.
type waiter struct {
	ready   chan struct{} // closed when it may run
	running bool          // that it is
	began   time.Time     // when it did
	place   *list.Element // in its principal's waiting, or running ones
}

// Enter waits until one more program of a principal may run; leave, which may
// be called twice, says that it has ended. When ctx ends first, Enter gives
// its cause at once; when there is no room to wait or it took too long, a
// fault.Exhausted.
func (g *Gate) Enter(ctx context.Context, name string) (leave func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	p, w, err := g.queue(name)
	if err != nil {
		return nil, err
	}
	if err := g.wait(ctx, w); err != nil {
		g.giveUp(p, w)
		return nil, err
	}
	return sync.OnceFunc(func() { g.giveUp(p, w) }), nil
}

// queue puts an execution into its principal's line, from which it is called
// at once when there is room.
func (g *Gate) queue(name string) (*principal, *waiter, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.principalLocked(name, time.Now())
	w := &waiter{ready: make(chan struct{})}
	w.place = p.waiting.PushBack(w)
	g.load.Waiting++
	g.lineUpLocked(p)
	g.dispatchLocked()
	if w.running {
		return p, w, nil
	}
	switch {
	case p.waiting.Len() > g.config.Queue:
		err := exhausted(soon, "%d executions are waiting already, and no more are allowed", g.config.Queue).
			WithHint("wait for some of them, or cancel them; the operator can raise limits.max_queued_executions_per_client")
		g.giveUpLocked(p, w)
		return nil, nil, err
	case g.load.Waiting > g.config.TotalQueue:
		err := exhausted(soon, "the server has %d executions waiting already", g.config.TotalQueue).
			WithHint("try again; the operator can raise limits.max_queued_executions")
		g.giveUpLocked(p, w)
		return nil, nil, err
	}
	return p, w, nil
}

// wait waits for the waiter's turn.
func (g *Gate) wait(ctx context.Context, w *waiter) error {
	select {
	case <-w.ready: // as a rule: no timer is made then
		return nil
	default:
	}
	late := time.NewTimer(g.config.Wait)
	defer late.Stop()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-late.C:
		return exhausted(soon, "the execution waited %v for its turn", g.config.Wait).
			WithHint("other programs run for long: try again, or cancel some; the operator can raise limits.max_queue_seconds and limits.max_executions")
	}
}

// giveUp takes an execution out, whether it waits or runs.
func (g *Gate) giveUp(p *principal, w *waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.giveUpLocked(p, w)
}

func (g *Gate) giveUpLocked(p *principal, w *waiter) {
	if w.running {
		w.running = false
		if now := time.Now(); now.Sub(w.began) > brief {
			p.slowUntil = now.Add(remembered)
		}
		p.running.Remove(w.place)
		g.load.Running--
	} else {
		p.waiting.Remove(w.place)
		g.load.Waiting--
	}
	g.lineUpLocked(p)
	g.dispatchLocked()
	g.restLocked(p)
}

// lineUpLocked gives a principal a turn if one waits and more may run, and
// takes it away otherwise.
func (g *Gate) lineUpLocked(p *principal) {
	may := p.waiting.Len() > 0 && p.running.Len() < g.config.Executions
	switch {
	case may && p.turn == nil && p.slow(time.Now()):
		p.turn, p.line = g.slow.PushBack(p), &g.slow
	case may && p.turn == nil:
		p.turn, p.line = g.quick.PushBack(p), &g.quick
	case !may && p.turn != nil:
		p.line.Remove(p.turn)
		p.turn = nil
	}
}

// slow tells whether a principal's programs run for long: one does, or did just now.
func (p *principal) slow(now time.Time) bool {
	first := p.running.Front()
	return now.Before(p.slowUntil) || first != nil && now.Sub(first.Value.(*waiter).began) > brief
}

// dispatchLocked lets run what may. Who was served goes to the end.
func (g *Gate) dispatchLocked() {
	now := time.Now()
	for {
		p := g.nextLocked(now)
		if p == nil {
			return
		}
		w := p.waiting.Remove(p.waiting.Front()).(*waiter)
		w.running, w.began, w.place = true, now, p.running.PushBack(w)
		g.load.Waiting--
		g.load.Running++
		close(w.ready)
		g.lineUpLocked(p)
	}
}

// nextLocked takes the principal who is next from a line; nil: nobody may run more. Those
// whose programs are brief come first, and have some places to themselves.
func (g *Gate) nextLocked(now time.Time) *principal {
	if g.load.Running >= g.config.TotalExecutions {
		return nil
	}
	for g.quick.Len() > 0 {
		p := g.quick.Remove(g.quick.Front()).(*principal)
		p.turn = nil
		if !p.slow(now) {
			return p
		}
		p.turn, p.line = g.slow.PushBack(p), &g.slow
	}
	if g.slow.Len() == 0 || g.load.Running >= g.config.TotalExecutions-g.config.reserve() {
		return nil
	}
	p := g.slow.Remove(g.slow.Front()).(*principal)
	p.turn = nil
	return p
}
