package wasi

import (
	"slices"
	"strings"
)

// kind is what a descriptor stands for.
type kind uint8

const (
	stream kind = iota + 1 // stdin, stdout or stderr
	root                   // "/", the preopened folder
	folder
	file
	dead // what a restored System could not open again
)

const (
	streams = 3 // on the descriptors 0 to 2
	rootFD  = 3 // stays what it is for good: without it the guest's libc is lost
)

// The flags of a descriptor.
const (
	flagAppend   = 1
	flagDsync    = 2
	flagNonblock = 4
	flagRsync    = 8
	flagSync     = 16
	flagsSync    = flagDsync | flagRsync | flagSync
	flagsAll     = flagsSync | flagAppend | flagNonblock
)

// descriptor is one entry of the table.
type descriptor struct {
	kind        kind
	stream      int    // which one, if it is one
	path        string // clean guest path of what was opened
	device      uint64
	flags       uint16
	read, write bool
	offset      int64
	body        body // of a file
	// twins tells that there is, or was, a second number for it.
	twins bool

	entries []entry // of a folder, as fd_readdir saw it first; nil: not yet
}

// body is what an open file reads from; a [hostFile] can be written as well.
type body interface {
	// readAt fills p, and gives fewer bytes only at the end of the file.
	readAt(p []byte, offset int64) (int, errno)
	fstat() (stat, errno)
	close() error
}

var (
	_ body = (*hostFile)(nil)
	_ body = (*node)(nil)
)

func (d *descriptor) isFolder() bool { return d.kind == root || d.kind == folder }

// entry is one name in a folder.
type entry struct {
	name  string
	kind  uint8
	inode uint64
}

// bytes is about what an entry takes in the host's memory.
func (e entry) bytes() int { return len(e.name) + 48 }

func byName(a, b entry) int { return strings.Compare(a.name, b.name) }

// get is the descriptor fd of a call.
func (s *System) get(fd uint32) (*descriptor, errno) {
	if fd >= MaxDescriptors || s.table[fd] == nil {
		return nil, ebadf
	}
	if s.table[fd].kind == dead {
		return nil, estale
	}
	return s.table[fd], success
}

// getFile is get for what can be sought.
func (s *System) getFile(fd uint32) (*descriptor, errno) {
	d, e := s.get(fd)
	switch {
	case e != success:
		return nil, e
	case d.isFolder():
		return nil, eisdir
	case d.kind != file:
		return nil, espipe
	}
	return d, success
}

// getRoot is get for the one folder that is open from the beginning. By EBADF
// for any other, even an open one, a guest learns that there are no more.
func (s *System) getRoot(fd uint32) (*descriptor, errno) {
	if fd != rootFD {
		return nil, ebadf
	}
	return s.get(fd)
}

// getWritable is get for a file whose content may be changed.
func (s *System) getWritable(fd uint32) (*hostFile, errno) {
	d, e := s.get(fd)
	switch {
	case e != success:
		return nil, e
	case d.isFolder():
		return nil, eisdir
	case d.kind != file || d.isDevice():
		return nil, einval
	case !d.write:
		return nil, ebadf
	}
	f, ok := d.body.(*hostFile)
	if !ok {
		return nil, erofs
	}
	return f, success
}

// free is the lowest number that is not in use.
func (s *System) free() (int, errno) {
	for fd, d := range s.table {
		if d == nil {
			return fd, success
		}
	}
	return 0, emfile
}

// drop closes the descriptor fd, if there is one. What it stands for stays open
// as long as another number stands for it as well.
func (s *System) drop(fd int) error {
	d := s.table[fd]
	if d == nil {
		return nil
	}
	s.table[fd] = nil
	if d.twins && slices.Contains(s.table[:], d) {
		return nil
	}
	s.forget(d)
	if d.body != nil {
		return d.body.close()
	}
	return nil
}

// open opens what is at p.
func (s *System) open(p place, how opening, flags uint16) (*descriptor, errno) {
	how.sync = flags&flagsSync != 0
	if p.folder {
		how.noFollow = false
		if how.create {
			return nil, eisdir
		}
		how.folder = true
	}
	b, e := p.tree.open(p.name, how)
	if e != success {
		return nil, e
	}
	d := &descriptor{kind: folder, path: p.abs, device: p.device, flags: flags}
	if b != nil {
		d.kind, d.body, d.read, d.write = file, b, how.read, how.write
	}
	return d, success
}

// enumerate gives d its list of entries. Lists are sorted, so that a folder
// that has not changed is listed the same way each time.
func (s *System) enumerate(d *descriptor) errno {
	s.forget(d)
	p := s.space.find(d.path)
	own, e := s.statAt(p, true)
	if e != success {
		return e
	}
	up := d.path[:max(strings.LastIndexByte(d.path, '/'), 1)]
	parent, e := s.statAt(s.space.find(up), true)
	if e != success {
		return e
	}
	found, e := p.tree.list(p.name, maxListBytes-s.listed)
	if e != success {
		return e
	}
	entries := make([]entry, 0, len(found)+2)
	entries = append(entries, entry{".", typeFolder, own.inode}, entry{"..", typeFolder, parent.inode})
	d.entries = append(entries, found...)
	slices.SortFunc(d.entries[2:], byName)
	s.listed += listBytes(d.entries)
	return success
}

// forget drops the list of d.
func (s *System) forget(d *descriptor) {
	s.listed -= listBytes(d.entries)
	d.entries = nil
}

func listBytes(entries []entry) int {
	n := 0
	for _, e := range entries {
		n += e.bytes()
	}
	return n
}

// moved makes the descriptors that lead to, or through, what was renamed from
// one place to another follow it.
func (s *System) moved(from, to place) {
	for _, d := range s.table {
		if d == nil || d.kind != file && d.kind != folder {
			continue
		}
		p := s.space.find(d.path)
		rest, ok := strings.CutPrefix(p.name, from.name)
		if ok && p.tree == from.tree && (rest == "" || rest[0] == '/') {
			d.path = to.abs + rest
		}
	}
}
