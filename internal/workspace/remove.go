package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// RemoveAll deletes a folder with what is in it, also where a guest that has the
// same user took the right to do so away. Nobody may use it any more.
func RemoveAll(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if info, err := os.Lstat(dir); err == nil && info.IsDir() {
		_ = os.Chmod(dir, 0o700) // what does not work shows below
	}
	if root, err := os.OpenRoot(dir); err == nil {
		openUp(root, 0)
		root.Close()
	}
	return os.RemoveAll(dir)
}

// RemoveLocked deletes a folder whose file called lock the caller has locked, and lets
// go of that with unlock, also after an error. Who locks a new file of this name in it
// meanwhile keeps the folder.
func RemoveLocked(dir, lock string, unlock func()) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() != lock {
			err = errors.Join(err, RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	file := filepath.Join(dir, lock)
	inUse := os.Remove(file) // not where an open file cannot be removed
	unlock()
	if inUse != nil {
		err = errors.Join(err, os.Remove(file))
	}
	if err == nil {
		_ = os.Remove(dir) // fails when somebody uses it again
	}
	return err
}

// openUp gives the owner every right to the folders in one.
func openUp(dir *os.Root, depth int) {
	names, _ := readNames(dir)
	for _, name := range names {
		info, err := dir.Lstat(name)
		if err != nil || !info.IsDir() || depth == maxDepth {
			continue
		}
		if info.Mode().Perm()&0o700 != 0o700 {
			_ = dir.Chmod(name, 0o700)
		}
		if sub, err := enter(dir, name); err == nil {
			openUp(sub, depth+1)
			sub.Close()
		}
	}
}
