package workspace

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"paddock/internal/blob"
)

// PutFunc keeps the content of a file and gives what refers to it. The path is
// for messages.
type PutFunc func(path string, r io.Reader) (blob.Ref, error)

// Capture lists the tree, and keeps by put every content that is new or may
// have changed since before, which is an earlier listing of this tree; nil:
// nothing is known. It costs a system call for each file, and reads only what
// has another stamp than before, or one that could be the same after a change.
// The changes are those from before. An error of put, and of reading a file,
// ends it; what vanishes meanwhile is left out, and of what changes meanwhile
// some state is kept, and looked at again by the next Capture. It holds no lock.
func (t *Tree) Capture(before *Listing, put PutFunc) (*Listing, []Change, error) {
	c := newCapture(t, before, put)
	names, err := readNames(t.root())
	if err == nil {
		err = c.folder(t.root(), names, "", 0, before.top())
	}
	if err != nil {
		return nil, nil, explain(err, ".")
	}
	t.measuredAs(c.sum)
	after := &Listing{boot: thisBoot(), entries: c.entries}
	return after, before.Changes(after), nil
}

// capture makes a listing.
type capture struct {
	tree    *Tree
	trusted bool // the stamps of the listing before
	put     PutFunc
	entries []entry
	sum     int64 // what counts towards the disk limit
	piece   []byte
}

func newCapture(t *Tree, before *Listing, put PutFunc) *capture {
	c := &capture{tree: t, put: put}
	c.entries = make([]entry, 0, len(before.top().all)+8)
	c.trusted = before != nil && before.boot == thisBoot()
	return c
}

// clockTick is how much of a file's time a file system may not show: less than
// this passes between two moments that look the same. Linux's kernels tick every
// 1 to 10 ms. Where times are whole seconds, it is two of them (FAT).
const clockTick = 20 * time.Millisecond

// racy tells whether a file with this stamp, which was looked at just after now,
// could have been changed since without another stamp.
func racy(s stamp, now time.Time) bool {
	at, tick := s.meta, clockTick
	if at == 0 {
		at = s.modified // all that this system tells
	}
	if at%int64(time.Second) == 0 {
		tick = 2 * time.Second
	}
	return at >= now.Add(-tick).UnixNano()
}

// folder lists the names in dir, which lies at prefix.
func (c *capture) folder(dir *os.Root, names []string, prefix string, depth int, before branch) error {
	for _, name := range names {
		old, below := before.find(name)
		if err := c.entry(dir, prefix, name, depth, old, below); err != nil {
			return err
		}
	}
	return nil
}

// attempts is how often a file is read that changes while it is.
const attempts = 3

// entry lists one name in a folder. old is what had it before, nil: nothing.
func (c *capture) entry(dir *os.Root, prefix, name string, depth int, old *entry, below branch) error {
	for attempt := 1; ; attempt++ {
		info, err := dir.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it vanished
		}
		if err != nil {
			return explain(err, path.Join(prefix, name))
		}
		e := entry{name: name, mode: info.Mode().Perm(), stamp: stampOf(info)}
		again := false
		switch {
		case strings.HasPrefix(name, tempPrefix):
			c.sum = add(c.sum, weighAll(dir, info))
			return nil
		case info.IsDir():
			return c.subfolder(dir, prefix, info, depth, e, below)
		case info.Mode().IsRegular():
			again, err = c.file(dir, prefix, info, &e, old, attempt == attempts)
		case info.Mode()&fs.ModeSymlink != 0:
			again, err = c.link(dir, &e, old)
		default:
			c.sum = add(c.sum, weight(info))
			return nil
		}
		switch {
		case err == nil && !again:
			c.sum = add(c.sum, weight(info))
			c.add(e)
			return nil
		case errors.Is(err, fs.ErrNotExist) || again && attempt == attempts:
			return nil
		case err != nil:
			return err
		}
	}
}

func (c *capture) add(e entry) {
	e.end = len(c.entries) + 1
	c.entries = append(c.entries, e)
}

