package app

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Ready says whether the interpreters have been prepared and the state folder can be written.
type Ready struct {
	reason atomic.Pointer[string] // why not; nil: they have
	state  stateWriter
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// PrepareWith prepares the interpreters, until Wait is called at the latest. A call that
// comes before it is done waits for it, and gets its failure too: here it is only seen early.
func (a *App) PrepareWith(ctx context.Context, prepare func(context.Context) error) *Ready {
	r := &Ready{state: stateWriter{dir: a.StateDir}}
	r.set("the interpreters are being prepared")
	ctx, r.cancel = context.WithCancel(ctx)
	r.done.Go(func() {
		err := prepare(ctx)
		switch {
		case err == nil:
			r.reason.Store(nil)
		case ctx.Err() == nil:
			a.Log.Error("the interpreters cannot be prepared", "cause", err)
			r.set("the interpreters cannot be prepared")
		}
	})
	return r
}

func (r *Ready) set(reason string) { r.reason.Store(&reason) }

// Wait ends the preparing.
func (r *Ready) Wait() {
	r.cancel()
	r.done.Wait()
}

func (r *Ready) reasons(context.Context) (reasons []string) {
	if reason := r.reason.Load(); reason != nil {
		reasons = append(reasons, *reason)
	}
	if !r.state.writable() {
		reasons = append(reasons, "the state folder cannot be written")
	}
	return reasons
}

// lookFor is how long a check of the state folder counts: asking whether the server is ready
// needs no token.
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
		f.looked, f.err = time.Now(), Writable(f.dir)
	}
	return f.err == nil
}

// Writable tries to write into a folder, which is made when it is missing.
func Writable(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".doctor-")
	if err != nil {
		return err
	}
	_, err = f.WriteString("can it be written?\n")
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}
