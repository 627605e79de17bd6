package pkgproxy

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"paddock/internal/lock"
)

// workFolder has a folder for each set of modules that is being made, and beside it a
// file that who makes them has locked: what nobody has locked is of a process that was
// killed.
const workFolder = "work"

// lockSuffix is what the name of a folder's lock ends with.
const lockSuffix = ".lock"

// workName is what the folders are called.
var workName = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// workplace makes an empty folder for one installation, without links in its path. end
// removes it.
func (s *store) workplace() (dir string, end func() error, err error) {
	place, err := filepath.Abs(filepath.Join(s.root.Name(), workFolder))
	if err == nil {
		place, err = filepath.EvalSymlinks(place) // the bundler follows them
	}
	if err != nil {
		return "", nil, fmt.Errorf("making a folder to work in: %w", err)
	}
	var unlock func()
	for unlock == nil { // else one who sweeps was faster, and removes that
		dir = filepath.Join(place, rand.Text())
		if unlock, err = lock.Try(dir+lockSuffix, os.O_CREATE|os.O_RDWR); err != nil {
			return "", nil, fmt.Errorf("locking a folder to work in: %w", err)
		}
	}
	end = func() error {
		err := os.RemoveAll(dir)
		unlock()
		return errors.Join(err, removeLock(dir))
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", nil, errors.Join(err, end())
	}
	return dir, end, nil
}

// removeLock removes the lock of a folder; who sweeps may have done so.
func removeLock(dir string) error {
	if err := os.Remove(dir + lockSuffix); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// sweepWork removes what processes have left that were killed.
func (s *store) sweepWork() {
	entries, _ := fs.ReadDir(s.root.FS(), workFolder) // what cannot be read is left
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), lockSuffix)
		if !workName.MatchString(name) {
			continue
		}
		dir := filepath.Join(s.root.Name(), workFolder, name)
		unlock, err := lock.Try(dir+lockSuffix, os.O_CREATE|os.O_RDWR)
		if err != nil || unlock == nil {
			continue
		}
		err = os.RemoveAll(dir)
		unlock()
		if err == nil { // else the next one tries again
			_ = removeLock(dir)
		}
	}
}