// subfolder lists a folder and what is in it.
func (c *capture) subfolder(dir *os.Root, prefix string, info fs.FileInfo, depth int, e entry, below branch) error {
	c.sum = add(c.sum, weight(info))
	at := len(c.entries)
	e.kind, e.stamp = isFolder, stamp{modified: e.stamp.modified}
	c.add(e)
	if depth == maxDepth {
		below := weighAll(dir, info) - weight(info)
		c.sum = add(c.sum, below)
		c.entries[at].unknown = below > 0 || !isEmpty(dir, info)
		return nil
	}
	p := join(prefix, e.name)
	sub, done, err := openFolder(dir, e.name, info, 0o500)
	var names []string
	if err == nil {
		defer done()
		names, err = readNames(sub)
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		c.entries[at].unknown = true
		return nil
	case errors.Is(err, errSwapped) || errors.Is(err, fs.ErrNotExist):
		c.entries = c.entries[:at]
		return nil
	case err != nil:
		return explain(err, p)
	}
	err = c.folder(sub, names, p, depth+1, below)
	c.entries[at].end = len(c.entries)
	return err
}

// known tells whether a stamp shows that something is what it was before.
func (c *capture) known(old *entry, e *entry) bool {
	return c.trusted && old != nil && old.kind == e.kind && !old.racy && old.stamp == e.stamp && old.mode == e.mode
}

// link reads where a link leads to.
func (c *capture) link(dir *os.Root, e *entry, old *entry) (again bool, err error) {
	e.kind, e.mode = isLink, 0
	if c.known(old, e) {
		*e = *old
		return false, nil
	}
	now := time.Now()
	if e.target, err = dir.Readlink(e.name); err != nil {
		return true, nil // it is not a link any more
	}
	e.racy = racy(e.stamp, now)
	return false, nil
}

// file keeps the content of a file. again tells that it changed meanwhile, which
// is no reason to do it again when this is the last attempt.
func (c *capture) file(dir *os.Root, prefix string, info fs.FileInfo, e *entry, old *entry, last bool) (again bool, err error) {
	if c.known(old, e) {
		*e = *old
		return false, nil
	}
	f, err := openFile(dir, e.name, info)
	switch {
	case errors.Is(err, fs.ErrPermission):
		e.unknown = true
		return false, nil
	case errors.Is(err, errSwapped):
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, err
	case err != nil:
		return false, explain(err, join(prefix, e.name))
	}
	defer f.Close()
	now := time.Now()
	first, err := f.Stat()
	if err != nil {
		return false, explain(err, join(prefix, e.name))
	}
	e.stamp, e.mode = stampOf(first), first.Mode().Perm()
	if e.ref, err = c.keep(f, first.Size(), join(prefix, e.name), old); err != nil {
		return false, err
	}
	second, err := f.Stat()
	if err != nil {
		return false, explain(err, join(prefix, e.name))
	}
	e.racy = racy(e.stamp, now)
	return stampOf(second) != e.stamp && !last, nil
}

// keep gives what refers to the first so many bytes of f. What may be as before
// is compared first: that is cheaper than to keep it again.
func (c *capture) keep(f *os.File, size int64, p string, old *entry) (blob.Ref, error) {
	if old != nil && old.kind == isFile && !old.unknown && old.ref.Size == size {
		digest, err := c.digest(io.NewSectionReader(f, 0, size))
		if err != nil {
			return blob.Ref{}, explain(err, p)
		}
		if digest == old.ref.Digest {
			return old.ref, nil
		}
	}
	src := &source{r: io.NewSectionReader(f, 0, size)}
	ref, err := c.put(p, src)
	if src.err != nil {
		return blob.Ref{}, explain(src.err, p)
	}
	if err != nil {
		return blob.Ref{}, fmt.Errorf("keeping %s: %w", p, err)
	}
	return ref, nil
}

// source remembers what the reading of a file said.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

func (c *capture) digest(r io.Reader) (blob.Digest, error) {
	if c.piece == nil {
		c.piece = make([]byte, pieceBytes)
	}
	h := sha256.New()
	_, err := io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{r}, c.piece)
	return blob.Digest(h.Sum(nil)), err
}
