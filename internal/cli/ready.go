package cli

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// readiness is whether the interpreters have been prepared, and whether the
// state folder can be written.
type readiness struct {
	reason atomic.Pointer[string] // nil: they have
	state  stateWriter
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// prepareFor prepares the interpreters, until wait is called at the latest.
// Whoever calls before it is done waits for it, and gets its failure too: here
// it is only seen early.
func (p *program) prepareFor(ctx context.Context, all backends) *readiness {
	r := &readiness{state: stateWriter{dir: p.places.state}}
	r.set("the interpreters are being prepared")
	ctx, r.cancel = context.WithCancel(ctx)
	r.done.Go(func() {
		err := p.prepare(ctx, all)
		switch {
		case err == nil:
			r.reason.Store(nil)
		case ctx.Err() == nil:
			p.log.Error("the interpreters cannot be prepared", "cause", err)
			r.set("the interpreters cannot be prepared")
		}
	})
	return r
}

func (r *readiness) set(reason string) { r.reason.Store(&reason) }

func (r *readiness) wait() {
	r.cancel()
	r.done.Wait()
}

func (r *readiness) reasons(context.Context) (reasons []string) {
	if reason := r.reason.Load(); reason != nil {
		reasons = append(reasons, *reason)
	}
	if !r.state.writable() {
		reasons = append(reasons, "the state folder cannot be written")
	}
	return reasons
}

// lookFor is how long a look at the state folder counts: whoever asks whether
// the server is ready needs no token.
const lookFor = 3 * time.Second

// stateWriter is whether files can be written in it. It is safe for concurrent use.
type stateWriter struct {
	dir string

	mu     sync.Mutex // guards what follows
	looked time.Time
	err    error
}

func (f *stateWriter) writable() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.looked) >= lookFor {
		f.looked, f.err = time.Now(), writable(f.dir)
	}
	return f.err == nil
}
