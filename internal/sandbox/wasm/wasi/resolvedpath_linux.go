package wasi

import (
	"bytes"
	"encoding/binary"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rootDir is the folder of a Dir as a descriptor, opened when it is needed first.
// It is nothing where that fails: then [os.Root] does everything.
type rootDir struct {
	use  sync.RWMutex // held for reading while the descriptor is used
	once sync.Once
	file *os.File
}

func (t *rootDir) close() {
	t.use.Lock()
	defer t.use.Unlock()
	t.once.Do(func() {})
	if t.file != nil {
		t.file.Close()
		t.file = nil
	}
}

// resolvedPath is a name in a Dir, on which several things are done. The folder in
// which it lies is open, so that it is looked for once, and by one system call
// instead of one for each part of its path.
//
// That is done only for names with no link on their way: the kernel refuses to
// follow any, above the name by openat2's RESOLVE_NO_SYMLINKS, at the name by
// the flags of each call. What it refuses, and whatever else goes wrong on the
// way, is left to os.Root.
type resolvedPath struct {
	rootPath
	top    *rootDir // to be let go
	folder int      // the folder's descriptor; -1: there is none
	base   string   // the name in it
	own    bool     // whether the descriptor is to be closed
}

// at begins the use of a name; close ends it.
func (d *Dir) at(name string) resolvedPath {
	t := &d.top
	t.use.RLock()
	t.once.Do(func() { t.file, _ = d.root.Open(".") })
	s := resolvedPath{rootPath: rootPath{d.root, name}, top: t, folder: -1}
	s.resolve(nil)
	return s
}

// sibling is another name in the same Dir, to be closed before s is.
func (s resolvedPath) sibling(name string) resolvedPath {
	other := resolvedPath{rootPath: rootPath{s.root, name}, top: s.top, folder: -1}
	other.resolve(&s)
	other.top = nil
	return other
}

// resolve opens the folder, unless near has it open.
func (s *resolvedPath) resolve(near *resolvedPath) {
	if s.top.file == nil || !fs.ValidPath(s.name) { // a valid one has no ".."
		return
	}
	i := strings.LastIndexByte(s.name, '/')
	s.base = s.name[i+1:]
	switch {
	case i < 0:
		s.folder = int(s.top.file.Fd())
	case near != nil && near.own && strings.TrimSuffix(near.name, near.base) == s.name[:i+1]:
		s.folder = near.folder
	default:
		s.folder = openBelow(int(s.top.file.Fd()), s.name[:i])
		s.own = s.folder >= 0
	}
}

// openBelow opens a folder for nothing but to look for names in it; -1 if it
// cannot be, or a link is on the way. A link that is put there meanwhile is
// refused by the kernel as well.
func openBelow(folder int, name string) int {
	fd := -1
	err := again(func() (err error) {
		fd, err = unix.Openat2(folder, name, &unix.OpenHow{
			Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
		})
		return err
	})
	if err != nil {
		return -1
	}
	return fd
}

func (s resolvedPath) close() {
	if s.own {
		unix.Close(s.folder)
	}
	if s.top != nil {
		s.top.use.RUnlock()
	}
}

// again repeats a system call that a signal has ended.
func again(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}

func (s resolvedPath) stat(follow bool) (stat, errno) {
	if s.folder < 0 {
		return s.rootPath.stat(follow)
	}
	found, err := statBelow(s.folder, s.base)
	if err != nil {
		return stat{}, errnoOf(err)
	}
	if follow && found.kind == typeSymlink {
		return s.rootPath.stat(follow)
	}
	return found, success
}

// statBelow looks at a name in a folder, which may be a link.
func statBelow(folder int, name string) (stat, error) {
	var sys unix.Stat_t
	if err := again(func() error { return unix.Fstatat(folder, name, &sys, unix.AT_SYMLINK_NOFOLLOW) }); err != nil {
		return stat{}, err
	}
	return statOfSys((*syscall.Stat_t)(unsafe.Pointer(&sys))), nil // both are the kernel's
}

func (s resolvedPath) open(flags int) (*content, error) {
	if s.folder >= 0 {
		fd, err := openAt(s.folder, s.base, flags)
		if err != unix.ELOOP {
			return newContent(fd, err)
		}
	}
	f, err := s.rootPath.open(flags)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return newContent(unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0))
}

// openAt opens a name in a folder; ELOOP if it is a link.
func openAt(folder int, name string, flags int) (fd int, err error) {
	err = again(func() (err error) {
		fd, err = unix.Openat(folder, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o666)
		return err
	})
	return fd, err
}

func (s resolvedPath) mkdir() error {
	if s.folder < 0 {
		return s.rootPath.mkdir()
	}
	return again(func() error { return unix.Mkdirat(s.folder, s.base, 0o777) })
}

