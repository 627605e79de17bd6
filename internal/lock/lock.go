// Package lock says which process has what in a folder that several share, by
// locks on files that die with who holds them.
//
// A lock on a file that may be removed ([Acquire], [AcquireIn], [Try], [Held]) is one
// process's. A [Life] is this process's and that of all that it started: whoever
// takes over what a dead one had waits with [Await] until nothing of that one is
// left that might still write.
package lock

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/gofrs/flock"
)

// ErrHeld says that somebody else has the lock.
var ErrHeld = errors.New("lock: somebody else has it")

// again is how often a lock is tried that somebody has.
const again = 10 * time.Millisecond

// Acquire locks a file, which it makes where it is missing, and waits for as
// long as timeout for who has it: then it is an ErrHeld. Where the folder is
// missing it is an fs.ErrNotExist. unlock lets go of it, and works twice. Whoever
// holds a lock may remove its file: nobody who waited gets a lock that others
// would not find.
func Acquire(path string, timeout time.Duration) (unlock func() error, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	unlock, err = AcquireIn(ctx, path)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, ErrHeld
	}
	return unlock, err
}

// AcquireIn is [Acquire] that waits until ctx ends; its error is ctx's then. A lock that
// nobody has is not waited for, and had whatever ctx is.
func AcquireIn(ctx context.Context, path string) (unlock func() error, err error) {
	l := flock.New(path, flock.SetPermissions(0o600))
	ok, err := l.TryLock()
	if !ok && err == nil {
		ok, err = l.TryLockContext(ctx, again)
	}
	for ok && !isAt(l, path) {
		_ = l.Close() // the file is no longer there: nobody misses the lock
		l = flock.New(path, flock.SetPermissions(0o600))
		ok, err = l.TryLockContext(ctx, again)
	}
	if ok {
		return l.Close, nil
	}
	return nil, err
}

// Try locks a file that nobody has; a nil unlock says that somebody has it, or
// has just removed it. flag is how the file is opened: with os.O_CREATE it is
// made where it is missing.
func Try(path string, flag int) (unlock func(), err error) {
	l := flock.New(path, flock.SetFlag(flag), flock.SetPermissions(0o600))
	unlock = func() { _ = l.Close() } // it goes away with its file
	ok, err := l.TryLock()
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil || !ok || !isAt(l, path) {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// Held tells whether a live process has a file locked. It makes no file, and who
// calls Acquire meanwhile has to wait for an instant.
func Held(path string) bool {
	l := flock.New(path, flock.SetFlag(os.O_RDONLY))
	defer l.Close()
	ok, err := l.TryRLock()
	return err == nil && !ok
}

// isAt tells whether a held lock is the one that others find at path.
func isAt(l *flock.Flock, path string) bool {
	mine, err := l.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(mine, there)
}
