package pool

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/workspace"
)

// Slot is a booted machine that is nobody's yet, upon empty folders that will be a
// session's. Whoever took it moves the folders and adopts it, or discards it; it is
// for one goroutine.
type Slot struct {
	pool     *Pool
	backend  sandbox.Adopter
	machine  string // its kind's
	dir      string // has the folders; removed with the slot
	runtime  sandbox.Runtime
	spec     sandbox.Spec // of instance
	instance sandbox.Instance
}

// bootTime bounds how long booting a slot may take.
const bootTime = time.Minute

// ended tells whether nothing can run in the slot any more.
func (sl *Slot) ended() bool {
	select {
	case <-sl.instance.Done():
		return true
	default:
		return false
	}
}

// boot boots it in a new folder. When it fails nothing is left.
func (sl *Slot) boot(ctx context.Context, w Want) (err error) {
	ctx, cancel := context.WithTimeout(ctx, bootTime)
	defer cancel()
	if sl.spec.Mounts, err = sl.makeFolders(w.UID, w.GID); err == nil {
		sl.instance, err = sl.pool.config.Start(ctx, w.Backend, sl.spec)
	}
	if err != nil {
		_ = workspace.RemoveAll(sl.dir) // or whoever sweeps does
		return err
	}
	if err := sl.backend.Suspend(sl.instance); err != nil {
		sl.Discard()
		return err
	}
	sl.pool.config.Set(sl.spec.Box, sl.memory())
	return nil
}

// memory is what its machine takes, in bytes: something.
func (sl *Slot) memory() int64 { return max(sl.backend.Memory(sl.spec.Owner, sl.spec.Box), 1) }

// makeFolders makes the slot's, and gives the spec's mounts with them.
func (sl *Slot) makeFolders(uid, gid int) ([]sandbox.Mount, error) {
	mounts := slices.Clone(sl.spec.Mounts)
	err := os.Mkdir(sl.dir, 0o700)
	for n := range mounts {
		dir := filepath.Join(sl.dir, mounts[n].Host)
		if err == nil {
			err = makeFolder(dir, mounts[n].ReadOnly, uid, gid)
		}
		mounts[n].Host = dir
	}
	return mounts, err
}

// makeFolder makes one. What machines may only read is ours, and can be read by anybody.
func makeFolder(dir string, readOnly bool, uid, gid int) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if readOnly {
		return os.Chmod(dir, 0o755)
	}
	if uid != 0 {
		return os.Chown(dir, uid, gid)
	}
	return nil
}

// Runtime is that of its interpreter.
func (sl *Slot) Runtime() string { return sl.runtime.Name }

// Move makes one of the slot's folders what is at to; nothing is there yet. name is
// the last part of what its Mount in the Want had as its place.
func (sl *Slot) Move(name, to string) error { return os.Rename(filepath.Join(sl.dir, name), to) }

// Folder is where one of the slot's folders is, for who moves it in another way.
func (sl *Slot) Folder(name string) string { return filepath.Join(sl.dir, name) }

// Adopt makes the machine that of spec's box, which has the slot's folders already;
// grow lets the box take so much memory, in bytes, if there is so much. It gives the
// interpreter in it. After an error the slot is discarded, and where the machine was
// not what spec asks for, those like it are replaced.
func (sl *Slot) Adopt(ctx context.Context, spec sandbox.Spec, grow func(bytes int64) bool) (sandbox.Instance, error) {
	memory := sl.memory()
	sl.pool.config.Set(sl.spec.Box, 0)
	if !grow(memory) {
		sl.Discard()
		return nil, errNoRoom
	}
	if err := sl.backend.Adopt(ctx, sl.instance, spec); err != nil {
		sl.Discard()
		sl.pool.renew(sl.machine)
		return nil, err
	}
	_ = os.Remove(sl.dir) // it is empty; or whoever sweeps removes it
	return sl.instance, nil
}

// Discard ends a slot that nobody will use, and waits. The nil slot is none.
func (sl *Slot) Discard() {
	if sl == nil {
		return
	}
	err := sl.pool.config.End(sl.instance)
	sl.pool.config.Set(sl.spec.Box, 0)
	if err = errors.Join(err, workspace.RemoveAll(sl.dir)); err != nil {
		sl.pool.config.Log.Warn("a machine that was kept ready did not end well", "cause", fault.CauseOf(err))
	}
}
