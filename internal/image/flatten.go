package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"paddock/internal/blob"
	"paddock/internal/fault"
)

// flatten lays unpacked layers over each other into the empty folder dir, the
// lowest first. Files are hard links to those of the layers, so a layer is on the
// disk once however many images have it; folders are each image's own.
func (s *Store) flatten(ctx context.Context, dir string, layers []string) error {
	to, err := os.OpenRoot(dir)
	if err != nil {
		return blob.Explain(err, "putting an image together")
	}
	defer to.Close()
	for _, digest := range layers {
		var c contents
		if err := readJSON(filepath.Join(s.layer(digest), layerFile), &c); err != nil {
			return fmt.Errorf("reading what a layer is: %w", err)
		}
		if err := clearFor(to, c); err != nil {
			return explainFlatten(err)
		}
		from, err := os.OpenRoot(filepath.Join(s.layer(digest), treeFolder))
		if err != nil {
			return blob.Explain(err, "putting an image together")
		}
		err = lay(ctx, from, to)
		from.Close()
		if err != nil {
			return explainFlatten(err)
		}
	}
	return nil
}

func explainFlatten(err error) error {
	switch {
	case errors.Is(err, syscall.EMLINK):
		return errImage("it has a file of more names than the disk can give").WithCause(err)
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EXDEV), errors.Is(err, errors.ErrUnsupported):
		return fault.New(fault.Unavailable, "the state folder's file system has no hard links").WithHint("put the state folder on a local disk").WithCause(err)
	}
	return blob.Explain(err, "putting an image together")
}

// clearFor removes from what the layers below gave what a layer says is gone. No
// link is followed: what a layer removes it names by its true path.
func clearFor(to *os.Root, c contents) error {
	for _, name := range c.Opaque {
		dir, err := truly(to, name)
		if err != nil {
			return err
		}
		if dir == nil {
			continue
		}
		err = clearFolder(dir)
		dir.Close()
		if err != nil {
			return err
		}
	}
	for _, name := range c.Gone {
		dir, err := truly(to, path.Dir(name))
		if err != nil {
			return err
		}
		if dir == nil {
			continue
		}
		err = dir.RemoveAll(path.Base(name))
		dir.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// truly opens a folder if each part of its path is one, and no link; nil: it is
// not there.
func truly(root *os.Root, name string) (*os.Root, error) {
	at := "."
	for part := range strings.SplitSeq(name, "/") {
		at = path.Join(at, part)
		info, err := root.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return root.OpenRoot(at)
}

func clearFolder(dir *os.Root) error {
	names, err := list(dir)
	if err != nil {
		return err
	}
	for _, e := range names {
		if err := dir.RemoveAll(e.Name()); err != nil {
			return err
		}
	}
	return nil
}

func list(dir *os.Root) ([]fs.DirEntry, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ReadDir(-1)
}

// lay puts a folder of a layer over the same folder of the layers below.
func lay(ctx context.Context, from, to *os.Root) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	entries, err := list(from)
	if err != nil {
		return err
	}
	if err := layFiles(from, to, entries); err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := layFolder(ctx, from, to, e.Name()); err != nil {
				return err
			}
		}
	}
	return like(from, to)
}

// layFiles links what of a folder is not a folder.
func layFiles(from, to *os.Root, entries []fs.DirEntry) error {
	source, err := from.Open(".")
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := to.Open(".")
	if err != nil {
		return err
	}
	defer target.Close()
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		err := link(source, target, e.Name())
		if errors.Is(err, fs.ErrExist) {
			if err = to.RemoveAll(e.Name()); err == nil {
				err = link(source, target, e.Name())
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// layFolder lays one below the two.
func layFolder(ctx context.Context, from, to *os.Root, name string) error {
	err := to.Mkdir(name, 0o700)
	if errors.Is(err, fs.ErrExist) {
		var there fs.FileInfo
		if there, err = to.Lstat(name); err == nil && !there.IsDir() {
			if err = to.Remove(name); err == nil {
				err = to.Mkdir(name, 0o700)
			}
		}
	}
	if err != nil {
		return err
	}
	below, err := from.OpenRoot(name)
	if err != nil {
		return err
	}
	defer below.Close()
	over, err := to.OpenRoot(name)
	if err != nil {
		return err
	}
	defer over.Close()
	return lay(ctx, below, over)
}

// like gives a folder the owner, the permissions and the time of another one.
func like(from, to *os.Root) error {
	info, err := from.Stat(".")
	if err != nil {
		return err
	}
	if uid, gid, ok := ownerOf(info); ok && os.Geteuid() == 0 {
		if err := to.Chown(".", uid, gid); err != nil {
			return err
		}
	}
	if err := to.Chmod(".", info.Mode().Perm()|info.Mode()&fs.ModeSticky); err != nil {
		return err
	}
	return to.Chtimes(".", time.Time{}, info.ModTime())
}
