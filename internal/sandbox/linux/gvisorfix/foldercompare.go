//go:build linux && (amd64 || arm64)

package gvisorfix

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
	pkgcontext "gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/fsutil"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// compare makes all that a filesystem of the gofer client remembers what the host has:
// it forgets which names are not there, and what is in folders; a name that is gone on
// the host, or means another file, is dropped as gVisor itself drops it in its
// shared mode; and sizes, times and modes are the host's.
//
// Nothing finds a path meanwhile.
func compare(ctx pkgcontext.Context, fs unsafe.Pointer) {
	l, _ := goferLayout()
	c := comparison{layout: l, ctx: ctx, fs: fs, vfs: l.vfs(fs).VirtualFilesystem(), seen: map[unsafe.Pointer]struct{}{}}
	l.renameMu(fs).Lock()
	root := l.root(fs)
	c.update(l.inode(root))
	for c.folders = []unsafe.Pointer{root}; len(c.folders) > 0; {
		last := len(c.folders) - 1
		d := c.folders[last]
		c.folders = c.folders[:last]
		c.folder(d)
	}
	c.nameless()
	unlockAndCheckCaching(fs, ctx, &c.dropped) // it unlocks renameMu
}

// comparison is one comparison of one filesystem, with its renameMu locked.
type comparison struct {
	*layout
	ctx     pkgcontext.Context
	fs      unsafe.Pointer
	vfs     *vfs.VirtualFilesystem
	folders []unsafe.Pointer            // dentries whose children are to be looked at
	seen    map[unsafe.Pointer]struct{} // inodes that were
	names   []name
	dropped unsafe.Pointer // *[]*dentry: what may be destroyed now
}

// name is a dentry in its folder.
type name struct {
	name   string
	dentry unsafe.Pointer
}

// folder compares what is remembered of one folder.
func (c *comparison) folder(d unsafe.Pointer) {
	c.names = c.takeNames(d, c.names[:0])
	parent := c.inode(d)
	if !c.direct(parent) {
		return // the sentry's own, as is all that is in it
	}
	fd := c.controlFD(parent)
	for _, n := range c.names {
		i := c.inode(n.dentry)
		mu := c.metadataMu(i)
		mu.Lock() // before the host is asked, so that nothing newer is overwritten
		stat, err := fsutil.StatAt(fd, n.name)
		gone := errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
		switch {
		case err == nil && c.direct(i) && c.is(i, &stat):
			c.take(i, &stat)
			mu.Unlock()
			c.seen[i] = struct{}{}
			if stat.Mode&unix.S_IFMT == unix.S_IFDIR {
				c.folders = append(c.folders, n.dentry)
			}
		case err != nil && (!gone || !c.direct(i)):
			// The host refuses the look, as it would refuse a program; or it is the
			// sentry's own, such as a socket.
			mu.Unlock()
		default:
			mu.Unlock()
			invalidate(n.dentry, c.ctx, c.vfs, &c.dropped)
		}
	}
}

// nameless compares the files that are open and have no name here any more: they may get
// one again.
func (c *comparison) nameless() {
	var rest []unsafe.Pointer
	mu := c.inodeMu(c.fs)
	mu.Lock()
	for at := c.inodes(c.fs).MapRange(); at.Next(); {
		i := at.Value().UnsafePointer()
		if _, done := c.seen[i]; !done && c.direct(i) {
			rest = append(rest, i)
		}
	}
	mu.Unlock()
	for _, i := range rest {
		c.update(i)
	}
}

// update takes what the host says of an open file.
func (c *comparison) update(i unsafe.Pointer) {
	mu := c.metadataMu(i)
	mu.Lock()
	defer mu.Unlock()
	var stat unix.Stat_t
	if unix.Fstat(c.controlFD(i), &stat) == nil && c.isType(i, &stat) {
		c.take(i, &stat)
	}
}

// take has an inode be what the host says. Its metadataMu is locked.
func (c *comparison) take(i unsafe.Pointer, stat *unix.Stat_t) {
	c.atimeDirty(i).Store(0)
	c.mtimeDirty(i).Store(0)
	if stat.Mode&unix.S_IFMT == unix.S_IFLNK {
		c.forgetTarget(i)
	}
	_ = updateFromStat(i, stat) // never fails
}

// Of gVisor's gofer client: dentry.invalidate drops a name and all below it,
// directfsInode.updateMetadataFromStatLocked takes what the host says, and
// filesystem.renameMuUnlockAndCheckCaching unlocks renameMu and destroys what nothing
// needs any more.
//
//go:linkname invalidate gvisor.dev/gvisor/pkg/sentry/fsimpl/gofer.(*dentry).invalidate
func invalidate(d unsafe.Pointer, ctx pkgcontext.Context, vfsObj *vfs.VirtualFilesystem, dropped *unsafe.Pointer)

//go:linkname updateFromStat gvisor.dev/gvisor/pkg/sentry/fsimpl/gofer.(*directfsInode).updateMetadataFromStatLocked
func updateFromStat(i unsafe.Pointer, stat *unix.Stat_t) error

//go:linkname unlockAndCheckCaching gvisor.dev/gvisor/pkg/sentry/fsimpl/gofer.(*filesystem).renameMuUnlockAndCheckCaching
func unlockAndCheckCaching(fs unsafe.Pointer, ctx pkgcontext.Context, dropped *unsafe.Pointer)
