package workspace

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"paddock/internal/fault"
	"paddock/internal/pattern"
)

// OpenFile opens a regular file for reading, and tells about it as it was
// opened. The caller closes it.
func (t *Tree) OpenFile(name string) (*os.File, File, error) {
	p, err := Clean(name)
	if err != nil {
		return nil, File{}, err
	}
	f, info, err := t.open(p)
	if err != nil {
		return nil, File{}, err
	}
	return f, fileOf(p, info), nil
}

// Tag names the state of a file: another one means that its content may have
// changed. It is made from size, times and inode, so that a large file is not
// read for it; no program can set the time of change that is among them.
func (f File) Tag() string {
	h := fnv.New128a()
	_ = binary.Write(h, binary.LittleEndian, [...]int64{f.stamp.size, f.stamp.modified, f.stamp.meta, int64(f.stamp.inode)}) // never fails
	return hex.EncodeToString(h.Sum(nil))
}

// Walk calls visit for every regular file that a glob matches (see [NewGlob]),
// each folder's names in order, however many there are; its error ends the walk, and
// so does ctx. left tells that some were left out: they lie deeper than 200 folders, or have longer paths
// than anybody can use, or their folder may not be read.
func (t *Tree) Walk(ctx context.Context, glob string, visit func(File) error) (left bool, err error) {
	g, err := NewGlob(glob)
	if err != nil {
		return false, err
	}
	return t.walk(func(p string, info fs.FileInfo) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !info.Mode().IsRegular() || hidden(p) {
			return nil
		}
		m := pattern.NewMeter(ctx, t.options.Owner, pattern.MaxSteps) // for each: visit may take its time
		is, err := g.Match(p, m)
		m.Close()
		if !is || err != nil {
			return err
		}
		return visit(fileOf(p, info))
	})
}

// Used is what counted towards the disk limit when somebody last looked, which
// they do before every write and after every run. It costs nothing.
func (t *Tree) Used() int64 {
	if !t.measured.Load() {
		_, _ = t.DiskBytes() // it stays zero for a folder that is gone
	}
	return t.used.Load()
}

// Sweep removes what writers left that did not come to an end. It is for a
// folder that nobody else uses.
func (t *Tree) Sweep() error {
	var left []string
	_, err := t.walk(func(p string, _ fs.FileInfo) error {
		if strings.HasPrefix(path.Base(p), tempPrefix) {
			left = append(left, p)
		}
		return nil
	})
	for _, p := range left {
		err = errors.Join(err, removeAll(t.root(), p))
	}
	t.changed()
	return explain(err, ".")
}

// RemoveFile deletes one file or link, if allow (nil: always) agrees to what
// is there.
func (t *Tree) RemoveFile(name string, allow func(File) error) error {
	p, err := Clean(name)
	if err != nil {
		return err
	}
	return t.change(func() ([]string, error) {
		info, err := t.root().Lstat(p)
		if err != nil {
			return nil, explain(err, p)
		}
		if info.IsDir() {
			return nil, regular(info, p)
		}
		if allow != nil {
			if err := allow(fileOf(p, info)); err != nil {
				return nil, err
			}
		}
		return []string{p}, explain(t.root().Remove(p), p)
	})
}

// Receive puts what src gives into a file, whole or not at all, without
// holding it in memory; see [Tree.Write]. size is how much it will be, or -1:
// another amount is a fault.Invalid. While it is received the old file stays,
// and both count towards the disk limit. allow, when set, is asked before and
// once more, with all other writers kept out, right before the new file takes
// the old one's place; old is nil where there is none.
func (t *Tree) Receive(name string, src io.Reader, size int64, allow func(old *File) error) (f File, created bool, err error) {
	p, err := Clean(name)
	if err != nil {
		return File{}, false, err
	}
	ask := func() error {
		old, err := t.present(p)
		created = old == nil
		if err != nil || allow == nil {
			return err
		}
		return allow(old)
	}
	if err := cmp.Or(ask(), t.checkRoom(size)); err != nil {
		return File{}, false, err
	}
	s, err := t.Stage()
	if err != nil {
		return File{}, false, err
	}
	defer s.Close()
	n, err := s.Add(p, src, 0)
	if err != nil {
		return File{}, false, err
	}
	if size >= 0 && n != size {
		return File{}, false, fault.New(fault.Invalid, "%d bytes came, and %d were announced", n, size).WithHint("send the whole file again")
	}
	if err := s.Commit(ask); err != nil {
		return File{}, false, err
	}
	f, err = t.Stat(p)
	return f, created, err
}

// present gives the file at p, nil where there is none; a folder is an error.
func (t *Tree) present(p string) (*File, error) {
	info, err := t.root().Lstat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, explain(err, p)
	}
	if info.IsDir() {
		return nil, regular(info, p)
	}
	f := fileOf(p, info)
	return &f, nil
}

// checkRoom refuses what cannot fit before any of it is read.
func (t *Tree) checkRoom(size int64) error {
	t.writing.Lock()
	defer t.writing.Unlock()
	return t.roomLocked(max(size, blockBytes), 1)
}

// roomLocked tells whether the folder may grow by so many bytes, and has room for so
// many times that.
func (t *Tree) roomLocked(growth, times int64) error {
	if growth <= 0 {
		return nil
	}
	used, err := t.DiskBytes()
	if err != nil {
		return err
	}
	leased := t.leased.Load()
	if growth*times > t.options.DiskBytes-used-leased {
		return fault.New(fault.Exhausted, "the workspace's disk limit of %d bytes is reached", t.options.DiskBytes).WithHint("delete files that are no longer needed")
	}
	if t.options.Grow != nil {
		return t.options.Grow(growth + leased)
	}
	return nil
}
