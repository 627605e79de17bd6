package wasi

import (
	"errors"
	"fmt"
	"math"
	"path"
)

// State is what of a System has to be kept with the guest's memory.
type State struct {
	Monotonic   int64        `json:"monotonic"` // ns
	Descriptors []Descriptor `json:"descriptors,omitempty"`
}

// Descriptor is one open descriptor in a State; the root is not in it.
type Descriptor struct {
	FD     int    `json:"fd"`
	Twin   *int   `json:"twin,omitempty"`   // a lower number that stands for the same
	Kind   string `json:"kind"`             // one of the Kind constants
	Stream int    `json:"stream,omitempty"` // 0 to 2
	Path   string `json:"path,omitempty"`   // clean guest path
	Read   bool   `json:"read,omitempty"`
	Write  bool   `json:"write,omitempty"`
	Flags  uint16 `json:"flags,omitempty"` // as in fd_fdstat_get
	Offset int64  `json:"offset,omitempty"`
	// Names is how fd_readdir has listed the folder: the cookies that the
	// guest holds are numbers of these. Missing: not listed yet.
	Names []string `json:"names,omitempty"`
}

// The kinds of a Descriptor. A dead one is a file that had no name any more.
const (
	KindStream = "stream"
	KindFolder = "folder"
	KindFile   = "file"
	KindDead   = "dead"
)

var errState = errors.New("the saved descriptors are not valid")

// Save writes down what is open. It changes nothing.
func (s *System) Save() State {
	state := State{Monotonic: s.Monotonic()}
	first := map[*descriptor]int{}
	for fd, d := range s.table {
		if d == nil || d.kind == root {
			continue
		}
		saved := d.describe(fd)
		if d.twins {
			if twin, seen := first[d]; seen {
				saved.Twin = &twin
			} else {
				first[d] = fd
			}
		}
		if d.kind == file && !s.named(d) {
			saved.Kind = KindDead
		}
		state.Descriptors = append(state.Descriptors, saved)
	}
	return state
}

// describe writes down what d is, supposing that its path leads to it.
func (d *descriptor) describe(fd int) Descriptor {
	saved := Descriptor{FD: fd, Path: d.path, Read: d.read, Write: d.write, Flags: d.flags, Offset: d.offset}
	switch d.kind {
	case stream:
		saved.Kind, saved.Stream = KindStream, d.stream
	case folder:
		saved.Kind = KindFolder
		for _, e := range d.entries {
			saved.Names = append(saved.Names, e.name)
		}
	case file:
		saved.Kind = KindFile
	default:
		saved.Kind = KindDead
	}
	return saved
}

// named tells whether the path of an open file still leads to it.
func (s *System) named(d *descriptor) bool {
	own, e := d.body.fstat()
	if e != success || own.links == 0 {
		return false
	}
	p := s.space.find(d.path)
	there, e := p.tree.stat(p.name, true)
	if !stableInodes {
		return e == success && there.kind == own.kind && there.size == own.size
	}
	return e == success && there.inode == own.inode && there.device == own.device
}

// Restore opens what was open when state was saved, with the same numbers,
// offsets and lists; nothing is made or emptied. What cannot be opened any more
// stays in the table, gives ESTALE, and can be closed; lost lists it. The
// monotonic clock goes on from where it was, if it is behind.
//
// After an error, which only a damaged state gives, streams and files are
// closed.
func (s *System) Restore(state State) (lost []int, err error) {
	if behind := state.Monotonic - s.Monotonic(); behind > 0 {
		s.config.Monotonic += behind
	}
	var errs []error
	for fd := range s.table {
		if fd != rootFD {
			errs = append(errs, s.drop(fd))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("closing what was open before: %w", err)
	}
	for _, saved := range state.Descriptors {
		if saved.FD < 0 || saved.FD >= MaxDescriptors || s.table[saved.FD] != nil || !saved.valid() {
			return nil, fmt.Errorf("restoring descriptor %d: %w", saved.FD, errState)
		}
		d := s.twin(saved)
		if d == nil {
			d = s.reopen(saved)
		}
		if d.kind == dead {
			lost = append(lost, saved.FD)
		}
		s.table[saved.FD] = d
	}
	return lost, nil
}

// Refresh opens again, by their paths, the files and folders that are open: they
// were changed from outside, and others may be there now. What is not there any
// more gives ESTALE, and what was not there for a while is open again. Before is
// what Save gave before the change, or State{}: by it a file is known that had no
// name even then, and that stays as it is.
func (s *System) Refresh(before State) {
	known := map[int]Descriptor{}
	for _, saved := range before.Descriptors {
		known[saved.FD] = saved
	}
	again := map[*descriptor]*descriptor{} // what has twins
	for fd, d := range s.table {
		if d == nil || d.kind == root || d.kind == stream {
			continue
		}
		if now := again[d]; now != nil {
			_ = s.drop(fd)
			s.table[fd] = now
			continue
		}
		was, same := known[fd], known[fd].Path == d.path
		switch {
		case d.kind != dead && same && was.Kind == KindDead, d.kind == dead && !same:
			continue
		case d.kind != dead:
			was = d.describe(fd)
		}
		_ = s.drop(fd) // what could not be written there is gone with the file
		now := s.reopen(was)
		if s.table[fd] = now; d.twins {
			now.twins, again[d] = true, now
		}
	}
}

// twin is what is open already and saved stands for, too; nil: nothing.
func (s *System) twin(saved Descriptor) *descriptor {
	if saved.Twin == nil || *saved.Twin < 0 || *saved.Twin >= saved.FD || *saved.Twin == rootFD {
		return nil
	}
	d := s.table[*saved.Twin]
	if d != nil {
		d.twins = true
	}
	return d
}

func (saved Descriptor) valid() bool {
	switch saved.Kind {
	case KindStream:
		return saved.Stream >= 0 && saved.Stream < streams
	case KindDead:
		return true
	case KindFile, KindFolder:
		return path.IsAbs(saved.Path) && path.Clean(saved.Path) == saved.Path && len(saved.Path) <= maxPath &&
			saved.Offset >= 0 && saved.Offset < math.MaxInt64 && saved.Flags&^flagsAll == 0
	}
	return false
}

// reopen gives a dead descriptor for what is not there any more.
func (s *System) reopen(saved Descriptor) *descriptor {
	gone := &descriptor{kind: dead, path: saved.Path}
	switch saved.Kind {
	case KindStream:
		return &descriptor{kind: stream, stream: saved.Stream, flags: saved.Flags}
	case KindDead:
		return gone
	}
	d, e := s.open(s.space.find(saved.Path), opening{read: saved.Read, write: saved.Write, folder: saved.Kind == KindFolder}, saved.Flags)
	if e != success {
		return gone
	}
	if (saved.Kind == KindFolder) != d.isFolder() {
		if d.body != nil {
			_ = d.body.close() // it was opened for nothing
		}
		return gone
	}
	d.offset = saved.Offset
	s.relist(d, saved.Names)
	return d
}

// relist gives d the list that it had. What is gone from the folder stays in
// it, as it does in a listing that has begun.
func (s *System) relist(d *descriptor, names []string) {
	for _, name := range names {
		e := entry{name: name}
		if found, status := s.statAt(s.space.find(path.Join(d.path, name)), false); status == success {
			e.kind, e.inode = found.kind, found.inode
		}
		d.entries = append(d.entries, e)
	}
	s.listed += listBytes(d.entries)
}
