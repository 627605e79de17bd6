package auth

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"paddock/internal/atomicfile"
	"paddock/internal/fault"
	"paddock/internal/lock"
	"paddock/internal/privatefile"
)

// lockFile is held by whoever changes a file of this package. Who reads needs
// no lock: files are only ever replaced, whole.
const lockFile = "auth.lock"

// lockTimeout is how long the lock is tried for what somebody asked for;
// others hold it for milliseconds.
const lockTimeout = 5 * time.Second

// locked calls f while no other process and nobody else here changes a file of
// dir, which it makes if it is not there. It tries for as long as timeout.
func locked(dir string, timeout time.Duration, f func() error) error {
	if err := prepare(dir); err != nil {
		return err
	}
	unlock, err := lock.Acquire(filepath.Join(dir, lockFile), timeout)
	if err != nil {
		return notLocked(err)
	}
	defer unlock()
	return f()
}

// prepare makes the folder in which files are about to be changed.
func prepare(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return unusable(err)
	}
	return privatefile.CheckFolder(dir)
}

// notLocked is what the error of a lock becomes.
func notLocked(err error) error { return unusable(fmt.Errorf("locking the tokens: %w", err)) }

// unusable is what the state folder's own faults become. Clients read its
// message, so it holds no path.
func unusable(err error) error {
	return fault.New(fault.Unavailable, "the tokens in the state folder cannot be read or changed").
		WithHint("the server's log says why").WithCause(err)
}

// readPrivate reads a file of this package; fs.ErrNotExist: there is none.
func readPrivate(path string) ([]byte, fs.FileInfo, error) {
	data, info, err := privatefile.Read(path)
	var said *fault.Error
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.As(err, &said) {
		err = unusable(err)
	}
	return data, info, err
}

// damaged is the fault of a file that is not what this package wrote. Nobody is
// let in by what can still be read of it.
func damaged(name string, err error) *fault.Error {
	return fault.New(fault.Unavailable, "the file %s in the state folder is damaged", name).
		WithHint("put a copy back, or remove it and make new tokens: those that it held are refused then").WithCause(err)
}

// replace writes a file whole, so that after a crash there is the old or the
// new one. The caller has the lock.
func replace(path string, data []byte) error {
	removeLeftovers(path)
	o := atomicfile.Options{Durable: true, Prefix: filepath.Base(path) + "."}
	if err := atomicfile.WriteFile(path, data, o); err != nil {
		return unusable(err)
	}
	return nil
}

// removeLeftovers removes what a process left that ended while it wrote.
func removeLeftovers(path string) {
	left, _ := filepath.Glob(path + ".*")
	for _, temp := range left {
		_ = os.Remove(temp)
	}
}
