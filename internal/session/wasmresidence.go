package session

import (
	"context"
	"time"

	"paddock/internal/checkpoint"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/pool"
	"paddock/internal/quota"
	"paddock/internal/sandbox"
)

var _ residence = (*wasmResidence)(nil)

// wasmResidence is where each interpreter is apart from the others, and every checkpoint
// holds what it has in memory. It has no state. A session whose backend is not here has one
// as well, in which nothing can be started.
type wasmResidence struct {
	s       *session
	backend sandbox.Backend // nil: it is not here
}

func (w *wasmResidence) memoryLimits() (usual, most int64) {
	c := &w.s.manager.config
	return c.MemoryBytes, c.MemoryBytes
}

func (w *wasmResidence) checkMachine(asked *Machine) error {
	if asked == nil {
		return nil
	}
	return fault.New(fault.Unsupported, "the isolation %q has no machines: no images, processors, volumes, ports or variables can be asked for", w.backend.Name()).
		WithHint("omit them, or use an isolation that has: see list_runtimes")
}

func (w *wasmResidence) commands() (sandbox.Runtime, error) {
	return sandbox.Runtime{}, fault.New(fault.Unsupported, "the isolation %q runs no commands", w.backend.Name()).
		WithHint("create a session with an isolation that has a shell: see list_runtimes")
}

func (w *wasmResidence) dialer() (sandbox.Dialer, error) { return nil, errNoPorts(w.backend) }

func (w *wasmResidence) keepsVariables() bool { return true }

func (w *wasmResidence) shows(f Folder) (shown, shared bool) {
	return !f.Machines, f.Shared && w.backend != nil
}

// filesChanged has nothing to do: an interpreter asks for files each time.
func (w *wasmResidence) filesChanged() {}

func (w *wasmResidence) describe(*sandbox.Spec, Settings) {}

// boot starts an interpreter of the session's language.
func (w *wasmResidence) boot(t *turn) error {
	r, err := w.s.manager.backends.runtimeFor(t.ctx, w.backend, w.s.language())
	if err == nil {
		_, err = w.s.interpreters.live(t, r)
	}
	return err
}

func (w *wasmResidence) prepare(context.Context) error { return nil }

func (w *wasmResidence) start(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error) {
	defer w.s.manager.pool.Starting()()
	return w.s.interpreters.startResumed(ctx, spec)
}

func (w *wasmResidence) ended() {}

func (w *wasmResidence) comesBack(head *history.Manifest, runtime string) bool {
	return head.Holds(runtime)
}

// holder is one for each interpreter.
func (w *wasmResidence) holder(runtime string) quota.Holder {
	return quota.Holder{Owner: string(w.s.owner), Session: string(w.s.id), Runtime: runtime}
}

func (w *wasmResidence) memoryNow(interpreter int64) int64 { return interpreter }

func (w *wasmResidence) outlives(bool) bool { return false }

func (w *wasmResidence) beforeRun(context.Context) {}

func (w *wasmResidence) afterRun() {}

func (w *wasmResidence) suspends(in sandbox.Instance) bool { return keeps(in) }

func (w *wasmResidence) saver() checkpoint.SaveMachine { return nil }

func (w *wasmResidence) saved() {}

func (w *wasmResidence) saveLast(context.Context) bool { return false }

func (w *wasmResidence) saveForFork(context.Context) {}

func (w *wasmResidence) forgetSaved(context.Context) error { return nil }

func (w *wasmResidence) stopAll(string) (notice string) {
	w.s.interpreters.dropAll()
	return ""
}

func (w *wasmResidence) beforeRestore(*history.Manifest) (map[string]history.Interpreter, string) {
	return nil, ""
}

// afterRestore rewinds live interpreters. One that cannot go back by itself ends: the next call
// begins from what is on disk.
func (w *wasmResidence) afterRestore(ctx context.Context, was, target *history.Manifest) {
	s := w.s
	for runtime, in := range s.interpreters.list() {
		want, there := target.Interpreters[runtime]
		if there && !s.checkpoints.dirty[runtime] && want.Same(was.Interpreters[runtime]) {
			continue
		}
		delete(s.lostReasons, runtime)
		delete(s.checkpoints.dirty, runtime)
		snapshotter, ok := in.(sandbox.Snapshotter)
		if there && ok {
			_, err := guard("rewinding", func() (struct{}, error) { return struct{}{}, snapshotter.Rewind(ctx, want.Mark) })
			if err == nil {
				continue
			}
		}
		s.interpreters.drop(runtime, in)
	}
	clear(s.checkpoints.dirty)
	clear(s.lostReasons) // what was gone is here again, or was not here yet
}

func (w *wasmResidence) enforceLifetime(time.Time) time.Duration { return maxRest }

func (w *wasmResidence) saveIdle(time.Time) time.Duration { return maxRest }

func (w *wasmResidence) dial(context.Context, uint16) (sandbox.Stream, error) {
	return nil, errNoPorts(w.backend)
}

func (w *wasmResidence) usage(_ context.Context, disk int64) Usage { return Usage{Disk: disk} }

func (w *wasmResidence) meter(context.Context) (sandbox.MachineUsage, error) {
	return sandbox.MachineUsage{}, fault.New(fault.NotFound, "there is no machine")
}

func (w *wasmResidence) takePooled() *pool.Slot { return nil }

func (w *wasmResidence) adopt(*pool.Slot) {}

func (w *wasmResidence) refill() {}

func (w *wasmResidence) dropPrestarted() {}

// errNoPorts says that nothing can connect to programs in an isolation.
func errNoPorts(b sandbox.Backend) error {
	return fault.New(fault.Unsupported, "programs in the isolation %q listen at no ports", b.Name()).
		WithHint("create a session with isolation linux, and start the server there")
}
