//go:build linux && (amd64 || arm64)

package gvisorfix

import (
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"unsafe"

	pkgcontext "gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/gofer"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/ktime"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// CachedFolder is a folder of the host in a box that changes from outside only when the
// server says so.
type CachedFolder struct {
	Guest   string   `json:"guest"`
	Aliases []string `json:"aliases,omitempty"` // further places where the box has the same folder
}

// CacheFolders has the sentry remember what is in folders, in place of asking the host at
// each part of each path. generation is a number that whoever changes the folders from
// outside raises afterwards: at its next system call each task waits until all that is
// remembered has been compared with the host. nil: nothing is remembered.
//
// What a program writes goes to the host at once, as before.
//
// A sentry calls it before its box begins, or goes on. It says what keeps it from it.
func CacheFolders(generation *atomic.Uint64, folders []CachedFolder) error {
	if err := FoldersCanBeCached(); err != nil {
		return err
	}
	cached = &folderCache{generation: generation, folders: folders}
	return nil
}

// FoldersCanBeCached says why they cannot be; nil: nothing is known against it.
func FoldersCanBeCached() error {
	_, err := goferLayout()
	return err
}

// cached is the sentry's, nil: there is none.
var cached *folderCache

// folderCache is what a sentry remembers of folders.
//
// Lock order: mu, then the locks of gVisor's filesystem.
type folderCache struct {
	generation *atomic.Uint64 // the server's; nil: nothing is remembered
	folders    []CachedFolder
	once       sync.Once

	mu   sync.Mutex // held by the task that compares
	seen atomic.Uint64
	held []unsafe.Pointer // of gofer.filesystem; immutable after once
}

// begin is called before a task runs. The first call sets the folders up.
func (c *folderCache) begin(ctx pkgcontext.Context) {
	if c != nil {
		c.once.Do(func() { c.setUp(ctx) })
	}
}

// look is called when a task has stopped running its program: what it does next sees
// all that was there when the number was raised.
func (c *folderCache) look(ctx pkgcontext.Context) {
	if c == nil || c.generation == nil || c.generation.Load() == c.seen.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.generation.Load()
	if now == c.seen.Load() {
		return
	}
	for _, fs := range c.held {
		compare(ctx, fs)
	}
	c.seen.Store(now)
}

// setUp changes the mode of the folders. One that cannot be changed is as it was.
func (c *folderCache) setUp(ctx pkgcontext.Context) {
	for _, f := range c.folders {
		fs, err := c.find(ctx, f)
		if err != nil {
			log.Warningf("the folder %s is not cached: %v", f.Guest, err)
			continue
		}
		mode := gofer.InteropModeShared
		if c.generation != nil {
			mode = gofer.InteropModeWritethrough
			c.held = append(c.held, fs)
		}
		l, _ := goferLayout()
		*(*gofer.InteropMode)(unsafe.Add(fs, l.fs.interop)) = mode
		clock := (*ktime.Clock)(unsafe.Add(fs, l.fs.clock))
		if _, coarse := (*clock).(*hostClock); !coarse {
			*clock = &hostClock{Clock: *clock}
		}
		if mode == gofer.InteropModeShared {
			compare(ctx, fs) // a saved box may have remembered something
		}
	}
}

// find gives the filesystem of a folder. All its aliases are shown from the same one
// afterwards: two would not know what the other one changes.
func (c *folderCache) find(ctx pkgcontext.Context, f CachedFolder) (unsafe.Pointer, error) {
	k := kernel.KernelFromContext(ctx)
	if k == nil || k.GlobalInit() == nil || k.GlobalInit().Leader() == nil {
		return nil, fmt.Errorf("the box has no first program")
	}
	root := k.GlobalInit().Leader().MountNamespace().Root(ctx)
	defer root.DecRef(ctx)
	creds := auth.NewRootCredentials(k.RootUserNamespace())
	at := func(path string) *vfs.PathOperation {
		return &vfs.PathOperation{Root: root, Start: root, Path: fspath.Parse(path)}
	}
	filesystem := func(path string) (*vfs.Filesystem, error) {
		vd, err := k.VFS().GetDentryAt(ctx, creds, at(path), &vfs.GetDentryOptions{})
		if err != nil {
			return nil, fmt.Errorf("looking at %s: %w", path, err)
		}
		defer vd.DecRef(ctx)
		return vd.Mount().Filesystem(), nil
	}
	folder, err := filesystem(f.Guest)
	if err != nil {
		return nil, err
	}
	for _, alias := range f.Aliases {
		now, err := filesystem(alias)
		if err == nil && now != folder {
			err = k.VFS().BindAt(ctx, creds, at(f.Guest), at(alias), false)
		}
		if err != nil {
			return nil, fmt.Errorf("showing it at %s: %w", alias, err)
		}
	}
	l, _ := goferLayout()
	fs := reflect.ValueOf(folder.Impl())
	if fs.Type() != l.filesystem || fs.IsNil() {
		return nil, fmt.Errorf("it is a %s", fs.Type())
	}
	if root := l.root(fs.UnsafePointer()); !l.direct(l.inode(root)) {
		return nil, fmt.Errorf("the sentry does not open its files itself")
	}
	return fs.UnsafePointer(), nil
}
