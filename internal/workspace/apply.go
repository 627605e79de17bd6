package workspace

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"paddock/internal/blob"
	"paddock/internal/fault"
)

// OpenFunc opens a content that was kept.
type OpenFunc func(blob.Ref) (io.ReadCloser, error)

// Apply makes the tree what want lists, and nothing else: what is not in it is
// removed, whatever it is. now is the last listing that is known to have been
// true of this tree (nil: nothing is known): what has the same stamp as there
// is what it says, and other files are compared by their contents. A file is
// written under another name, its content compared with its digest, and then
// renamed; modes and times of modification are those of the listing, and the
// owner of what is made is that of Options. Files that are being written through
// the Tree are left alone; other writers wait.
//
// It gives a listing of the tree as it is now, and the files that it added,
// removed and modified (by content or mode), sorted by path, MaxFiles at most.
// What could not be read when want was made stays if it is there. After an error
// some of the tree is changed and the file that the error names is not; the same
// Apply can be done again, and so can any other. No limit refuses it: it goes
// back to what there was.
func (t *Tree) Apply(want, now *Listing, open OpenFunc) (*Listing, []Change, error) {
	defer t.changed()
	t.writing.Lock()
	defer t.writing.Unlock()
	t.measured.Store(false) // in case of an error
	a := &apply{capture: *newCapture(t, now, nil), open: open}
	a.entries = make([]entry, 0, len(want.top().all))
	if !a.trusted {
		now = nil
	}
	if err := a.folder(t.root(), "", want.top(), now.top()); err != nil {
		return nil, nil, err
	}
	t.measuredAs(a.sum)
	return &Listing{boot: thisBoot(), entries: a.entries}, a.diff.sorted(), nil
}

// apply makes a listing while it makes the tree.
type apply struct {
	capture
	diff diff
	open OpenFunc
}

// place is a name in a folder, and what is there; nil: nothing.
type place struct {
	dir    *os.Root
	prefix string // the folder's path
	name   string
	info   fs.FileInfo
}

func (s *place) path() string { return join(s.prefix, s.name) }

// look finds out what is there.
func (s *place) look() (err error) {
	s.info, err = s.dir.Lstat(s.name)
	if errors.Is(err, fs.ErrNotExist) {
		s.info, err = nil, nil
	}
	return s.explain(err)
}

// explain makes a fault of an error at the place.
func (s *place) explain(err error) error {
	switch {
	case errors.Is(err, errSwapped):
		return fault.New(fault.Conflict, "%s is being changed while it is brought back", s.path()).WithHint("end what runs and try again").WithCause(err)
	case errors.Is(err, syscall.EILSEQ) || errors.Is(err, syscall.EINVAL):
		return cannotHold(s.path(), err)
	}
	return explain(err, s.path())
}

func cannotHold(p string, err error) error {
	return fault.New(fault.Unsupported, "this machine's file system cannot hold the file %q beside the others", p).
		WithHint("some names are not allowed here, or one and the same; rename it where the session came from").WithCause(err)
}

