package blob

import (
	"cmp"
	"crypto/rand"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"sync/atomic"
)

// Write is a file that is to have a content, or to be removed. Names are absolute paths.
type Write struct {
	Name string
	Data []byte
	// Remove says that the file is to be removed, together with what else is committed, or
	// later where that is not possible. What is not there is removed already.
	Remove bool
	// Temp is where the content is before the file has its name, a new file in a folder
	// that is there; empty: beside Name.
	Temp string
	// Deferred allows a [Committer] to make the file later, or never where it is removed
	// before: the name is only read through the Files that committed it, and its content
	// never changes.
	Deferred bool
}

func (w Write) temp() string {
	return cmp.Or(w.Temp, filepath.Join(filepath.Dir(w.Name), TempPrefix+rand.Text()))
}

// ErrNamed is in the tree of an error of [Commit] that came when the last file may have
// had its name: it may be there, now or after a crash. Who made a new file withdraws it.
var ErrNamed = errors.New("blob: the file may have its name")

// Committer is what [Files] implement that commit several files at once, as [Commit] does.
type Committer interface {
	Commit([]Write) error
	// Expect says that a Commit is going to come soon, until it comes or never is called:
	// others may wait for it, to share a sync of the disk.
	Expect() (never func())
}

// Commit makes all of these the contents of their files, durably, and makes the folders
// that are missing. At least the last one is none to be removed, and that file refers to
// the others: it is there only if they are.
// After an error it is what it was before, unless the error is an [ErrNamed]; of the
// others some may be there.
func Commit(files Files, writes []Write) error {
	if c, ok := files.(Committer); ok {
		return c.Commit(writes)
	}
	all := slices.DeleteFunc(slices.Clone(writes), func(w Write) bool { return w.Remove })
	var complete atomic.Bool
	err := commitLast(files, all[len(all)-1], func() error {
		err := each(all[:len(all)-1], func(w Write) error {
			if err := MakeFolder(files, filepath.Dir(w.Name)); err != nil {
				return err
			}
			return writeFile(files, w, nil)
		})
		complete.Store(err == nil)
		return err
	})
	if err != nil && complete.Load() {
		return errors.Join(err, ErrNamed)
	}
	if err == nil {
		RemoveCommitted(files, writes)
	}
	return err
}

// RemoveCommitted removes the files that a commit was to remove, after it was made. What
// cannot be removed stays.
func RemoveCommitted(files Files, writes []Write) {
	for _, w := range writes {
		if w.Remove {
			_ = files.Remove(w.Name) // as if it had not been asked for
		}
	}
}

// commitLast writes the last file of a commit; others writes all others.
func commitLast(files Files, w Write, others func() error) error {
	sync, err := PlaceFolder(files, filepath.Dir(w.Name))
	if err != nil {
		return err
	}
	return writeFile(files, w, func() error {
		return each([]func() error{sync, others}, func(do func() error) error { return do() })
	})
}

// Withdraw removes a new file that may have its name, so that no power cut brings it back.
func Withdraw(files Files, name string) error {
	err := files.Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = files.SyncDir(filepath.Dir(name))
	}
	if errors.Is(err, fs.ErrNotExist) { // there is not even its folder
		return nil
	}
	return err
}
