package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"paddock/internal/fault"
	"paddock/internal/pool"
	"paddock/internal/quota"
	"paddock/internal/sandbox"
	"paddock/internal/workspace"
)

// A session that is made may get a machine that was booted before anybody asked for
// it, upon empty folders that become the session's: package pool.

func (m *Manager) poolFolder() string { return m.local.Of("pool") }

// newPool makes the Manager's pool, which expects sessions like the default; nil: none
// is kept.
func newPool(m *Manager) *pool.Pool {
	if m.config.Pool <= 0 {
		return nil
	}
	// Its memory is nobody's who could have a session.
	holder := func(box string) quota.Holder { return quota.Holder{Session: box} }
	p := pool.New(pool.Config{
		Most: m.config.Pool, Dir: m.poolFolder(), Runtime: m.backends.runtimeFor,
		Start: func(ctx context.Context, b sandbox.Backend, spec sandbox.Spec) (sandbox.Instance, error) {
			return guard("booting ahead", func() (sandbox.Instance, error) { return b.Start(ctx, spec) })
		},
		End: closeInstance,
		Grow: func(box string, bytes int64) bool {
			_, ok := m.memory.Grow(holder(box), bytes, m.config.TotalMemoryBytes, m.config.TotalMemoryBytes)
			return ok
		},
		Set: func(box string, bytes int64) { m.memory.Set(holder(box), bytes) },
		Log: m.log,
	})
	s := newSession(m, key{})
	s.setBackend(m.config.Backends[0], nil)
	if r, ok := s.residence.(*machineResidence); ok {
		if w, ok := r.wanted(); ok {
			p.Expect(w)
		}
	}
	return p
}

// sweepPools removes what processes that have ended kept ready.
func (m *Manager) sweepPools() {
	if err := pool.Sweep(m.poolFolder()); err != nil {
		m.log.Warn("what processes that ended kept ready cannot be removed", "cause", err)
	}
}

// wanted is the machine that a new session wants. It is false where none can be booted
// ahead: what is in the machine beside the session's folders is its owner's.
func (r *machineResidence) wanted() (pool.Want, bool) {
	s := r.s
	w := pool.Want{Backend: s.backend, Spec: s.interpreters.bare("")}
	if len(w.Spec.Mounts) != len(s.mounts.names()) || w.Spec.Limits.Metered {
		return pool.Want{}, false
	}
	w.UID, w.GID = fileOwner(s.backend)
	s.mu.Lock()
	defer s.mu.Unlock()
	set := &s.record.Settings
	w.Language, w.Special = set.Language, set.Machine != nil || set.MemoryBytes > 0 || set.Dir != ""
	if set.Machine != nil && len(set.Machine.Env) > 0 {
		w.Own = string(s.owner) // others must not find out what its variables are
	}
	return w, true
}

// takePooled gives a machine that was booted ahead.
func (r *machineResidence) takePooled() *pool.Slot {
	w, ok := r.wanted()
	if !ok {
		return nil
	}
	return r.s.manager.pool.Take(w)
}

// makeFolder makes one of a new session's: the slot's, where there is one.
func (s *session) makeFolder(name string, from *pool.Slot) error {
	dir := filepath.Join(s.dir, name)
	// What is there was left by a session that was not removed entirely.
	if err := workspace.RemoveAll(dir); err != nil {
		return err
	}
	if from != nil {
		return from.Move(name, dir)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if uid, gid := fileOwner(s.backend); uid != 0 {
		return os.Chown(dir, uid, gid)
	}
	return nil
}

// createMounts makes what programs see beside the workspace, or takes the slot's; nil: there
// is none.
func (s *session) createMounts(from *pool.Slot) error {
	if from != nil {
		return s.mounts.adopt(from.Folder)
	}
	s.mu.Lock()
	machine := s.record.Settings.Machine
	s.mu.Unlock()
	return errors.Join(makeScripts(s.dir, machine), s.mounts.create())
}

// prestarted is an interpreter that was started before its session was made.
type prestarted struct {
	runtime string
	in      sandbox.Instance
}

// adopt gives the slot up where its machine cannot be used, or there is not the memory: the
// first call boots a machine.
func (r *machineResidence) adopt(from *pool.Slot) {
	if from == nil {
		return
	}
	s, m, runtime := r.s, r.s.manager, from.Runtime()
	h := r.holder(runtime)
	in, err := from.Adopt(m.ctx, s.interpreters.spec(runtime), func(bytes int64) bool {
		_, ok := m.memory.Grow(h, bytes, m.config.OwnerMemoryBytes, m.config.TotalMemoryBytes)
		return ok
	})
	if err != nil {
		m.log.Info("a machine that was kept ready could not be used", "session", s.id, "cause", fault.CauseOf(err))
		m.memory.Set(h, 0)
		return
	}
	r.prestarted = &prestarted{runtime, in}
	r.mu.Lock()
	r.booted = time.Now()
	r.mu.Unlock()
	m.onMachineBooted()
}

// refill gives an emptied session a machine that was booted ahead, where there is one: else
// its next call boots one.
func (r *machineResidence) refill() {
	s, from := r.s, r.takePooled()
	if from == nil {
		return
	}
	for name, tree := range map[string]*workspace.Tree{workspaceFolder: s.tree, tmpFolder: s.tmp} {
		if err := tree.Replace(from.Folder(name)); err != nil { // somebody writes there already
			s.manager.log.Info("a machine that was kept ready could not be used", "session", s.id, "cause", fault.CauseOf(err))
			from.Discard()
			return
		}
	}
	if err := s.mounts.adopt(from.Folder); err != nil {
		s.manager.log.Info("a machine that was kept ready could not be used", "session", s.id, "cause", fault.CauseOf(err))
		from.Discard()
		return
	}
	r.adopt(from)
}

// usePrestarted gives the interpreter that was started before the session was made, once;
// nil where there is none, or it is another runtime's.
func (r *machineResidence) usePrestarted(runtime string) sandbox.Instance {
	spare := r.prestarted
	if spare == nil || spare.runtime != runtime {
		return nil
	}
	if hasEnded(spare.in) {
		r.dropPrestarted()
		return nil
	}
	r.prestarted = nil
	return spare.in
}

// dropPrestarted ends the interpreter that nobody used, and the session's machine where
// nobody else is in it.
func (r *machineResidence) dropPrestarted() {
	s, spare := r.s, r.prestarted
	if spare == nil {
		return
	}
	r.prestarted = nil
	if err := closeInstance(spare.in); err != nil {
		s.manager.log.Warn("an interpreter did not close well", "session", s.id, "cause", fault.CauseOf(err))
	}
	s.interpreters.releaseMemory(spare.runtime)
	r.ended()
}
