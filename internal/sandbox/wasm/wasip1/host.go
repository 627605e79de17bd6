package wasi

import (
	"io"
	"path"
	"strings"
	"time"
)

// What follows are the same files, by the same rules, for a host that serves
// a guest without WASI's path calls. Paths are absolute guest paths. Errors
// are of type [FileError].

// FileError is a failure with one of WASI's numbers.
type FileError struct{ number errno }

func (e FileError) Error() string { return ErrorName(e) }

// ErrUnknown is the error of a call that there is not.
var ErrUnknown error = FileError{enosys}

var errorNames = map[errno]string{
	eacces: "EACCES", ebadf: "EBADF", eexist: "EEXIST", efault: "EFAULT", efbig: "EFBIG", eintr: "EINTR", einval: "EINVAL",
	eio: "EIO", eisdir: "EISDIR", eloop: "ELOOP", emfile: "EMFILE", enametoolong: "ENAMETOOLONG", enoent: "ENOENT",
	enospc: "ENOSPC", enosys: "ENOSYS", enotdir: "ENOTDIR", enotempty: "ENOTEMPTY", enotsup: "ENOTSUP", eperm: "EPERM",
	erofs: "EROFS", espipe: "ESPIPE", exdev: "EXDEV",
}

// ErrorName is the error's name as C and Node know it: "ENOENT".
func ErrorName(err error) string {
	if f, ok := err.(FileError); ok {
		if name := errorNames[f.number]; name != "" {
			return name
		}
	}
	return "EIO"
}

func (s *System) fail(e errno) error {
	if e == success {
		return nil
	}
	if e == enospc {
		s.full = true
	}
	return FileError{e}
}

// place is where a host's path leads.
func (s *System) place(name string) (place, errno) {
	if len(name) > maxPath {
		return place{}, enametoolong
	}
	if strings.ContainsRune(name, 0) {
		return place{}, einval
	}
	return s.space.find(path.Clean("/" + name)), success
}

// Random fills b.
func (s *System) Random(b []byte) {
	// The source is the system's, which does not fail.
	_, _ = io.ReadFull(s.config.Random, b)
}

// maxWhole bounds a file that is read in one piece.
const maxWhole = 256 << 20

// ReadFile gives a file's content.
func (s *System) ReadFile(name string) ([]byte, error) {
	p, e := s.place(name)
	if e != success {
		return nil, s.fail(e)
	}
	d, e := s.open(p, opening{read: true})
	if e != success {
		return nil, s.fail(e)
	}
	defer d.close()
	if d.isFolder() {
		return nil, s.fail(eisdir)
	}
	size, err := d.size()
	if err != nil || size > maxWhole {
		return nil, s.fail(efbig)
	}
	b := make([]byte, size)
	n, e := d.readAt(b, 0)
	return b[:n], s.fail(e)
}

// WriteMode is how WriteFile treats a file that is there: without any, it is
// replaced.
type WriteMode struct{ Append, Exclusive bool }

// WriteFile writes a file.
func (s *System) WriteFile(name string, data []byte, mode WriteMode) error {
	p, e := s.place(name)
	if e != success {
		return s.fail(e)
	}
	d, e := s.open(p, opening{write: true, create: true, exclusive: mode.Exclusive, trunc: !mode.Append, append: mode.Append})
	if e != success {
		return s.fail(e)
	}
	defer d.close()
	if d.kind != file {
		return s.fail(eisdir)
	}
	offset := int64(0)
	if mode.Append {
		offset = -1
	}
	_, _, err := d.dir.writeAt(d.file, data, offset)
	return s.fail(errnoOf(err))
}

// Info is what there is to know of a file. Times are in ns since 1970.
type Info struct {
	Kind     string `json:"kind"` // "file", "folder", "link", "other"
	Size     int64  `json:"size"`
	Number   uint64 `json:"ino,string"`
	Links    uint64 `json:"nlink"`
	Accessed int64  `json:"atime,string"`
	Modified int64  `json:"mtime,string"`
	Changed  int64  `json:"ctime,string"`
}

func kindName(kind uint8) string {
	switch kind {
	case typeRegular:
		return "file"
	case typeFolder:
		return "folder"
	case typeSymlink:
		return "link"
	}
	return "other"
}

