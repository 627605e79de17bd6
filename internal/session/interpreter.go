package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime/debug"
	"time"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// guard calls a backend; its panic costs one call.
func guard[T any](doing string, f func() (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault.New(fault.Internal, "the sandbox made a mistake").WithHint("try again: a fresh interpreter will be started; the server's log says more").
				WithCause(fmt.Errorf("%s: panic: %v\n%s", doing, p, debug.Stack()))
		}
	}()
	return f()
}

// closeInstance ends an interpreter.
func closeInstance(in sandbox.Instance) error {
	_, err := guard("closing", func() (struct{}, error) { return struct{}{}, in.Close() })
	return err
}

// interpreters starts, ends and brings back what a session's programs run in. Its methods
// are for the first in the queue, the opening and the end, but for those of instances and
// those that describe one (spec, bare).
type interpreters struct {
	s *session
	instances
	mustReseed map[string]bool // runtimes whose state on disk has been gone on from
}

// reapDead deals with interpreters that ended since the last call.
func (i *interpreters) reapDead(ctx context.Context) {
	s := i.s
	for runtime, in := range i.list() {
		if hasEnded(in) {
			i.drop(runtime, in)
			i.lost(ctx, runtime, "the interpreter ended unexpectedly")
			s.manager.log.WarnContext(ctx, "an interpreter ended by itself", "session", s.id, "runtime", runtime)
		}
	}
}

// live gives the interpreter of a runtime, starting it where there is none. Those that had
// ended are gone already (reapDead).
func (i *interpreters) live(t *turn, r sandbox.Runtime) (sandbox.Instance, error) {
	s := i.s
	if in := i.get(r.Name); in != nil {
		if err := i.reserveMemory(r.Name, i.spec(r.Name).Limits.MemoryBytes); err != nil {
			return nil, err
		}
		return in, nil
	}
	spec := i.spec(r.Name)
	if err := s.residence.prepare(t.ctx); err != nil {
		return nil, err
	}
	if err := i.reserveMemory(r.Name, spec.Limits.MemoryBytes); err != nil {
		s.residence.ended()
		return nil, err
	}
	ctx, starting := s.span(t.ctx, "sandbox.start")
	began := time.Now()
	in, err := s.residence.start(ctx, spec)
	t.start = time.Since(began)
	endSpan(starting, err)
	if err != nil {
		i.releaseMemory(r.Name)
		s.residence.ended()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, failed("starting an interpreter", err)
	}
	i.put(r.Name, in)
	return in, nil
}

// start starts an interpreter as it is described.
func (i *interpreters) start(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error) {
	return guard("starting", func() (sandbox.Instance, error) { return i.s.backend.Start(ctx, spec) })
}

// startResumed starts an interpreter with what a checkpoint holds of it alone. One that
// cannot be resumed is replaced by a fresh one, and the next result says so.
func (i *interpreters) startResumed(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error) {
	s := i.s
	spec.Resume = s.checkpoints.resume(spec.Runtime)
	in, err := i.start(ctx, spec)
	if spec.Resume == nil || !unresumable(err) {
		if err == nil {
			delete(i.mustReseed, spec.Runtime)
		}
		return in, err
	}
	s.manager.log.Warn("an interpreter's state cannot be resumed", "session", s.id, "runtime", spec.Runtime, "cause", err)
	why := fault.Of(err).Message
	spec.Resume = nil
	if in, err = i.start(ctx, spec); err == nil {
		s.lostReasons[spec.Runtime] = "what was kept of it cannot be resumed (" + why + ")"
	}
	return in, err
}

// unresumable reports whether a state is of no use any more: it is damaged, not
// all there, or of another build of the runtime.
func unresumable(err error) bool {
	return fault.KindOf(err) == fault.Unsupported || errors.Is(err, blob.ErrMissing) || errors.Is(err, blob.ErrDamaged)
}

