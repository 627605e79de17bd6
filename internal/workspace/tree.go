// Package workspace holds a session's files. Everything goes through an
// os.Root: no path leaves the folder, whatever links a guest plants in it and
// whenever it swaps them.
package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"paddock/internal/fault"
	"paddock/internal/pattern"
)

// MaxFiles bounds what a listing, a search and a snapshot look at.
const MaxFiles = 10_000

// maxDepth bounds how deep folders are listed and kept: as deep as the sandbox lets
// a program name anything (package wasi). Each holds a descriptor meanwhile. What lies
// deeper counts towards the disk limit ([weighIn]), can be removed ([RemoveAll]), and is
// told where it is left out ([Listing.Unkept], [Tree.List]).
const maxDepth = 200

// blockBytes is what a file or a folder counts at least towards the disk
// limit: a million empty files are not free.
const blockBytes = 4 << 10

// tempPrefix begins the name of a file that is being written. Such a file is
// not listed; it counts towards the disk limit.
const tempPrefix = ".paddock-write-"

// Options of a Tree.
type Options struct {
	// DiskBytes bounds the sum of the files' sizes, where each file and folder
	// counts 4 KiB at least; zero allows no growth.
	DiskBytes int64
	// UID and GID are whom new files and folders are given to, so that a guest
	// that runs as somebody else can change them; zero: nobody.
	UID, GID int
	// Owner is whose the files are: the searches of an owner take turns.
	Owner string
	// Grow is asked, when set, before the files grow by so many bytes, with
	// other writers of the tree kept out; its error is the write's.
	Grow func(bytes int64) error
	// Keep is told, when set, after each change that was made through the Tree,
	// and before the method that made it returns, which files or folders are
	// others now, or gone: what [Tree.CapturePaths] takes. Its error is the
	// method's, although the change has been made. No lock of the Tree is held
	// meanwhile, so there may be newer changes already.
	Keep func(paths []string) error
	// Changed is told, when set, that something in the folder may be another thing now: after
	// whatever a method changed, also one that failed, and before Keep is and the method
	// returns. It must not take long.
	Changed func()
}

// Tree is one folder of files. It is safe for concurrent use, also while a
// guest changes the folder. Paths are what [Clean] accepts.
type Tree struct {
	at      atomic.Pointer[os.Root]
	dir     string // where the folder is; "": nobody replaces it
	options Options

	writing sync.Mutex // held by whoever changes files, so that a quota and an edit hold

	leased   atomic.Int64 // what writers may still add; grows under writing
	used     atomic.Int64 // what DiskBytes found last, and what was written since
	measured atomic.Bool  // that it did
}

// File is one regular file.
type File struct {
	Path     string // relative to the folder, with slashes
	Size     int64
	Modified time.Time

	stamp stamp
}

// Open gives the tree of a folder, which must exist.
func Open(dir string, o Options) (*Tree, error) {
	root, err := os.OpenRoot(dir + "/.") // see enter
	if err != nil {
		return nil, fmt.Errorf("opening a workspace: %w", err)
	}
	t := &Tree{dir: dir, options: o}
	t.at.Store(root)
	return t, nil
}

func (t *Tree) root() *os.Root { return t.at.Load() }

// Replace puts an empty folder of the same disk in the place of the tree's own, which
// has to be empty as well, else it is a fault.Conflict: at every moment there is one of
// them. Nobody writes meanwhile; who reads may be told that nothing is there. After an
// error all is as it was.
func (t *Tree) Replace(by string) error {
	defer t.changed()
	t.writing.Lock()
	defer t.writing.Unlock()
	names, err := readNames(t.root())
	if err == nil && len(names) > 0 {
		err = fault.New(fault.Conflict, "there are files in the folder")
	}
	if err != nil {
		return fmt.Errorf("replacing a folder: %w", err)
	}
	root, err := os.OpenRoot(by + "/.")
	if err != nil {
		return fmt.Errorf("replacing a folder: %w", err)
	}
	// os.Rename takes no folder's place.
	if err := syscall.Rename(by, t.dir); err != nil {
		root.Close()
		return fmt.Errorf("replacing a folder: %w", err)
	}
	return t.at.Swap(root).Close()
}

// Close lets go of the folder. Afterwards every method is a fault.NotFound.
func (t *Tree) Close() error { return t.root().Close() }

// Stat tells about one regular file.
func (t *Tree) Stat(name string) (File, error) {
	p, err := Clean(name)
	if err != nil {
		return File{}, err
	}
	info, err := t.root().Stat(p)
	if err != nil {
		return File{}, explain(err, p)
	}
	if err := regular(info, p); err != nil {
		return File{}, err
	}
	return fileOf(p, info), nil
}

func fileOf(p string, info fs.FileInfo) File {
	return File{Path: p, Size: info.Size(), Modified: info.ModTime(), stamp: stampOf(info)}
}

// List gives the regular files that match a glob (see [Glob]; empty: all),
// sorted by path. Links are not followed and, like FIFOs, devices and sockets,
// not listed. more tells that there are others: more than MaxFiles, or some that lie
// deeper than 200 folders or have longer paths than anybody can use. It
// ends with ctx.
func (t *Tree) List(ctx context.Context, glob string) (files []File, more bool, err error) {
	m := pattern.NewMeter(ctx, t.options.Owner, pattern.MaxSteps)
	defer m.Close()
	return t.list(ctx, glob, m)
}

