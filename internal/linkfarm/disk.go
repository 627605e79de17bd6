// Package linkfarm makes trees of files once for each owner and has the folders of
// sessions share them by hard links.
//
// A [Disk] writes trees, a [Store] keeps those of many owners, [Link] makes the files of a
// tree appear in another folder, and [Swap] puts parts of a folder in the place of others.
// Links are never between owners: what is written into one owner's folder through a link
// cannot change what another owner's programs read.
package linkfarm

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"

	"paddock/internal/blob"
)

// Stamp is the name of the file that says what a folder was made of.
const Stamp = ".made-of"

// File is one file of a tree.
type File struct {
	Path       string // with slashes, below the tree's folder
	Executable bool
	Data       []byte // not to be changed
}

// Disk is how trees and files are written.
type Disk struct {
	// Files is the file system; it must be on the operating system's.
	Files blob.Files
	// Durable: what a method has written outlasts a power cut once it has returned nil.
	Durable bool
	// Public: everybody may read what is written, whatever the umask, because programs may
	// run as another user. Otherwise only this user may.
	Public bool
}

// public is how the folders of sessions are written.
var public = Disk{Files: blob.OS, Public: true}

// Make puts a folder at final, in the place of what is there, once fill has filled it; the
// folders above are made where they are missing. fill is given the name of a folder that
// does not exist yet. What is at final stays if whole says so, as when another process was
// faster; nil: it does not. After an error or a crash there is the old folder, none, or the
// new one, and never a part of it.
func (d Disk) Make(final string, fill func(fresh string) error, whole func() bool) error {
	dir := filepath.Dir(final)
	if err := d.makeParents(dir); err != nil {
		return err
	}
	temp := filepath.Join(dir, blob.TempPrefix+rand.Text())
	err := fill(temp)
	if err == nil {
		err = d.rename(temp, final, whole)
	}
	if err != nil {
		_ = RemoveTree(d.Files, temp)
		return err
	}
	if d.Durable {
		return d.Files.SyncDir(dir)
	}
	return nil
}

// rename gives a folder its name. A folder that has the name is in the way, if it is not
// empty.
func (d Disk) rename(temp, final string, whole func() bool) error {
	err := d.Files.Rename(temp, final)
	if err == nil {
		return nil
	}
	if whole != nil && whole() {
		return RemoveTree(d.Files, temp)
	}
	if err := RemoveTree(d.Files, final); err != nil {
		return err
	}
	return d.Files.Rename(temp, final)
}

func (d Disk) makeParents(dir string) error {
	if d.Durable {
		return blob.MakeFolder(d.Files, dir)
	}
	_, err := blob.PlaceFolder(d.Files, dir)
	return err
}

// Fill writes files into a new folder. A path that leads out of the folder is an error, and
// then nothing is written.
func (d Disk) Fill(dir string, files []File) error {
	for _, file := range files {
		if !filepath.IsLocal(filepath.FromSlash(file.Path)) || path.Clean(file.Path) != file.Path || file.Path == "." {
			return fmt.Errorf("linkfarm: %q is not a path below a folder", file.Path)
		}
	}
	if err := d.makeFolder(dir); err != nil {
		return err
	}
	for _, file := range files {
		if err := d.makeFoldersOf(dir, file.Path); err != nil {
			return err
		}
	}
	err := together(files, func(file File) error {
		return d.write(filepath.Join(dir, filepath.FromSlash(file.Path)), file)
	})
	if err != nil || !d.Durable {
		return err
	}
	return SyncTree(d.Files, dir)
}

// write writes a file that is not there.
func (d Disk) write(name string, file File) error {
	f, err := d.Files.Create(name) // with the mode 0600
	if err != nil {
		return err
	}
	mode := fs.FileMode(0o600)
	if d.Public {
		mode = 0o644 // programs copy files with their modes, and change the copies
	}
	if file.Executable {
		mode |= mode & 0o444 >> 2
	}
	_, err = f.Write(file.Data)
	if err == nil && mode != 0o600 {
		err = os.Chmod(name, mode)
	}
	if err == nil && d.Durable {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Put makes data the content of a file: a reader finds what was there, or all that is
// new. Only one goroutine may put a file of that name at a time. [blob.WriteFile] is for
// what must be durable and private.
func (d Disk) Put(name string, data []byte) error {
	temp := filepath.Join(filepath.Dir(name), blob.TempPrefix+filepath.Base(name))
	_ = d.Files.Remove(temp) // an interrupted Put left it
	err := d.write(temp, File{Data: data})
	if err == nil {
		err = d.Files.Rename(temp, name)
	}
	if err != nil {
		_ = d.Files.Remove(temp)
	}
	return err
}

// RemoveTree removes a file, or a folder and all that is in it. What is not there is not
// an error.
func RemoveTree(files blob.Files, name string) error {
	err := files.Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	entries, listErr := files.ReadDir(name)
	if listErr != nil {
		return err
	}
	for _, e := range entries {
		if err := RemoveTree(files, filepath.Join(name, e.Name())); err != nil {
			return err
		}
	}
	return files.Remove(name)
}

// SyncTree makes the names in a folder, and in those below it, outlast a power cut.
func SyncTree(files blob.Files, dir string) error {
	var all []string
	err := filepath.WalkDir(dir, func(at string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			all = append(all, at)
		}
		return err
	})
	if err != nil {
		return err
	}
	return together(all, files.SyncDir)
}

// MakeFolder makes a folder that everybody may read, where it is missing.
func MakeFolder(dir string) error { return public.makeFolder(dir) }

func (d Disk) makeFolder(dir string) error {
	err := d.Files.Mkdir(dir)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil && d.Public {
		err = os.Chmod(dir, 0o755)
	}
	return err
}

// makeFoldersOf makes the folders below dir in which a file of a tree lies.
func (d Disk) makeFoldersOf(dir, file string) error {
	for at, c := range file {
		if c != '/' {
			continue
		}
		if err := d.makeFolder(filepath.Join(dir, filepath.FromSlash(file[:at]))); err != nil {
			return err
		}
	}
	return nil
}

// together does something with each of many things, some at once, so that all of them
// wait for the disk at the same time.
func together[T any](things []T, do func(T) error) error {
	const most = 16
	errs := make([]error, len(things))
	var all sync.WaitGroup
	free := make(chan struct{}, most)
	for k, thing := range things {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			errs[k] = do(thing)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