// folder makes what is in dir, which lies at prefix, what want says.
func (a *apply) folder(dir *os.Root, prefix string, want, now branch) error {
	names, err := readNames(dir)
	if err != nil {
		return explain(err, cmp.Or(prefix, "."))
	}
	unwanted := want
	for _, name := range names {
		if w, _ := unwanted.find(name); w != nil {
			continue
		}
		s := place{dir: dir, prefix: prefix, name: name}
		switch err := s.look(); {
		case err != nil:
			return err
		case s.info != nil && hidden(name):
			a.sum = add(a.sum, weighAll(dir, s.info))
		case s.info != nil:
			if err := a.remove(&s); err != nil {
				return err
			}
		}
	}
	for w, below := want.first(); w != nil; w, below = want.first() {
		want.skip()
		_, present := slices.BinarySearch(names, w.name)
		s := place{dir: dir, prefix: prefix, name: w.name}
		if err := a.check(&s, present); err != nil {
			return err
		}
		n, nBelow := now.find(w.name)
		switch w.kind {
		case isFolder:
			err = a.subfolder(&s, w, below, nBelow)
		case isLink:
			err = a.link(&s, w)
		default:
			err = a.file(&s, w, n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// check looks at a place that is about to be filled. There is an error if the
// file system takes its name for another one's: one that is not among the names
// of the folder, and yet is there.
func (a *apply) check(s *place, present bool) error {
	if !filepath.IsLocal(s.name) || strings.ContainsRune(s.name, filepath.Separator) {
		return cannotHold(s.path(), errors.New("it is not a name of a file here"))
	}
	for range attempts {
		if err := s.look(); err != nil || s.info == nil || present {
			return err
		}
		names, err := readNames(s.dir)
		if err != nil {
			return explain(err, cmp.Or(s.prefix, "."))
		}
		_, present = slices.BinarySearch(names, s.name) // somebody made it now
	}
	return cannotHold(s.path(), errors.New("another file has this name"))
}

// remove takes away what is there, whatever it is, with all that is in it.
func (a *apply) remove(s *place) error {
	switch {
	case s.info == nil:
		return nil
	case s.info.Mode().IsRegular():
		a.diff.add(s.path(), Removed, 0)
	case s.info.IsDir():
		a.loosen(s, 0)
	}
	err := removeAll(s.dir, s.name)
	s.info = nil
	return s.explain(err)
}

// loosen prepares a folder for its removal: it tells about the files in it, and
// takes what permissions a guest may have taken away. What goes wrong the
// removal tells.
func (a *apply) loosen(s *place, depth int) {
	own(s)
	sub, done, err := openFolder(s.dir, s.name, s.info, 0)
	if err != nil {
		return
	}
	defer done()
	names, _ := readNames(sub)
	for _, name := range names {
		below := place{dir: sub, prefix: s.path(), name: name}
		switch err := below.look(); {
		case err != nil || below.info == nil:
		case below.info.Mode().IsRegular() && !hidden(name):
			a.diff.add(below.path(), Removed, 0)
		case below.info.IsDir() && depth < maxDepth:
			a.loosen(&below, depth+1)
		}
	}
}

// own lets us into a folder and change it, whatever its mode.
func own(s *place) {
	if perm := s.info.Mode().Perm(); perm&0o700 != 0o700 {
		_ = s.dir.Chmod(s.name, perm|0o700) // who needs it finds out
	}
}

// subfolder makes a folder and what is in it.
func (a *apply) subfolder(s *place, w *entry, below, nBelow branch) error {
	if s.info != nil && !s.info.IsDir() {
		if err := a.remove(s); err != nil {
			return err
		}
	}
	if s.info != nil && w.unknown {
		a.sum = add(a.sum, weighAll(s.dir, s.info))
		a.add(entry{name: w.name, kind: isFolder, mode: s.info.Mode().Perm(), stamp: stamp{modified: stampOf(s.info).modified}, unknown: true})
		return nil
	}
	if s.info == nil {
		err := s.dir.Mkdir(s.name, 0o700)
		if err == nil {
			err = a.give(s.dir, s.name)
		}
		if err == nil {
			s.info, err = s.dir.Lstat(s.name)
		}
		if err != nil {
			return s.explain(err)
		}
	}
	own(s)
	sub, done, err := openFolder(s.dir, s.name, s.info, 0)
	if err != nil {
		return s.explain(err)
	}
	defer done()
	at := len(a.entries)
	a.sum = add(a.sum, weight(s.info))
	a.add(entry{name: w.name, kind: isFolder, mode: w.mode, stamp: w.stamp})
	if err := a.folder(sub, s.path(), below, nBelow); err != nil {
		return err
	}
	a.entries[at].end = len(a.entries)
	return s.explain(finish(sub, w))
}

// give gives what was made to the tree's owner; a link itself is given.
func (a *apply) give(dir *os.Root, name string) error {
	if a.tree.options.UID == 0 {
		return nil
	}
	return dir.Lchown(name, a.tree.options.UID, a.tree.options.GID)
}

// finish gives a folder its time and mode, now that nothing is made in it.
func finish(sub *os.Root, w *entry) error {
	info, err := sub.Stat(".")
	if err != nil {
		return err
	}
	if info.ModTime().UnixNano() != w.stamp.modified {
		if err := sub.Chtimes(".", time.Time{}, time.Unix(0, w.stamp.modified)); err != nil {
			return err
		}
	}
	if info.Mode().Perm() != w.mode {
		return sub.Chmod(".", w.mode)
	}
	return nil
}
