package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"paddock/internal/fault"
	"paddock/internal/lock"
	"paddock/internal/quota"
	"paddock/internal/sandbox"
	"paddock/internal/workspace"
)

// slot is a booted machine that is nobody's yet, upon two empty folders that will
// be a session's. It is used once, or not at all.
type slot struct {
	manager  *Manager
	backend  sandbox.Adopter
	machine  string       // its slotKind's
	dir      string       // has the two folders; removed with the slot
	holder   quota.Holder // of its memory
	runtime  sandbox.Runtime
	spec     sandbox.Spec // of instance
	instance sandbox.Instance
}

// bootTime bounds how long booting a slot may take.
const bootTime = time.Minute

// poolFolder has a folder for each process that keeps machines ready, locked by it.
const poolFolder = "pool"

// poolOwner is whose the memory of slots is: nobody's who could have a session.
const poolOwner Owner = ""

// ended tells whether nothing can run in the slot any more.
func (sl *slot) ended() bool {
	select {
	case <-sl.instance.Done():
		return true
	default:
		return false
	}
}

// boot makes a slot like this in a new folder. When it fails nothing is left.
func (sl *slot) boot(ctx context.Context, b sandbox.Backend) (err error) {
	ctx, cancel := context.WithTimeout(ctx, bootTime)
	defer cancel()
	if sl.spec.Mounts, err = sl.makeFolders(fileOwner(b)); err == nil {
		sl.instance, err = guard("booting ahead", func() (sandbox.Instance, error) { return b.Start(ctx, sl.spec) })
	}
	if err != nil {
		_ = workspace.RemoveAll(sl.dir) // or whoever sweeps does
		return err
	}
	if err := sl.backend.Rest(sl.instance); err != nil {
		sl.discard()
		return err
	}
	sl.manager.memory.Set(sl.holder, max(sl.backend.Memory(sl.spec.Owner, sl.spec.Box), 1))
	return nil
}

// makeFolders makes the slot's, and gives the spec's mounts with them.
func (sl *slot) makeFolders(uid, gid int) ([]sandbox.Mount, error) {
	mounts := slices.Clone(sl.spec.Mounts)
	err := os.Mkdir(sl.dir, 0o700)
	for n := range mounts {
		dir := filepath.Join(sl.dir, filepath.Base(mounts[n].Host))
		if err == nil {
			err = os.Mkdir(dir, 0o700)
		}
		if err == nil && uid != 0 {
			err = os.Chown(dir, uid, gid)
		}
		mounts[n].Host = dir
	}
	return mounts, err
}

// discard ends a slot that nobody will use, and waits. The nil slot is none.
func (sl *slot) discard() {
	if sl == nil {
		return
	}
	_, err := guard("closing", func() (struct{}, error) { return struct{}{}, sl.instance.Close() })
	sl.manager.memory.Set(sl.holder, 0)
	if err = errors.Join(err, workspace.RemoveAll(sl.dir)); err != nil {
		sl.manager.log.Warn("a machine that was kept ready did not end well", "cause", causeOf(err))
	}
}