// Stat looks at a file.
func (s *System) Stat(name string, follow bool) (Info, error) {
	p, e := s.place(name)
	if e != success {
		return Info{}, s.fail(e)
	}
	t, e := s.statAt(p, follow)
	return Info{kindName(t.kind), t.size, t.number, t.links, t.accessed, t.modified, t.changed}, s.fail(e)
}

// Entry is one name in a folder.
type Entry struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
}

// ReadDir lists a folder.
func (s *System) ReadDir(name string) ([]Entry, error) {
	p, e := s.place(name)
	if e != success {
		return nil, s.fail(e)
	}
	found, e := s.list(p)
	if e != success {
		return nil, s.fail(e)
	}
	entries := make([]Entry, 0, len(found))
	for _, x := range found[2:] { // without "." and ".."
		entries = append(entries, Entry{x.name, kindName(x.kind)})
	}
	return entries, nil
}

// change finds the folder in which the thing at name may be changed.
func (s *System) change(name string) (*Dir, place, errno) {
	p, e := s.place(name)
	if e != success {
		return nil, p, e
	}
	d, e := inside(p)
	return d, p, e
}

// Mkdir makes a folder.
func (s *System) Mkdir(name string) error {
	p, e := s.place(name)
	if e != success {
		return s.fail(e)
	}
	if _, e := s.statAt(p, false); e == success {
		return s.fail(eexist)
	}
	d, e := inside(p)
	if e != success {
		return s.fail(e)
	}
	return s.fail(errnoOf(d.make(func() error { return d.root.Mkdir(p.rel, 0o777) })))
}

// Unlink removes what is not a folder.
func (s *System) Unlink(name string) error { return s.removeKind(name, false) }

// Rmdir removes an empty folder.
func (s *System) Rmdir(name string) error { return s.removeKind(name, true) }

func (s *System) removeKind(name string, isFolder bool) error {
	p, e := s.place(name)
	if e != success {
		return s.fail(e)
	}
	t, e := s.statAt(p, false)
	switch {
	case e != success:
		return s.fail(e)
	case isFolder && t.kind != typeFolder:
		return s.fail(enotdir)
	case !isFolder && t.kind == typeFolder:
		return s.fail(eisdir)
	}
	d, e := inside(p)
	if e != success {
		return s.fail(e)
	}
	defer d.gone()
	return s.fail(errnoOf(d.root.Remove(p.rel)))
}

// Rename moves a file or folder within its mount.
func (s *System) Rename(from, to string) error {
	p, e := s.place(from)
	if e == success {
		_, e = s.statAt(p, false)
	}
	if e != success {
		return s.fail(e)
	}
	d, e := inside(p)
	if e != success {
		return s.fail(e)
	}
	_, q, e := s.change(to)
	if e == success && p.mount != q.mount {
		e = exdev
	}
	if e != success {
		return s.fail(e)
	}
	defer d.gone()
	return s.fail(errnoOf(d.root.Rename(p.rel, q.rel)))
}

// Symlink makes a link at name; for its target see path_symlink.
func (s *System) Symlink(target, name string) error {
	d, p, e := s.change(name)
	if e != success {
		return s.fail(e)
	}
	return s.fail(s.link(d, p, target))
}

// Readlink gives a link's target.
func (s *System) Readlink(name string) (string, error) {
	p, e := s.place(name)
	if e == success && (p.mount == nil || p.mount.Dir == nil) {
		e = einval
	}
	if e != success {
		return "", s.fail(e)
	}
	target, err := p.mount.Dir.root.Readlink(p.rel)
	return target, s.fail(errnoOf(err))
}

// Truncate makes a file size bytes long.
func (s *System) Truncate(name string, size int64) error {
	p, e := s.place(name)
	if e != success || size < 0 {
		return s.fail(einval)
	}
	d, e := s.open(p, opening{write: true})
	if e != success {
		return s.fail(e)
	}
	defer d.close()
	if d.kind != file {
		return s.fail(eisdir)
	}
	return s.fail(errnoOf(d.dir.resize(d.file, size)))
}

// SetTimes sets when a file was used and changed, in ns since 1970.
func (s *System) SetTimes(name string, accessed, modified int64) error {
	d, p, e := s.change(name)
	if e != success {
		return s.fail(e)
	}
	return s.fail(errnoOf(d.root.Chtimes(p.rel, time.Unix(0, accessed), time.Unix(0, modified))))
}
