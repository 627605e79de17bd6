package workspace

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"paddock/internal/fault"
)

const (
	// leaseBytes is how much room a writer takes at a time: the folder is
	// measured once for each.
	leaseBytes = 16 << 20
	// leasedOf is how much room there has to be for each byte that is taken ahead: the rest
	// is for other writers.
	leasedOf = 4
	// pieceBytes is how much of a file is in memory while it is received.
	pieceBytes = 64 << 10
)

// Stage is a set of new files that nobody sees until Commit puts all of them
// in place. It is for one goroutine; Close takes what was not committed away.
type Stage struct {
	tree   *Tree
	folder string // below the tree
	inner  *Tree  // of that folder
	files  []string
	gone   []string // what Commit removes
	lease  int64    // bytes that may be written before room has to be asked for
	piece  []byte
}

// Stage makes an empty one.
func (t *Tree) Stage() (*Stage, error) {
	defer t.changed()
	s := &Stage{tree: t, folder: tempPrefix + rand.Text(), piece: make([]byte, pieceBytes)}
	if err := s.spend(blockBytes, func() error { return explain(t.root().Mkdir(s.folder, 0o700), s.folder) }); err != nil {
		s.Close()
		return nil, err
	}
	root, err := enter(t.root(), s.folder)
	if err != nil {
		s.Close()
		return nil, explain(err, s.folder)
	}
	s.inner = &Tree{options: Options{UID: t.options.UID, GID: t.options.GID}}
	s.inner.at.Store(root)
	return s, nil
}

// Add receives one file and gives its size; what would go beyond the disk
// limit is a fault.Exhausted, and the same path twice a fault.Invalid. mode
// holds permission bits; zero: those of the file that it replaces, or 0644.
func (s *Stage) Add(name string, src io.Reader, mode fs.FileMode) (int64, error) {
	p, err := keepable(name)
	if err != nil {
		return 0, err
	}
	if strings.Contains("/"+p, "/"+tempPrefix) {
		return 0, fault.New(fault.Invalid, "names that begin with %s are paddock's own", tempPrefix)
	}
	if mode == 0 {
		mode = 0o644
		if info, err := s.tree.root().Lstat(p); err == nil && info.Mode().IsRegular() {
			mode = info.Mode().Perm()
		}
	}
	dir := path.Dir(p)
	if err := s.spend(s.inner.missing(dir)*blockBytes, func() error { return s.inner.makeFolders(dir) }); err != nil {
		return 0, err
	}
	f, err := s.create(p, mode|0o200)
	if errors.Is(err, fs.ErrExist) {
		return 0, fault.New(fault.Invalid, "%s is there twice", p)
	}
	if err != nil {
		return 0, explain(err, p)
	}
	n, srcErr, err := s.copyFrom(f, src)
	if err == nil && s.tree.options.UID != 0 {
		err = f.Chown(s.tree.options.UID, s.tree.options.GID)
	}
	if err = cmp.Or(err, f.Close()); err != nil {
		return 0, explain(err, p)
	}
	if srcErr != nil {
		return 0, fmt.Errorf("receiving %s: %w", p, srcErr)
	}
	s.files = append(s.files, p)
	return n, nil
}

// Remove has Commit remove a file, or a link, of the tree as well, if it is there by then,
// and the folders that it leaves empty.
func (s *Stage) Remove(name string) error {
	p, err := Clean(name)
	if err == nil {
		s.gone = append(s.gone, p)
	}
	return err
}

// Spool receives what is not one of the files, such as an archive that has to
// be read more than once. It counts towards the disk limit, and is gone with
// the stage; the caller closes it before.
func (s *Stage) Spool(src io.Reader) (*os.File, int64, error) {
	name := tempPrefix + rand.Text() // no file is called so
	f, err := s.create(name, 0o600)
	if err != nil {
		return nil, 0, explain(err, name)
	}
	n, srcErr, err := s.copyFrom(f, src)
	if err = cmp.Or(explain(err, name), srcErr); err != nil {
		f.Close()
		return nil, 0, fmt.Errorf("receiving: %w", err)
	}
	return f, n, nil
}

