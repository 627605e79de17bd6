package pkgproxy

import "context"

// flight is work that several callers wait for.
type flight struct {
	done    chan struct{} // closed when it has ended
	cancel  context.CancelFunc
	waiting int // guarded by store.mu
	err     error
}

// together does work once for all who ask for it meanwhile. It goes on while one of them
// waits, and ends with the last one's context; who comes after that begins again.
func (s *store) together(ctx context.Context, what string, work func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	s.mu.Lock()
	f := s.busy[what]
	if f == nil {
		f = &flight{done: make(chan struct{})}
		var own context.Context
		own, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
		s.busy[what] = f
		s.pending.Go(func() { s.fly(own, what, f, work) })
	}
	f.waiting++
	s.mu.Unlock()
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.waiting--; f.waiting == 0 {
		f.cancel()
		s.landedLocked(what, f)
	}
	return context.Cause(ctx)
}

func (s *store) fly(ctx context.Context, what string, f *flight, work func(context.Context) error) {
	defer f.cancel()
	f.err = work(ctx)
	s.mu.Lock()
	s.landedLocked(what, f)
	s.mu.Unlock()
	close(f.done)
}

// landedLocked lets the next one who asks begin again.
func (s *store) landedLocked(what string, f *flight) {
	if s.busy[what] == f {
		delete(s.busy, what)
	}
}