func (t *Tree) list(ctx context.Context, glob string, m *pattern.Meter) (files []File, more bool, err error) {
	g, err := NewGlob(glob)
	if err != nil {
		return nil, false, err
	}
	seen := 0
	left, err := t.walk(func(p string, info fs.FileInfo) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !info.Mode().IsRegular() || hidden(p) {
			return nil
		}
		if seen++; seen > MaxFiles {
			more = true
			return fs.SkipAll
		}
		is, err := g.Match(p, m)
		if is {
			files = append(files, fileOf(p, info))
		}
		return err
	})
	if err != nil {
		return nil, false, err
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return files, more || left, nil
}

// DiskBytes is what counts towards the disk limit now.
func (t *Tree) DiskBytes() (int64, error) {
	sum, err := weighIn(t.root())
	if err == nil {
		t.measuredAs(sum)
	}
	return sum, explain(err, ".")
}

func (t *Tree) measuredAs(sum int64) {
	t.used.Store(sum)
	t.measured.Store(true)
}

func weight(info fs.FileInfo) int64 {
	if info.Mode().IsRegular() {
		return max(info.Size(), blockBytes)
	}
	return blockBytes
}

// change makes a change with all other writers kept out, and then has it kept.
func (t *Tree) change(do func() (paths []string, err error)) error {
	paths, err := t.alone(do)
	if err != nil || t.options.Keep == nil || len(paths) == 0 {
		return err
	}
	return t.options.Keep(paths)
}

func (t *Tree) alone(do func() ([]string, error)) ([]string, error) {
	defer t.changed()
	t.writing.Lock()
	defer t.writing.Unlock()
	return do()
}

// changed tells that something was changed, or may have been.
func (t *Tree) changed() {
	if t.options.Changed != nil {
		t.options.Changed()
	}
}

// walk calls visit for everything below the folder, folders before what is in
// them, each folder's names in order. What vanishes meanwhile is left out.
// fs.SkipAll ends the walk. left tells that something else was left out: it lies
// too deep, has too long a path, or may not be looked at.
func (t *Tree) walk(visit func(p string, info fs.FileInfo) error) (left bool, err error) {
	w := walker{visit: visit}
	err = w.folder(t.root(), "", 0)
	if errors.Is(err, fs.SkipAll) {
		err = nil
	}
	return w.left, explain(err, ".")
}

type walker struct {
	visit func(p string, info fs.FileInfo) error
	left  bool
}

// folder opens each folder once and asks for its entries relative to it: that
// is cheaper than by their whole paths, and no link can get in between.
func (w *walker) folder(root *os.Root, prefix string, depth int) error {
	names, err := readNames(root)
	if err != nil {
		if prefix != "" {
			w.left = true
			return nil
		}
		return err
	}
	for _, name := range names {
		info, err := root.Lstat(name)
		if err != nil {
			continue
		}
		if len(prefix)+1+len(name) > maxPath {
			w.left = true
			continue
		}
		p := join(prefix, name)
		if err := w.visit(p, info); err != nil {
			return err
		}
		if !info.IsDir() {
			continue
		}
		if depth == maxDepth {
			w.left = true
			continue
		}
		sub, err := enter(root, name)
		if err != nil {
			w.left = w.left || !errors.Is(err, fs.ErrNotExist)
			continue
		}
		err = w.folder(sub, p, depth+1)
		sub.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func readNames(root *os.Root) ([]string, error) {
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

func hidden(p string) bool {
	return strings.HasPrefix(p, tempPrefix) || strings.HasPrefix(path.Base(p), tempPrefix)
}

// regular refuses what cannot be read or edited as a file.
func regular(info fs.FileInfo, p string) error {
	switch {
	case info.Mode().IsRegular():
		return nil
	case info.IsDir():
		return fault.New(fault.Invalid, "%s is a folder", p).WithHint("list its files with the glob %s/**", p)
	}
	return fault.New(fault.Denied, "%s is neither a file nor a folder", p).WithHint("FIFOs, devices and sockets are not opened")
}

// explain makes a fault of what the system said about p.
func explain(err error, p string) error {
	var f *fault.Error
	switch {
	case err == nil || errors.As(err, &f) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, os.ErrClosed):
		return fault.New(fault.NotFound, "the workspace is gone").WithHint("its session was destroyed or has expired").WithCause(err)
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.NotFound, "there is no file %s", p).WithHint("list the files to see what there is").WithCause(err)
	case errors.Is(err, syscall.ENOTDIR):
		return fault.New(fault.Invalid, "a part of the path %s is a file and no folder", p).WithCause(err)
	case errors.Is(err, syscall.EISDIR):
		return fault.New(fault.Invalid, "%s is a folder", p).WithCause(err)
	case errors.Is(err, syscall.ENAMETOOLONG):
		return fault.New(fault.Invalid, "the path is too long").WithCause(err)
	case errors.Is(err, syscall.ENOSPC):
		return fault.New(fault.Exhausted, "the host's disk is full").WithHint("delete files, destroy sessions that are no longer needed, or ask the operator for more room").WithCause(err)
	case escapes(err):
		return fault.New(fault.Denied, "%s leads out of the workspace", p).WithHint("a link on the way points outside; only files below /workspace can be reached").WithCause(err)
	case errors.Is(err, fs.ErrPermission):
		return fault.New(fault.Denied, "the file system does not allow this for %s", p).WithCause(err)
	}
	return fault.New(fault.Internal, "the file system refused to touch %s", p).WithHint("the server's log says more").WithCause(err)
}

// escapes recognises os.Root's refusal, which has no name of its own, and a
// chain of links without an end.
func escapes(err error) bool {
	return strings.Contains(err.Error(), "escapes from parent") || errors.Is(err, syscall.ELOOP) ||
		strings.Contains(err.Error(), "too many links") || strings.Contains(err.Error(), "too many levels")
}
