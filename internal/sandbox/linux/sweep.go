//go:build linux && (amd64 || arm64)

package linux

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"
)

// home is the folder of one server in Config.Dir, locked for as long as the server
// lives. What is in one that nobody has locked is a dead server's.
type home struct {
	dir, name string
	lock      *os.File
}

// homeName is what they are called.
var homeName = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// openHome makes one, and removes those of dead servers, whose names it gives.
func openHome(dir string) (h *home, dead []string, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("making the folder for boxes: %w", err)
	}
	// Nobody removes another's home between its making and its locking.
	all, err := os.Open(dir)
	if err != nil {
		return nil, nil, err
	}
	defer all.Close()
	if err := unix.Flock(int(all.Fd()), unix.LOCK_EX); err != nil {
		return nil, nil, fmt.Errorf("locking the folder for boxes: %w", err)
	}
	dead = sweepHomes(dir)
	h = &home{name: rand.Text()}
	h.dir = filepath.Join(dir, h.name)
	if err := os.Mkdir(h.dir, 0o700); err != nil {
		return nil, nil, err
	}
	if h.lock, err = lockHome(h.dir); err != nil {
		return nil, nil, fmt.Errorf("locking a folder: %w", err)
	}
	return h, dead, nil
}

// sweepHomes removes those of dead servers.
func sweepHomes(dir string) (dead []string) {
	entries, _ := os.ReadDir(dir) // what cannot be read is left
	for _, e := range entries {
		if !homeName.MatchString(e.Name()) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if lock, err := lockHome(path); err == nil {
			_ = os.RemoveAll(path)
			lock.Close()
			dead = append(dead, e.Name())
		}
	}
	return dead
}

// lockHome locks a home, if nobody has.
func lockHome(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// close removes the home and ends the lock.
func (h *home) close() error {
	err := os.RemoveAll(h.dir)
	h.lock.Close()
	return err
}