// create makes an empty file in the stage.
func (s *Stage) create(p string, mode fs.FileMode) (f *os.File, err error) {
	err = s.spend(blockBytes, func() (err error) {
		f, err = s.inner.root().OpenFile(p, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
		return err
	})
	return f, err
}

// copyFrom writes what src gives, as far as there is room for it.
func (s *Stage) copyFrom(f *os.File, src io.Reader) (n int64, srcErr, err error) {
	for {
		k, readErr := src.Read(s.piece)
		growth := max(n+int64(k), blockBytes) - max(n, blockBytes) // a block was spent already
		err := s.spend(growth, func() error { _, err := f.Write(s.piece[:k]); return err })
		if err != nil {
			return n, nil, err
		}
		n += int64(k)
		if errors.Is(readErr, io.EOF) {
			return n, nil, nil
		}
		if readErr != nil {
			return n, readErr, nil
		}
	}
}

// spend takes room for what write is about to add.
func (s *Stage) spend(bytes int64, write func() error) error {
	if bytes > s.lease {
		if err := s.extend(bytes); err != nil {
			return err
		}
	}
	err := write()
	s.lease -= bytes // now whoever measures the folder sees it
	s.tree.leased.Add(-bytes)
	s.tree.used.Add(bytes)
	return err
}

// extend makes room for so many bytes at least.
func (s *Stage) extend(bytes int64) error {
	t := s.tree
	t.writing.Lock()
	defer t.writing.Unlock()
	need := bytes - s.lease
	for growth := max(need, leaseBytes); ; growth = max(need, growth/8) {
		times := int64(leasedOf)
		if growth == need {
			times = 1
		}
		err := t.roomLocked(growth, times)
		if err == nil {
			s.lease += growth
			t.leased.Add(growth)
		}
		if err == nil || growth == need {
			return err
		}
	}
}

// Commit puts every file in place, with the folders on the way, and takes away what was
// to be removed, if allow (nil: always) still agrees. Whether each place can be taken is seen before the
// first is; only a failing disk, or a guest that changes folders meanwhile,
// leaves some in place and some not.
func (s *Stage) Commit(allow func() error) error {
	return s.tree.change(func() ([]string, error) {
		if allow != nil {
			if err := allow(); err != nil {
				return nil, err
			}
		}
		paths := slices.Concat(s.files, s.gone)
		return paths, s.placeLocked()
	})
}

func (s *Stage) placeLocked() error {
	t := s.tree
	for _, p := range s.files {
		if err := t.placeable(p); err != nil {
			return err
		}
	}
	for _, p := range s.files {
		if err := t.makeFolders(path.Dir(p)); err != nil {
			return err
		}
		if err := t.root().Rename(path.Join(s.folder, p), p); err != nil {
			return explain(err, p)
		}
	}
	for _, p := range s.gone {
		if err := t.takeAway(p); err != nil {
			return err
		}
	}
	s.files, s.gone = nil, nil
	return nil
}

// takeAway removes a file and the folders that it leaves empty.
func (t *Tree) takeAway(p string) error {
	info, err := t.root().Lstat(p)
	if err == nil && !info.IsDir() {
		err = t.root().Remove(p)
	}
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return explain(err, p)
	}
	for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
		if info, err := t.root().Lstat(dir); err != nil || !info.IsDir() || t.root().Remove(dir) != nil {
			break // there is something in it
		}
	}
	return nil
}

// placeable tells whether there can be a file at p.
func (t *Tree) placeable(p string) error {
	if info, err := t.root().Lstat(p); err == nil && info.IsDir() {
		return regular(info, p)
	}
	for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
		info, err := t.root().Stat(dir)
		switch {
		case err == nil && !info.IsDir():
			return fault.New(fault.Invalid, "%s is a file and no folder", dir)
		case err == nil:
			return nil
		case !errors.Is(err, fs.ErrNotExist):
			return explain(err, dir)
		}
	}
	return nil
}

// Close removes what was not committed. It works twice.
func (s *Stage) Close() {
	s.tree.leased.Add(-s.lease)
	s.lease = 0
	if s.inner != nil {
		_ = s.inner.Close()
	}
	_ = removeAll(s.tree.root(), s.folder) // what stays is swept when the folder is opened next
	s.tree.changed()
}