func (s resolvedPath) remove(folder bool) error {
	if s.folder < 0 {
		return s.rootPath.remove(folder)
	}
	flags := 0
	if folder {
		flags = unix.AT_REMOVEDIR
	}
	return again(func() error { return unix.Unlinkat(s.folder, s.base, flags) })
}

func (s resolvedPath) rename(to resolvedPath) error {
	if s.folder < 0 || to.folder < 0 {
		return s.rootPath.rename(to.rootPath)
	}
	return again(func() error { return unix.Renameat(s.folder, s.base, to.folder, to.base) })
}

// list does not ask about each entry, as the folder tells a name's kind and
// number too.
func (s resolvedPath) list(room int) ([]entry, errno) {
	if s.folder < 0 {
		return s.rootPath.list(room)
	}
	// What is not a folder is not opened.
	fd, err := openAt(s.folder, s.base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
	if err != nil {
		return s.rootPath.list(room) // it may be a link
	}
	defer unix.Close(fd)
	buffer := listBuffers.Get().(*[]byte)
	defer listBuffers.Put(buffer)
	var entries []entry
	for {
		var n int
		err := again(func() (err error) { n, err = unix.Getdents(fd, *buffer); return err })
		if err != nil || n <= 0 {
			return entries, success
		}
		for some := (*buffer)[:n]; len(some) > 0; {
			var e entry
			if e, some = nextEntry(fd, some); e.name == "" {
				continue
			}
			entries = append(entries, e)
			if room -= e.bytes(); room < 0 {
				return nil, enomem
			}
		}
	}
}

var listBuffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// nextEntry takes one entry, a struct linux_dirent64, from what the kernel told
// of the folder fd. It has no name where there is nothing to tell: an entry
// that is gone, or one of "." and "..".
func nextEntry(fd int, some []byte) (e entry, rest []byte) {
	const inodeAt, lengthAt, kindAt, nameAt = 0, 16, 18, 19
	if len(some) < nameAt {
		return entry{}, nil
	}
	length := int(binary.NativeEndian.Uint16(some[lengthAt:]))
	if length < nameAt || length > len(some) {
		return entry{}, nil
	}
	name, _, _ := bytes.Cut(some[nameAt:length], []byte{0})
	e = entry{string(name), kindOfEntry(some[kindAt]), binary.NativeEndian.Uint64(some[inodeAt:])}
	switch {
	case e.name == "." || e.name == ".." || e.inode == 0:
		e.name = ""
	case some[kindAt] == unix.DT_UNKNOWN: // not every file system tells it
		found, err := statBelow(fd, e.name)
		if err != nil {
			return entry{}, some[length:]
		}
		e.kind = found.kind
	}
	return e, some[length:]
}

func kindOfEntry(kind byte) uint8 {
	switch kind {
	case unix.DT_REG:
		return typeRegular
	case unix.DT_DIR:
		return typeFolder
	case unix.DT_LNK:
		return typeSymlink
	case unix.DT_BLK:
		return typeBlock
	case unix.DT_CHR:
		return typeChar
	}
	return typeUnknown
}

// content is an open file of the host. An os.File would ask the kernel whether
// it can be waited for, which no regular file can be.
type content struct{ fd int }

func newContent(fd int, err error) (*content, error) {
	if err != nil {
		return nil, err
	}
	return &content{fd}, nil
}

func (c *content) Fd() uintptr { return uintptr(c.fd) }

// ReadAt and the others are as those of os.File.
func (c *content) ReadAt(p []byte, offset int64) (n int, err error) {
	return c.transfer(unix.Pread, p, offset, io.EOF)
}

func (c *content) WriteAt(p []byte, offset int64) (n int, err error) {
	return c.transfer(unix.Pwrite, p, offset, io.ErrUnexpectedEOF)
}

// transfer calls f until p is done; end is the error when nothing more is.
func (c *content) transfer(f func(fd int, p []byte, offset int64) (int, error), p []byte, offset int64, end error) (n int, err error) {
	for n < len(p) {
		var more int
		err := again(func() (err error) { more, err = f(c.fd, p[n:], offset+int64(n)); return err })
		if err != nil {
			return n, err
		}
		if more <= 0 {
			return n, end
		}
		n += more
	}
	return n, nil
}

func (c *content) Truncate(size int64) error {
	return again(func() error { return unix.Ftruncate(c.fd, size) })
}

func (c *content) Sync() error { return again(func() error { return unix.Fsync(c.fd) }) }

// Close closes the file. Nobody may be using it.
func (c *content) Close() error {
	fd := c.fd
	c.fd = -1
	return unix.Close(fd)
}