// lost notes that an interpreter is gone by itself, and why. The next call goes on
// from the last checkpoint; where that lacks a call that was answered, its files go
// back as well, and the next result says so.
func (i *interpreters) lost(ctx context.Context, runtime, why string) {
	s := i.s
	s.checkpoints.mu.Lock()
	defer s.checkpoints.mu.Unlock()
	if !s.residence.comesBack(s.checkpoints.repo.Head(), runtime) {
		s.lostReasons[runtime] = why
	}
	if !s.checkpoints.dirty[runtime] {
		return
	}
	i.mustReseed[runtime] = true
	i.discardDirty(runtime) // all that is newer than the checkpoint goes with it, whosever it is
	s.addNotice("What an earlier call left could not be kept, and its interpreter has ended: variables and files are as they were before that call.")
	i.rollBack(ctx)
}

// discardUnsaved gives up what an earlier call left and could not be kept, before all
// interpreters end. Where only files are kept they stay: they are all there is.
func (i *interpreters) discardUnsaved(ctx context.Context) {
	s := i.s
	s.checkpoints.mu.Lock()
	defer s.checkpoints.mu.Unlock()
	if !s.residence.keepsVariables() || s.checkpoints.err == nil {
		return
	}
	i.discardDirty("")
	s.addNotice("What an earlier call left could not be kept, and is gone: variables and files are as they were before that call.")
	i.rollBack(ctx)
}

// rollBack makes the files what head says, as nothing that is newer lives any
// more. Where they cannot be brought back they are torn. The caller holds checkpoints.mu.
func (i *interpreters) rollBack(ctx context.Context) {
	s := i.s
	if err := s.checkpoints.repo.RestoreFiles(); err != nil {
		s.manager.log.ErrorContext(ctx, "files could not be brought back", "session", s.id, "cause", fault.CauseOf(err))
		return
	}
	i.refresh(ctx)
	s.checkpoints.setKept(nil)
}

// bare describes an interpreter of the session, without what is only this session's in
// its environment.
func (i *interpreters) bare(runtime string) sandbox.Spec {
	s := i.s
	c := &s.manager.config
	env := map[string]string{"HOME": "/workspace", "TMPDIR": "/tmp", "TZ": "UTC", "LANG": "C.UTF-8"}
	usual, _ := s.residence.memoryLimits()
	s.mu.Lock()
	settings := s.record.Settings
	s.mu.Unlock()
	memory, passing := cmp.Or(settings.MemoryBytes, usual), settings.Ephemeral
	spec := sandbox.Spec{
		Owner: string(s.owner), Runtime: runtime, Dir: cmp.Or(settings.Dir, c.Cwd, Workspace), Env: env, Snapshots: !passing,
		Limits: sandbox.Limits{MemoryBytes: memory, Metered: c.Limits.Fuel > 0},
		Mounts: []sandbox.Mount{
			{Guest: "/workspace", Aliases: []string{"/app"}, Host: filepath.Join(s.dir, workspaceFolder), DiskBytes: c.DiskBytes, Told: true},
			{Guest: "/tmp", Host: filepath.Join(s.dir, tmpFolder), DiskBytes: c.DiskBytes / 4, Told: true},
		},
	}
	spec.Mounts = append(spec.Mounts, s.mounts.readOnly()...)
	maps.Copy(env, c.Env)
	s.residence.describe(&spec, settings)
	return spec
}

// releaseMemory stops counting an interpreter that is gone.
func (i *interpreters) releaseMemory(runtime string) {
	home, bytes := i.s.residence, int64(0)
	if home.outlives(i.count() > 0) {
		bytes = home.memoryNow(1)
	}
	i.s.manager.memory.Set(home.holder(runtime), bytes)
}

// drop closes an interpreter and removes it.
func (i *interpreters) drop(runtime string, in sandbox.Instance) {
	s := i.s
	if err := closeInstance(in); err != nil {
		s.manager.log.Warn("an interpreter did not close well", "session", s.id, "cause", fault.CauseOf(err))
	}
	i.remove(runtime)
	i.releaseMemory(runtime)
	s.residence.ended()
}

// dropAll closes every interpreter.
func (i *interpreters) dropAll() {
	for runtime, in := range i.list() {
		i.drop(runtime, in)
	}
	i.s.residence.dropPrestarted()
}

// failed makes sure that what a backend returned is a fault.
func failed(doing string, err error) error {
	var f *fault.Error
	if errors.As(err, &f) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return fault.New(fault.Unavailable, "the sandbox failed").WithHint("try again: a fresh interpreter will be started; files in the workspace are there").
		WithCause(fmt.Errorf("%s: %w", doing, err))
}
