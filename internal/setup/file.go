package setup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"paddock/internal/atomicfile"
	"paddock/internal/fault"
)

// Change is what [Update] did.
type Change struct {
	// Changed tells whether the file is another now.
	Changed bool
	// Backup is a copy of what the file was, beside it; empty: there was no file.
	Backup string
	// Shared tells whether other users of the machine may read the file.
	Shared bool
}

// Update replaces the content of the file at path by what edit makes of it.
// The file is a whole one at every moment, the old or the new; a copy of the
// old stays beside it. A link is followed and stays a link, mode and owner
// stay, and a new file has the mode given (its folders with x where it has r).
// When edit fails or changes nothing, nothing is touched.
func Update(path string, mode fs.FileMode, edit func(old []byte) ([]byte, error)) (Change, error) {
	target, err := follow(path)
	if err != nil {
		return Change{}, err
	}
	old, info, err := read(target)
	if err != nil {
		return Change{}, err
	}
	changed, err := edit(old)
	if err != nil {
		return Change{}, err
	}
	c := Change{Shared: info != nil && info.Mode()&0o044 != 0}
	if bytes.Equal(old, changed) {
		return c, nil
	}
	c.Changed = true
	if info == nil {
		if err := os.MkdirAll(filepath.Dir(target), mode|mode&0o444>>2); err != nil {
			return Change{}, unwritable(path, err)
		}
	} else {
		if info.Mode()&0o200 == 0 {
			return Change{}, unwritable(path, errors.New("its mode is read-only"))
		}
		if c.Backup, err = backup(path, old, info); err != nil {
			return Change{}, unwritable(path, err)
		}
		mode = info.Mode().Perm()
	}
	if err := replace(target, old, changed, mode, info); err != nil {
		if c.Backup != "" {
			os.Remove(c.Backup)
		}
		return Change{}, err
	}
	return c, nil
}

// follow gives the file that path is or, by links, names; it need not exist.
func follow(path string) (string, error) {
	for range 40 {
		link, err := os.Readlink(path)
		if err != nil {
			return path, nil
		}
		if !filepath.IsAbs(link) {
			link = filepath.Join(filepath.Dir(path), link)
		}
		path = link
	}
	return "", fault.New(fault.Invalid, "%s is a link to itself", path).WithHint("remove it first; nothing was changed")
}

// read gives a file's content; nil: there is no file.
func read(path string) ([]byte, fs.FileInfo, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err == nil && !info.Mode().IsRegular() {
		return nil, nil, fault.New(fault.Invalid, "%s is not a file", path).WithHint("move it away first; nothing was changed")
	}
	var b []byte
	if err == nil {
		b, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, nil, fault.New(fault.Denied, "%s cannot be read", path).WithHint("run this as the user whose client it is").WithCause(err)
	}
	return b, info, nil
}

func unwritable(path string, err error) error {
	return fault.New(fault.Denied, "%s cannot be written: %v", path, reason(err)).
		WithHint("make it writable, or use --print and put the entry there by hand; nothing was changed").WithCause(err)
}

// reason is an error without the names of paddock's own temporary files.
func reason(err error) error {
	var at *fs.PathError
	var renamed *os.LinkError
	switch {
	case errors.As(err, &at):
		return at.Err
	case errors.As(err, &renamed):
		return renamed.Err
	}
	return err
}

// backup copies what the file at path was to a new file beside it.
func backup(path string, old []byte, info fs.FileInfo) (string, error) {
	name := path + ".paddock-" + time.Now().UTC().Format("20060102T150405Z")
	for i := 1; ; i++ {
		to := name + ".bak"
		if i > 1 {
			to = fmt.Sprintf("%s-%d.bak", name, i)
		}
		f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		if err := errors.Join(fill(f, old, info.Mode().Perm(), info), f.Close()); err != nil {
			os.Remove(to)
			return "", err
		}
		return to, nil
	}
}

// replace writes a file beside target and puts it into its place, unless
// somebody else has written there since old was read.
func replace(target string, old, changed []byte, mode fs.FileMode, info fs.FileInfo) error {
	p, err := atomicfile.Create(target, atomicfile.Options{Prefix: ".paddock-"})
	if err != nil {
		return unwritable(target, err)
	}
	defer p.Discard()
	if err := fill(p.File, changed, mode, info); err != nil {
		return unwritable(target, err)
	}
	if now, _, err := read(target); err != nil || !bytes.Equal(now, old) {
		return fault.New(fault.Conflict, "%s was changed meanwhile by another program", target).
			WithHint("close the client, then run the same again; nothing was changed").WithCause(err)
	}
	if err := p.Commit(); err != nil {
		return unwritable(target, err)
	}
	return nil
}

// fill writes and syncs a new file, with the owner of the one it is for.
func fill(f *os.File, content []byte, mode fs.FileMode, info fs.FileInfo) error {
	_, err := f.Write(content)
	if err == nil {
		err = keepOwner(f, info)
	}
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	return err
}
