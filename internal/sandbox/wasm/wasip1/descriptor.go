package wasi

import (
	"io"
	"os"
)

type kind uint8

const (
	stdio   kind = iota + 1
	preopen      // the root, descriptor 3
	folder       // any other folder
	file         // a file in a Dir
	blob         // a file in an Archive
	dead         // it could not be reopened
)

// The flags of path_open and of a descriptor.
const (
	oCreate    = 1
	oDirectory = 2
	oExclusive = 4
	oTruncate  = 8

	fdAppend = 1

	rightRead  = 1 << 1
	rightWrite = 1 << 6
)

// descriptor is one entry of the table.
type descriptor struct {
	kind   kind
	stream int    // of stdio: 0, 1, 2
	path   string // guest path, clean
	flags  uint32 // oDirectory, as it was opened
	append bool
	read   bool
	write  bool
	offset int64

	file    *os.File
	dir     *Dir
	content []byte
	number  uint64 // of an archive's file

	entries []entry // as fd_readdir saw them first
}

func (d *descriptor) isFolder() bool { return d.kind == preopen || d.kind == folder }

func (d *descriptor) close() {
	if d.file != nil {
		d.dir.closeFile(d.file)
		d.file = nil
	}
}

// get is the descriptor number fd.
func (s *System) get(fd uint32) (*descriptor, errno) {
	if fd >= MaxDescriptors || s.table[fd] == nil {
		return nil, ebadf
	}
	if s.table[fd].kind == dead {
		return nil, eio
	}
	return s.table[fd], success
}

// insert puts d at the lowest free number.
func (s *System) insert(d *descriptor) (uint32, errno) {
	for fd := range s.table {
		if s.table[fd] == nil {
			s.table[fd] = d
			return uint32(fd), success
		}
	}
	d.close()
	return 0, emfile
}

// readAt reads from a file of either kind.
func (d *descriptor) readAt(p []byte, offset int64) (int, errno) {
	if !d.read {
		return 0, ebadf
	}
	if offset < 0 {
		return 0, einval
	}
	if d.kind == blob {
		if offset >= int64(len(d.content)) {
			return 0, success
		}
		return copy(p, d.content[offset:]), success
	}
	n, err := d.file.ReadAt(p, offset)
	if err == io.EOF {
		err = nil
	}
	return n, errnoOf(err)
}

func (d *descriptor) size() (int64, error) {
	if d.kind == blob {
		return int64(len(d.content)), nil
	}
	info, err := d.file.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// State is a System's descriptors and clock, to be kept with the guest's
// memory.
type State struct {
	Monotonic int64   `json:"monotonic"`
	Files     []Saved `json:"files,omitempty"`
}

// Saved is one open descriptor.
type Saved struct {
	FD     int    `json:"fd"`
	Path   string `json:"path"`
	Folder bool   `json:"folder,omitempty"`
	Read   bool   `json:"read,omitempty"`
	Write  bool   `json:"write,omitempty"`
	Append bool   `json:"append,omitempty"`
	Offset int64  `json:"offset,omitempty"`
	Dead   bool   `json:"dead,omitempty"`
	Stream int    `json:"stream,omitempty"` // 1 + which of stdio it is
}

// Save tells what is open.
func (s *System) Save() State {
	state := State{Monotonic: s.Monotonic()}
	for fd, d := range s.table {
		if d == nil || d.kind == preopen {
			continue
		}
		saved := Saved{
			FD: fd, Path: d.path, Folder: d.kind == folder, Read: d.read, Write: d.write,
			Append: d.append, Offset: d.offset, Dead: d.kind == dead,
		}
		if d.kind == stdio {
			saved.Stream = d.stream + 1
		}
		state.Files = append(state.Files, saved)
	}
	return state
}

// Restore opens what was open when state was saved, at the same numbers and
// offsets. What cannot be opened any more stays in the table, and its use
// fails with EIO; lost lists those numbers.
func (s *System) Restore(state State) (lost []int, err error) {
	if s.config.Monotonic < state.Monotonic {
		s.config.Monotonic = state.Monotonic
	}
	for fd := range 3 {
		s.table[fd] = nil
	}
	for _, saved := range state.Files {
		if saved.FD < 0 || saved.FD >= MaxDescriptors || saved.FD == 3 {
			return nil, os.ErrInvalid
		}
		d := s.reopen(saved)
		if d.kind == dead {
			lost = append(lost, saved.FD)
		}
		s.table[saved.FD] = d
	}
	return lost, nil
}

func (s *System) reopen(saved Saved) *descriptor {
	if saved.Stream > 0 && saved.Stream <= 3 {
		return &descriptor{kind: stdio, stream: saved.Stream - 1}
	}
	gone := &descriptor{kind: dead, path: saved.Path}
	if saved.Dead {
		return gone
	}
	d, e := s.open(s.space.find(saved.Path), opening{read: saved.Read, write: saved.Write, append: saved.Append, folder: saved.Folder})
	if e != success {
		return gone
	}
	d.offset = saved.Offset
	return d
}
