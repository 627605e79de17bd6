package wasi

import (
	"encoding/binary"
	"sync"
)

// What follows are the same files for a host that serves a guest without
// WASI's path calls: each function makes the calls that such a guest would
// make, in a memory of its own, so that every rule and limit holds.

// FileError is a call's failure; its text is the number's name in C.
type FileError string

func (e FileError) Error() string { return string(e) }

// ErrUnknown is the error of a call that there is not.
const ErrUnknown = FileError("ENOSYS")

var errorNames = map[uint64]FileError{
	uint64(eacces): "EACCES", uint64(eagain): "EAGAIN", uint64(ebadf): "EBADF", uint64(ebusy): "EBUSY", uint64(eexist): "EEXIST",
	uint64(efault): "EFAULT", uint64(efbig): "EFBIG", uint64(eilseq): "EILSEQ", uint64(eintr): "EINTR", uint64(einval): "EINVAL",
	uint64(eio): "EIO", uint64(eisdir): "EISDIR", uint64(eloop): "ELOOP", uint64(emfile): "EMFILE", uint64(emlink): "EMLINK",
	uint64(enametoolong): "ENAMETOOLONG", uint64(enoent): "ENOENT", uint64(enomem): "ENOMEM", uint64(enospc): "ENOSPC",
	uint64(enotdir): "ENOTDIR", uint64(enotempty): "ENOTEMPTY", uint64(enotsup): "ENOTSUP", uint64(eperm): "EPERM",
	uint64(erofs): "EROFS", uint64(espipe): "ESPIPE", uint64(estale): "ESTALE", uint64(etxtbsy): "ETXTBSY", uint64(exdev): "EXDEV",
}

// The parts of the interface that are used here.
const (
	appending  = 1
	hostReads  = 1<<1 | 1<<2 | 1<<5 | 1<<14 | 1<<21
	hostWrites = 1<<6 | 1<<2 | 1<<21 | 1<<22
	bothTimes  = 1 | 4
)

var functionNamed = sync.OnceValue(func() map[string]Function {
	functions := map[string]Function{}
	for _, f := range Functions() {
		functions[f.Name] = f
	}
	return functions
})

// scratch is the memory in which a call finds its texts and leaves its
// results: addresses are counted up from zero.
type scratch struct {
	system *System
	memory []byte
}

// room gives the address of n new bytes, on a boundary that every type allows.
func (m *scratch) room(n int) uint64 {
	at := (len(m.memory) + 7) &^ 7
	m.memory = append(m.memory, make([]byte, at+n-len(m.memory))...)
	return uint64(at)
}

// text puts s into the memory and gives its address and length.
func (m *scratch) text(s string) (address, length uint64) {
	address = m.room(len(s))
	copy(m.memory[address:], s)
	return address, uint64(len(s))
}

func (m *scratch) call(name string, args ...uint64) error {
	stack := make([]uint64, max(len(args), 1))
	copy(stack, args)
	functionNamed()[name].Call(m.system, m.memory, stack)
	if stack[0] == 0 {
		return nil
	}
	if e, ok := errorNames[stack[0]]; ok {
		return e
	}
	return FileError("EIO")
}

// open opens path and gives the descriptor.
func (m *scratch) open(path string, opening, rights, flags uint64) (uint64, error) {
	address, length := m.text(path)
	fd := m.room(4)
	if err := m.call("path_open", rootFD, follow, address, length, opening, rights, rights, flags, fd); err != nil {
		return 0, err
	}
	return uint64(binary.LittleEndian.Uint32(m.memory[fd:])), nil
}

// transfer reads or writes all of data, from the descriptor's offset on.
func (m *scratch) transfer(name string, fd uint64, data []byte, write bool) (int, error) {
	at := m.room(len(data))
	if write {
		copy(m.memory[at:], data)
	}
	vector, count := m.room(8), m.room(4)
	total := 0
	for total < len(data) {
		binary.LittleEndian.PutUint32(m.memory[vector:], uint32(at)+uint32(total))
		binary.LittleEndian.PutUint32(m.memory[vector+4:], uint32(len(data)-total))
		if err := m.call(name, fd, vector, 1, count); err != nil {
			return total, err
		}
		n := int(binary.LittleEndian.Uint32(m.memory[count:]))
		if n == 0 {
			break
		}
		total += n
	}
	if !write {
		copy(data, m.memory[at:])
	}
	return total, nil
}

// maxWhole bounds a file that is read in one piece.
const maxWhole = 256 << 20

// ReadFile gives a file's content.
func (s *System) ReadFile(path string) ([]byte, error) {
	m := &scratch{system: s}
	fd, err := m.open(path, 0, hostReads, 0)
	if err != nil {
		return nil, err
	}
	defer m.call("fd_close", fd)
	info := m.room(64)
	if err := m.call("fd_filestat_get", fd, info); err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint64(m.memory[info+32:])
	if size > maxWhole {
		return nil, FileError("EFBIG")
	}
	if m.memory[info+16] == 3 {
		return nil, FileError("EISDIR")
	}
	b := make([]byte, size)
	n, err := m.transfer("fd_read", fd, b, false)
	return b[:n], err
}

// WriteMode is how WriteFile treats a file that is there: without any, it is
// replaced.
type WriteMode struct{ Append, Exclusive bool }