// makeFolder makes one of a new session's: the slot's, where there is one.
func (s *session) makeFolder(name string, from *slot) error {
	dir := filepath.Join(s.dir, name)
	// What is there was left by a session that was not removed entirely.
	if err := workspace.RemoveAll(dir); err != nil {
		return err
	}
	if from != nil {
		return os.Rename(filepath.Join(from.dir, name), dir)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if uid, gid := fileOwner(s.backend); uid != 0 {
		return os.Chown(dir, uid, gid)
	}
	return nil
}

// adopt makes a slot's machine the session's, which has its folders already. Where
// that does not work, or there is not the memory, the slot is given up, and the
// first call boots a machine.
func (s *session) adopt(from *slot) {
	if from == nil {
		return
	}
	m := s.manager
	h, memory := s.holder(from.runtime.Name), max(from.backend.Memory(from.spec.Owner, from.spec.Box), 1)
	m.memory.Set(from.holder, 0)
	if _, ok := m.memory.Grow(h, memory, m.config.OwnerMemoryBytes, m.config.TotalMemoryBytes); !ok {
		from.discard()
		return
	}
	if err := from.backend.Adopt(m.ctx, from.instance, s.spec(from.runtime.Name)); err != nil {
		m.log.Info("a machine that was kept ready could not be used", "session", s.id, "cause", causeOf(err))
		from.discard()
		m.memory.Set(h, 0)
		m.pool.renew(from)
		return
	}
	_ = os.Remove(from.dir) // it is empty; or whoever sweeps removes it
	s.spare = from
	s.mu.Lock()
	s.booted = time.Now()
	s.mu.Unlock()
	m.machineUp()
}

// useSpare gives the interpreter that was started before the session was made, once;
// nil where there is none, or it is another runtime's.
func (s *session) useSpare(runtime string) sandbox.Instance {
	spare := s.spare
	if spare == nil || spare.runtime.Name != runtime {
		return nil
	}
	if spare.ended() {
		s.dropSpare()
		return nil
	}
	s.spare = nil
	return spare.instance
}

// dropSpare ends the interpreter that nobody used, and the session's machine where
// nobody else is in it.
func (s *session) dropSpare() {
	spare := s.spare
	if spare == nil {
		return
	}
	s.spare = nil
	if _, err := guard("closing", func() (struct{}, error) { return struct{}{}, spare.instance.Close() }); err != nil {
		s.manager.log.Warn("an interpreter did not close well", "session", s.id, "cause", causeOf(err))
	}
	s.releaseMemory(spare.runtime.Name)
	s.machineLess()
}

// openPool makes and locks the folder of this process's slots, and removes those of
// processes that have ended.
func (m *Manager) openPool() (dir string, unlock func(), err error) {
	m.sweepPools()
	for range 5 { // whoever sweeps may have been faster
		dir = filepath.Join(m.config.Dir, poolFolder, mint("p-"))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", nil, err
		}
		if unlock, err = lock.Try(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE); unlock != nil || err != nil {
			return dir, unlock, err
		}
	}
	return "", nil, fault.New(fault.Unavailable, "a lock in the state folder cannot be taken")
}

// sweepPools removes the folders of processes that have ended.
func (m *Manager) sweepPools() {
	top := filepath.Join(m.config.Dir, poolFolder)
	entries, err := os.ReadDir(top)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.log.Warn("machines that were kept ready cannot be swept", "cause", err)
	}
	for _, e := range entries {
		if err := sweepPool(filepath.Join(top, e.Name())); err != nil {
			m.log.Warn("what was kept ready by a process that ended cannot be removed", "cause", err)
		}
	}
}

func sweepPool(dir string) error {
	file := filepath.Join(dir, lockFile)
	unlock, err := lock.Try(file, os.O_RDWR)
	if err != nil {
		return err
	}
	if unlock == nil { // somebody has it, or it is not there
		info, err := os.Stat(dir)
		if _, there := os.Lstat(file); err != nil || there == nil || time.Since(info.ModTime()) < sweepEvery {
			return nil // or it is in the making
		}
		return workspace.RemoveAll(dir)
	}
	return removeFolder(dir, unlock)
}

// kindOf is what a slot has to be to become a new session's: its Spec with neither
// an owner nor the places of folders. It is false where no slot can be: what is in
// the machine beside the session's folders is its owner's.
func (s *session) kindOf() (spec sandbox.Spec, key string, ok bool) {
	spec = s.spec("")
	if len(spec.Mounts) != 2 || spec.Limits.Metered {
		return spec, "", false
	}
	spec.Owner, spec.Box, spec.Snapshots = string(poolOwner), "", false
	spec.Mounts = slices.Clone(spec.Mounts)
	for n := range spec.Mounts {
		spec.Mounts[n].Host = filepath.Base(spec.Mounts[n].Host)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	owner := Owner("")
	if machine := s.record.Settings.Machine; machine != nil && len(machine.Env) > 0 {
		owner = s.owner // others must not find out what its variables are by how long their machines take
	}
	// fmt prints maps in the order of their keys.
	return spec, fmt.Sprintf("%q %q %q", s.record.Isolation, owner, fmt.Sprint(spec.Image, spec.CPUs, spec.Limits, spec.Env, spec.Mounts)), true
}
