package linkfarm

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"paddock/internal/blob"
)

// LinkTree is [Link] with all files of a folder.
func LinkTree(from, to string) error {
	var files []string
	err := filepath.WalkDir(from, func(at string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files = append(files, filepath.ToSlash(strings.TrimPrefix(at[len(from):], string(filepath.Separator))))
		}
		return err
	})
	if err != nil {
		return err
	}
	return Link(os.Link, from, to, files)
}

// Link makes files of one folder appear in another one, which is made where it is missing.
// They are public. Where link fails they are copied: on other disks, with too many links,
// or on a system without them. A file that is there already is an fs.ErrExist, one that
// is missing an fs.ErrNotExist.
func Link(link func(old, name string) error, from, to string, files []string) error {
	if err := MakeFolder(to); err != nil {
		return err
	}
	links := true
	for _, file := range files {
		if err := public.makeFoldersOf(to, file); err != nil {
			return err
		}
		old, name := filepath.Join(from, filepath.FromSlash(file)), filepath.Join(to, filepath.FromSlash(file))
		if links {
			err := link(old, name)
			if err == nil {
				continue
			}
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
				return err
			}
			links = false
		}
		if err := copyFile(old, name); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return public.write(to, File{Executable: info.Mode()&0o100 != 0, Data: data})
}

// Swap puts parts of a folder in the place of those that are there. fill makes the new
// ones in a folder beside them; a part that it does not make, or without fill any, is
// removed. A part is a path with slashes. A program that reads the folder meanwhile finds
// each part as it was, as it is, or, for an instant, not at all: the first part goes last
// and comes first. After an error there is what was there before, as far as can be; a
// process that is killed leaves a folder whose name begins with [blob.TempPrefix].
func Swap(dir string, parts []string, fill func(fresh string) error) error {
	temp := filepath.Join(dir, blob.TempPrefix+rand.Text())
	defer os.RemoveAll(temp)
	before, after := filepath.Join(temp, "before"), filepath.Join(temp, "after")
	for _, folder := range []string{temp, before, after} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			return err
		}
	}
	if fill != nil {
		if err := fill(after); err != nil {
			return err
		}
	}
	for k := len(parts) - 1; k >= 0; k-- {
		if err := move(dir, before, parts[k]); err != nil {
			return errors.Join(err, moveAll(before, dir, parts[k+1:]))
		}
	}
	for k, part := range parts {
		if err := move(after, dir, part); err != nil {
			return errors.Join(err, moveAll(dir, after, parts[:k]), moveAll(before, dir, parts))
		}
	}
	return nil
}

func moveAll(from, to string, parts []string) error {
	var errs []error
	for _, part := range parts {
		errs = append(errs, move(from, to, part))
	}
	return errors.Join(errs...)
}

// move moves a part, if it is there.
func move(from, to, part string) error {
	old, name := filepath.Join(from, filepath.FromSlash(part)), filepath.Join(to, filepath.FromSlash(part))
	if _, err := os.Lstat(old); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := public.makeFoldersOf(to, part); err != nil {
		return err
	}
	return os.Rename(old, name)
}
