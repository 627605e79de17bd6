package sandboxtest

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"paddock/internal/sandbox"
)

// fakeMount is a folder that the guest sees.
type fakeMount struct {
	sandbox.Mount
	root *os.Root
}

// resolve finds the mount that a guest's path lies in.
func (r *fakeRun) resolve(p string) (fakeMount, string, error) {
	if !path.IsAbs(p) {
		p = path.Join("/", r.in.spec.Dir, p)
	}
	p = path.Clean(p)
	for _, m := range r.in.mounts {
		for _, guest := range append([]string{m.Guest}, m.Aliases...) {
			if rest, ok := strings.CutPrefix(p, guest); ok && strings.HasPrefix(rest, "/") {
				return m, rest[1:], nil
			}
		}
	}
	return fakeMount{}, "", &raised{kind: "FileNotFoundError", message: "no such file: " + p}
}

// fileError is what a program sees of a file system's error.
func fileError(err error, p string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return &raised{kind: "FileNotFoundError", message: "no such file: " + p}
	case errors.Is(err, syscall.ENOSPC):
		return &raised{kind: "OSError", message: "no space left on device", cause: sandbox.OutOfSpace}
	}
	return &raised{kind: "PermissionError", message: "not permitted: " + p}
}

func (r *fakeRun) readFile(p string) (string, error) {
	m, rel, err := r.resolve(p)
	if err != nil {
		return "", err
	}
	info, err := m.root.Stat(rel)
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrPermission
	}
	if err != nil {
		return "", fileError(err, p)
	}
	data, err := m.root.ReadFile(rel)
	return string(data), fileError(err, p)
}

// writeFile replaces or extends a file, within its mount's limit.
func (r *fakeRun) writeFile(p, data string, flag int) error {
	m, rel, err := r.resolve(p)
	if err != nil {
		return err
	}
	if m.ReadOnly {
		return fileError(fs.ErrPermission, p)
	}
	if m.used()+int64(len(data)) > m.DiskBytes {
		return fileError(syscall.ENOSPC, p)
	}
	f, err := m.root.OpenFile(rel, os.O_WRONLY|os.O_CREATE|flag, 0o644)
	if err != nil {
		return fileError(err, p)
	}
	_, err = f.WriteString(data)
	return fileError(errors.Join(err, f.Close()), p)
}

// used is the sum of the sizes of the files in the mount.
func (m fakeMount) used() (sum int64) {
	_ = fs.WalkDir(m.root.FS(), ".", func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				sum += info.Size()
			}
		}
		return nil
	})
	return sum
}

// fill extends a file until something stops it.
func (r *fakeRun) fill(p string) error {
	for {
		if err := r.spend(1); err != nil {
			return err
		}
		if err := r.writeFile(p, strings.Repeat("x", 64<<10), os.O_APPEND); err != nil {
			return err
		}
	}
}

func (r *fakeRun) removeFile(p string) error {
	m, rel, err := r.resolve(p)
	if err != nil {
		return err
	}
	if m.ReadOnly {
		return fileError(fs.ErrPermission, p)
	}
	return fileError(m.root.Remove(rel), p)
}

func (r *fakeRun) symlink(target, link string) error {
	m, rel, err := r.resolve(link)
	if err != nil {
		return err
	}
	if m.ReadOnly {
		return fileError(fs.ErrPermission, link)
	}
	return fileError(m.root.Symlink(target, rel), link)
}