// WriteFile writes a file.
func (s *System) WriteFile(path string, data []byte, mode WriteMode) error {
	m := &scratch{system: s}
	opening, flags := uint64(openCreate|openTruncate), uint64(0)
	if mode.Append {
		opening, flags = openCreate, appending
	}
	if mode.Exclusive {
		opening |= openExclusive
	}
	fd, err := m.open(path, opening, hostWrites, flags)
	if err != nil {
		return err
	}
	defer m.call("fd_close", fd)
	_, err = m.transfer("fd_write", fd, data, true)
	return err
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

func kindName(kind byte) string {
	switch kind {
	case 3:
		return "folder"
	case 4:
		return "file"
	case 7:
		return "link"
	}
	return "other"
}

// Stat looks at a file, or at the link itself.
func (s *System) Stat(path string, following bool) (Info, error) {
	m := &scratch{system: s}
	address, length := m.text(path)
	flags := uint64(0)
	if following {
		flags = follow
	}
	at := m.room(64)
	if err := m.call("path_filestat_get", rootFD, flags, address, length, at); err != nil {
		return Info{}, err
	}
	b, le := m.memory[at:], binary.LittleEndian
	return Info{
		Kind: kindName(b[16]), Number: le.Uint64(b[8:]), Links: le.Uint64(b[24:]), Size: int64(le.Uint64(b[32:])),
		Accessed: int64(le.Uint64(b[40:])), Modified: int64(le.Uint64(b[48:])), Changed: int64(le.Uint64(b[56:])),
	}, nil
}

// Entry is one name in a folder.
type Entry struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
}

// ReadDir lists a folder, without "." and "..".
func (s *System) ReadDir(path string) ([]Entry, error) {
	m := &scratch{system: s}
	fd, err := m.open(path, openFolder, hostReads, 0)
	if err != nil {
		return nil, err
	}
	defer m.call("fd_close", fd)
	const size = 64 << 10
	at, used := m.room(size), m.room(4)
	entries, cookie := []Entry{}, uint64(0)
	for {
		if err := m.call("fd_readdir", fd, at, size, cookie, used); err != nil {
			return nil, err
		}
		n := int(binary.LittleEndian.Uint32(m.memory[used:]))
		b := m.memory[at : at+uint64(n)]
		for len(b) >= 24 {
			next, length := binary.LittleEndian.Uint64(b), int(binary.LittleEndian.Uint32(b[16:]))
			if len(b) < 24+length {
				break // the rest of it comes with the next call
			}
			if name := string(b[24 : 24+length]); name != "." && name != ".." {
				entries = append(entries, Entry{name, kindName(b[20])})
			}
			cookie, b = next, b[24+length:]
		}
		if n < size {
			return entries, nil
		}
	}
}

// onPath makes a call that takes nothing but a path.
func (s *System) onPath(name, path string) error {
	m := &scratch{system: s}
	address, length := m.text(path)
	return m.call(name, rootFD, address, length)
}

// Mkdir makes a folder, Unlink removes what is not one, Rmdir an empty one.
func (s *System) Mkdir(path string) error  { return s.onPath("path_create_directory", path) }
func (s *System) Unlink(path string) error { return s.onPath("path_unlink_file", path) }
func (s *System) Rmdir(path string) error  { return s.onPath("path_remove_directory", path) }

// Rename moves a file or folder within its mount.
func (s *System) Rename(from, to string) error {
	m := &scratch{system: s}
	a, n := m.text(from)
	b, k := m.text(to)
	return m.call("path_rename", rootFD, a, n, rootFD, b, k)
}

// Symlink makes a link at path.
func (s *System) Symlink(target, path string) error {
	m := &scratch{system: s}
	a, n := m.text(target)
	b, k := m.text(path)
	return m.call("path_symlink", a, n, rootFD, b, k)
}

// Readlink gives a link's target.
func (s *System) Readlink(path string) (string, error) {
	m := &scratch{system: s}
	a, n := m.text(path)
	const size = 4096
	at, used := m.room(size), m.room(4)
	if err := m.call("path_readlink", rootFD, a, n, at, size, used); err != nil {
		return "", err
	}
	return string(m.memory[at : at+uint64(binary.LittleEndian.Uint32(m.memory[used:]))]), nil
}

// Truncate makes a file size bytes long.
func (s *System) Truncate(path string, size int64) error {
	m := &scratch{system: s}
	fd, err := m.open(path, 0, hostWrites, 0)
	if err != nil {
		return err
	}
	defer m.call("fd_close", fd)
	return m.call("fd_filestat_set_size", fd, uint64(size))
}

// SetTimes sets when a file was used and changed, in ns since 1970.
func (s *System) SetTimes(path string, accessed, modified int64) error {
	m := &scratch{system: s}
	a, n := m.text(path)
	return m.call("path_filestat_set_times", rootFD, follow, a, n, uint64(accessed), uint64(modified), bothTimes)
}

// Random fills b, up to its length, with random bytes.
func (s *System) Random(b []byte) {
	m := &scratch{system: s}
	at := m.room(len(b))
	if m.call("random_get", at, uint64(len(b))) == nil {
		copy(b, m.memory[at:])
	}
}
