package workspace

import (
	"cmp"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"
)

// RemoveAll deletes a folder with what is in it, however deep that is, also where a
// guest that has the same user took the right to do so away. Nobody may use it any more.
func RemoveAll(dir string) error {
	info, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		err = emptyAt(dir, info)
	}
	if gone := os.Remove(dir); gone == nil || errors.Is(gone, fs.ErrNotExist) {
		return nil
	} else if err == nil {
		err = gone
	}
	return err
}

// emptyAt deletes what is in a folder.
func emptyAt(dir string, info fs.FileInfo) error {
	if info.Mode().Perm()&0o700 != 0o700 {
		_ = os.Chmod(dir, 0o700) // what does not work shows below
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return empty(root)
}

// removeAll deletes what has a name in a folder, whatever it is, with what is in it.
// See [RemoveAll]; others may use what is there, and what they add meanwhile may stay
// and is an error then.
func removeAll(dir *os.Root, name string) error {
	err := dir.Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	info, looked := dir.Lstat(name)
	switch {
	case errors.Is(looked, fs.ErrNotExist):
		return nil
	case looked != nil || !info.IsDir():
		return err
	}
	sub, done, err := openFolder(dir, name, info, 0o700)
	if err != nil {
		return err
	}
	err = empty(sub)
	done()
	if gone := dir.Remove(name); gone == nil || errors.Is(gone, fs.ErrNotExist) {
		return nil
	} else if err == nil {
		err = gone
	}
	return err
}

// removeDepth is how many folders in each other are open while they are emptied. What
// lies deeper is moved up first: so no depth takes more descriptors, or a longer path.
const removeDepth = 32

// mostRounds bounds how often a folder is begun with again that somebody fills
// meanwhile, without anything in it having been moved up.
const mostRounds = 8

// mostMoves bounds how many folders are moved up where somebody makes ever more of them.
const mostMoves = 1 << 20

// empty deletes what is in a folder.
func empty(root *os.Root) error {
	e := emptier{top: root}
	for round := 0; ; round++ {
		e.err, e.moved = nil, 0
		e.folder(root, 0)
		if e.moved > 0 && e.moves < mostMoves {
			round = -1
			continue
		}
		names, err := someNames(root)
		switch {
		case err != nil:
			return err
		case len(names) == 0:
			return nil
		case e.err != nil || round == mostRounds:
			return cmp.Or(e.err, error(syscall.ENOTEMPTY))
		}
	}
}

// emptier empties a folder.
type emptier struct {
	top   *os.Root
	way   []string // from the top to where it is
	moved int      // folders that were moved to the top in this round
	moves int      // in all rounds
	err   error    // the first
}

func (e *emptier) failed(err error) {
	if e.err == nil {
		e.err = err
	}
}

// folder deletes what is in one.
func (e *emptier) folder(dir *os.Root, depth int) {
	for {
		names, err := someNames(dir)
		if err != nil {
			e.failed(err)
			return
		}
		left := 0
		for _, name := range names {
			if !e.entry(dir, name, depth) {
				left++
			}
		}
		// What is left cannot be removed, or is moved up later.
		if len(names) == 0 || left > 0 {
			return
		}
	}
}

// entry deletes what has a name, and tells whether it is gone from there.
func (e *emptier) entry(dir *os.Root, name string, depth int) bool {
	err := dir.Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return true
	}
	info, looked := dir.Lstat(name)
	if looked != nil || !info.IsDir() {
		e.failed(err)
		return false
	}
	if perm := info.Mode().Perm(); perm&0o700 != 0o700 {
		_ = dir.Chmod(name, perm|0o700) // what does not work shows below
	}
	if depth == removeDepth {
		return e.moveUp(name)
	}
	sub, err := enter(dir, name)
	if err != nil {
		e.failed(err)
		return false
	}
	e.way = append(e.way, name)
	e.folder(sub, depth+1)
	e.way = e.way[:len(e.way)-1]
	sub.Close()
	if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		e.failed(err)
		return false
	}
	return true
}

// moveUp moves a folder to the top, to be emptied from there.
func (e *emptier) moveUp(name string) bool {
	err := e.top.Rename(path.Join(path.Join(e.way...), name), tempPrefix+rand.Text())
	if err != nil {
		e.failed(err)
		return false
	}
	e.moved++
	e.moves++
	return true
}

// someNames gives a thousand of the names in a folder at most.
func someNames(root *os.Root) ([]string, error) {
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(1000)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
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
