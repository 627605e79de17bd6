package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// errSwapped says that there is now something else under a name than when it
// was looked at.
var errSwapped = errors.New("something else is there now")

// swapped tells whether opening failed because there is something else now.
func swapped(err error) bool {
	return errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENXIO) || escapes(err)
}

// enter opens a folder in another. [os.Root.OpenRoot] itself would wait for the
// other end of a FIFO that was put in the folder's place: what is above the last
// part of its path is opened as a folder and as nothing else.
func enter(dir *os.Root, name string) (*os.Root, error) { return dir.OpenRoot(name + "/.") }

// openFolder opens a folder that was looked at. What of the permissions in need
// its owner took away is given to it until done is called, so that we are not
// kept out either.
func openFolder(dir *os.Root, name string, info fs.FileInfo, need fs.FileMode) (sub *os.Root, done func(), err error) {
	perm := info.Mode().Perm()
	lent := perm&need != need && dir.Chmod(name, perm|need) == nil
	sub, err = enter(dir, name)
	if err == nil {
		var now fs.FileInfo
		if now, err = sub.Stat("."); err == nil && !os.SameFile(info, now) {
			err = errSwapped
		}
	}
	if err == nil {
		return sub, func() {
			if lent {
				_ = sub.Chmod(".", perm) // it may be gone
			}
			sub.Close()
		}, nil
	}
	if sub != nil {
		sub.Close()
	}
	if lent {
		_ = dir.Chmod(name, perm) // it may be gone
	}
	if swapped(err) {
		err = fmt.Errorf("%w: %w", errSwapped, err)
	}
	return nil, nil, err
}

// openFile opens a regular file that was looked at for reading, and never
// waits. Our own files are opened even when they may not be read: that changes
// their stamp.
func openFile(dir *os.Root, name string, info fs.FileInfo) (*os.File, error) {
	f, err := dir.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if perm := info.Mode().Perm(); errors.Is(err, fs.ErrPermission) && perm&0o400 == 0 && dir.Chmod(name, perm|0o400) == nil {
		f, err = dir.OpenFile(name, os.O_RDONLY|nonblock, 0)
		_ = dir.Chmod(name, perm) // it may be gone
	}
	if err != nil {
		if swapped(err) {
			err = fmt.Errorf("%w: %w", errSwapped, err)
		}
		return nil, err
	}
	now, err := f.Stat()
	if err == nil && (!now.Mode().IsRegular() || !os.SameFile(info, now)) {
		err = errSwapped
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// isEmpty tells whether nothing is in a folder, as far as it may be read.
func isEmpty(dir *os.Root, info fs.FileInfo) bool {
	sub, done, err := openFolder(dir, info.Name(), info, 0o500)
	if err != nil {
		return false
	}
	defer done()
	names, err := someNames(sub)
	return err == nil && len(names) == 0
}

// weighAll is what something counts towards the disk limit, with all that is in it.
func weighAll(dir *os.Root, info fs.FileInfo) int64 {
	sum := weight(info)
	if !info.IsDir() {
		return sum
	}
	sub, done, err := openFolder(dir, info.Name(), info, 0o500)
	if err != nil {
		return sum
	}
	defer done()
	below, _ := weighIn(sub) // what cannot be read counts nothing
	return add(sum, below)
}
