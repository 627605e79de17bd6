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

// reapDead deals with interpreters that ended since the last call.
func (s *session) reapDead(ctx context.Context) {
	for runtime, in := range s.instances.list() {
		if hasEnded(in) {
			s.drop(runtime, in)
			s.interpreterLost(ctx, runtime, "the interpreter ended unexpectedly")
			s.manager.log.WarnContext(ctx, "an interpreter ended by itself", "session", s.id, "runtime", runtime)
		}
	}
}

// interpreter gives the live one of a runtime, starting it where there is none.
// The dead are buried.
func (s *session) interpreter(t *turn, r sandbox.Runtime) (sandbox.Instance, error) {
	if in := s.instances.get(r.Name); in != nil {
		if err := s.reserveMemory(r.Name, s.spec(r.Name).Limits.MemoryBytes); err != nil {
			return nil, err
		}
		return in, nil
	}
	spec := s.spec(r.Name)
	if err := s.residence.prepare(t.ctx); err != nil {
		return nil, err
	}
	if err := s.reserveMemory(r.Name, spec.Limits.MemoryBytes); err != nil {
		s.residence.ended()
		return nil, err
	}
	ctx, starting := s.span(t.ctx, "sandbox.start")
	began := time.Now()
	in, err := s.residence.start(ctx, spec)
	t.start = time.Since(began)
	endSpan(starting, err)
	if err != nil {
		s.releaseMemory(r.Name)
		s.residence.ended()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, s.failed("starting an interpreter", err)
	}
	s.instances.put(r.Name, in)
	return in, nil
}

// startInstance starts an interpreter as it is described.
func (s *session) startInstance(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error) {
	return guard("starting", func() (sandbox.Instance, error) { return s.backend.Start(ctx, spec) })
}

// startResumed starts an interpreter with what a checkpoint holds of it alone. One that
// cannot be resumed is replaced by a fresh one, and the next result says so.
func (s *session) startResumed(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error) {
	spec.Resume = s.resume(spec.Runtime)
	in, err := s.startInstance(ctx, spec)
	if spec.Resume == nil || !unresumable(err) {
		if err == nil {
			delete(s.mustReseed, spec.Runtime)
		}
		return in, err
	}
	s.manager.log.Warn("an interpreter's state cannot be resumed", "session", s.id, "runtime", spec.Runtime, "cause", err)
	why := fault.Of(err).Message
	spec.Resume = nil
	if in, err = s.startInstance(ctx, spec); err == nil {
		s.lostReasons[spec.Runtime] = "what was kept of it cannot be resumed (" + why + ")"
	}
	return in, err
}

// unresumable tells whether a state is of no use any more: it is damaged, not
// all there, or of another build of the runtime.
func unresumable(err error) bool {
	return fault.KindOf(err) == fault.Unsupported || errors.Is(err, blob.ErrMissing) || errors.Is(err, blob.ErrDamaged)
}

// interpreterLost notes that an interpreter is gone by itself, and why. The next call goes on
// from the last checkpoint; where that lacks a call that was answered, its files go
// back as well, and the next result says so.
func (s *session) interpreterLost(ctx context.Context, runtime, why string) {
	s.checkpointMu.Lock()
	defer s.checkpointMu.Unlock()
	if !s.residence.comesBack(s.repo.Head(), runtime) {
		s.lostReasons[runtime] = why
	}
	if !s.dirtyRuntimes[runtime] {
		return
	}
	s.mustReseed[runtime] = true
	s.discardDirty(runtime) // all that is newer than the checkpoint goes with it, whosever it is
	s.addNotice("What an earlier call left could not be kept, and its interpreter has ended: variables and files are as they were before that call.")
	s.rollBackInterpreters(ctx)
}

// discardUnsaved gives up what an earlier call left and could not be kept, before all
// interpreters end. Where only files are kept they stay: they are all there is.
func (s *session) discardUnsaved(ctx context.Context) {
	s.checkpointMu.Lock()
	defer s.checkpointMu.Unlock()
	if !s.residence.keepsVariables() || s.checkpointErr == nil {
		return
	}
	s.discardDirty("")
	s.addNotice("What an earlier call left could not be kept, and is gone: variables and files are as they were before that call.")
	s.rollBackInterpreters(ctx)
}

// rollBackInterpreters makes the files what head says, as nothing that is newer lives any
// more. Where they cannot be brought back they are torn. The caller holds s.keeping.
func (s *session) rollBackInterpreters(ctx context.Context) {
	if err := s.repo.RestoreFiles(); err != nil {
		s.manager.log.ErrorContext(ctx, "files could not be brought back", "session", s.id, "cause", fault.CauseOf(err))
		return
	}
	s.refresh(ctx)
	s.setKept(nil)
}

// bare describes an interpreter of the session, without what is only this session's in
// its environment.
func (s *session) bare(runtime string) sandbox.Spec {
	c := &s.manager.config
	env := map[string]string{"HOME": "/workspace", "TMPDIR": "/tmp", "TZ": "UTC", "LANG": "C.UTF-8"}
	s.mu.Lock()
	usual, _ := s.residence.memoryLimits()
	settings := s.record.Settings
	s.mu.Unlock()
	memory, passing := cmp.Or(settings.MemoryBytes, usual), settings.Ephemeral
	spec := sandbox.Spec{
		Owner: string(s.owner), Runtime: runtime, Dir: cmp.Or(settings.Dir, c.Cwd, Workspace), Env: env, Snapshots: !passing,
		Limits: sandbox.Limits{MemoryBytes: memory, Metered: c.Limits.Fuel > 0},
		Mounts: []sandbox.Mount{
			{Guest: "/workspace", Aliases: []string{"/app"}, Host: filepath.Join(s.dir, workspaceFolder), DiskBytes: c.DiskBytes},
			{Guest: "/tmp", Host: filepath.Join(s.dir, tmpFolder), DiskBytes: c.DiskBytes / 4},
		},
	}
	spec.Mounts = append(spec.Mounts, s.mounts.readOnly()...)
	maps.Copy(env, c.Env)
	s.residence.describe(&spec, settings)
	return spec
}

// releaseMemory stops counting an interpreter that is gone.
func (s *session) releaseMemory(runtime string) {
	bytes := int64(0)
	if s.residence.outlives(s.instances.count() > 0) {
		bytes = s.residence.memoryNow(1)
	}
	s.manager.memory.Set(s.residence.holder(runtime), bytes)
}

// drop closes an interpreter and forgets it.
func (s *session) drop(runtime string, in sandbox.Instance) {
	if err := closeInstance(in); err != nil {
		s.manager.log.Warn("an interpreter did not close well", "session", s.id, "cause", fault.CauseOf(err))
	}
	s.instances.remove(runtime)
	s.releaseMemory(runtime)
	s.residence.ended()
}

// dropAll closes every interpreter.
func (s *session) dropAll() {
	for runtime, in := range s.instances.list() {
		s.drop(runtime, in)
	}
	s.residence.dropPrestarted()
}

// failed makes sure that what a backend returned is a fault.
func (s *session) failed(doing string, err error) error {
	var f *fault.Error
	if errors.As(err, &f) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return fault.New(fault.Unavailable, "the sandbox failed").WithHint("try again: a fresh interpreter will be started; files in the workspace are there").
		WithCause(fmt.Errorf("%s: %w", doing, err))
}
