package image

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"paddock/internal/blob"
	"paddock/internal/fault"
)

const (
	// lockTimeout is how long a lock is tried that others hold for milliseconds.
	lockTimeout = 5 * time.Second
	// pollDelay is how long to wait between two tries of a lock.
	pollDelay = 10 * time.Millisecond
)

// lock takes one of the store's locks for the caller alone.
func (s *Store) lock(ctx context.Context, name string, timeout time.Duration) (*flock.Flock, error) {
	return s.take(ctx, name, timeout, (*flock.Flock).TryLockContext)
}

// take takes a lock whose file is made where there is none. When timeout has
// passed it is a fault.Conflict; zero: as long as ctx allows.
func (s *Store) take(ctx context.Context, name string, timeout time.Duration, how func(*flock.Flock, context.Context, time.Duration) (bool, error)) (*flock.Flock, error) {
	path := s.path(name)
	wait := ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	lock := flock.New(path, flock.SetPermissions(0o600))
	_, err := how(lock, wait, pollDelay)
	if errors.Is(err, fs.ErrNotExist) { // the first of all
		if err = blob.MakeFolder(blob.OS, filepath.Dir(path)); err == nil {
			_, err = how(lock, wait, pollDelay)
		}
	}
	switch {
	case err == nil:
		return lock, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fault.New(fault.Conflict, "another paddock is changing the images").WithHint("try again when it is done")
	}
	return nil, blob.Explain(err, "locking the images")
}

// adding holds the store while something is put into it: until it is closed
// nothing is removed.
func (s *Store) adding(ctx context.Context) (*flock.Flock, error) {
	alone := flock.New(s.path(contentLock), flock.SetPermissions(0o600))
	if ok, err := alone.TryLock(); ok && err == nil { // nobody else adds: what lies there is of those who were killed
		s.sweep()
	}
	_ = alone.Close()
	lock, err := s.take(ctx, contentLock, lockTimeout, (*flock.Flock).TryRLockContext)
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{layersFolder, rootsFolder, locksFolder, tempFolder} {
		if err := blob.MakeFolder(blob.OS, s.path(dir)); err != nil {
			_ = lock.Close()
			return nil, err
		}
	}
	return lock, nil
}

// sweep removes what is not whole. The caller has the content lock for itself.
func (s *Store) sweep() {
	left, _ := os.ReadDir(s.path(tempFolder)) // what cannot be removed is tried again the next time
	for _, e := range left {
		_ = os.RemoveAll(s.path(tempFolder, e.Name()))
	}
	locks, _ := os.ReadDir(s.path(locksFolder))
	for _, e := range locks {
		_ = os.Remove(s.path(locksFolder, e.Name()))
	}
}

// use holds an image, so that nobody removes it; fs.ErrNotExist: it is not there.
func (s *Store) use(ctx context.Context, id string) (*flock.Flock, error) {
	path := filepath.Join(s.root(id), useFile)
	lock := flock.New(path, flock.SetFlag(os.O_RDONLY))
	wait, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	if _, err := lock.TryRLockContext(wait, pollDelay); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	mine, err := lock.Stat()
	if err == nil {
		var there fs.FileInfo
		if there, err = os.Stat(path); err == nil && os.SameFile(mine, there) {
			return lock, nil
		}
	}
	_ = lock.Close()
	if err == nil {
		err = fs.ErrNotExist // it was removed before we had the lock, and came back
	}
	return nil, err
}

// unused takes an image for the caller alone; nil: somebody uses it.
func (s *Store) unused(id string) (*flock.Flock, error) {
	lock := flock.New(filepath.Join(s.root(id), useFile), flock.SetFlag(os.O_RDONLY))
	ok, err := lock.TryLock()
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, nil
	}
	return lock, nil
}
