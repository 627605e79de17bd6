package image

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/lock"
)

const (
	// lockTimeout is how long a lock is tried that others hold for milliseconds.
	lockTimeout = 5 * time.Second
	// briefly is how long Remove waits for processes that add images.
	briefly = 100 * time.Millisecond
)

// take takes one of the store's locks; its file is made where there is none. When timeout
// has passed it is a fault.Conflict; zero: as long as ctx allows.
func (s *Store) take(ctx context.Context, name string, timeout time.Duration, mode lock.Mode) (*lock.Lock, error) {
	path := s.path(name)
	wait := ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	held, err := lock.Take(wait, path, mode)
	if errors.Is(err, fs.ErrNotExist) { // the first of all
		if err = blob.MakeFolder(blob.OS, filepath.Dir(path)); err == nil {
			held, err = lock.Take(wait, path, mode)
		}
	}
	switch {
	case err == nil:
		return held, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fault.New(fault.Conflict, "another paddock is changing the images").WithHint("try again when it is done")
	}
	return nil, blob.Explain(err, "locking the images")
}

// adding holds the store while something is put into it: until it is closed
// nothing is removed.
func (s *Store) adding(ctx context.Context) (*lock.Lock, error) {
	// Where the try fails, the next lock says why.
	if unlock, _ := lock.Try(s.path(contentLock), os.O_CREATE|os.O_RDONLY); unlock != nil {
		s.sweep() // no other process adds: what lies there is of those that were killed
		unlock()
	}
	held, err := s.take(ctx, contentLock, lockTimeout, lock.Shared)
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{layersFolder, rootsFolder, locksFolder, tempFolder} {
		if err := blob.MakeFolder(blob.OS, s.path(dir)); err != nil {
			_ = held.Close()
			return nil, err
		}
	}
	return held, nil
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
func (s *Store) use(ctx context.Context, id string) (*lock.Lock, error) {
	wait, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	held, err := lock.Take(wait, filepath.Join(s.root(id), useFile), lock.Shared|lock.Existing)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return held, err
}

// unused takes an image for the caller alone; a nil unlock says that it is in use. An
// fs.ErrNotExist says that the image is not there.
func (s *Store) unused(id string) (unlock func(), err error) {
	path := filepath.Join(s.root(id), useFile)
	if unlock, err = lock.Try(path, os.O_RDONLY); unlock == nil && err == nil {
		_, err = os.Stat(path)
	}
	return unlock, err
}
