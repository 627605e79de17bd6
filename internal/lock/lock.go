// Package lock says which process has what in a folder that several share, by
// locks on files that die with who holds them.
//
// A lock on a file that may be removed ([Take], [Acquire], [AcquireIn], [Try], [Held]) is
// one process's, or with [Shared] several ones'. A [Liveness] is this process's and that
// of all that it started: a process that takes over what a dead one had waits with [Await]
// until nothing of that one is left that might still write.
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

// retryDelay is how often a lock is tried that another process has.
const retryDelay = 2 * time.Millisecond

// Mode says how [Take] locks a file; modes can be combined. The zero Mode locks it for
// the caller alone, and makes the file where it is missing.
type Mode int

const (
	// Shared locks a file together with others that do the same.
	Shared Mode = 1 << iota
	// Existing makes no file: where it is missing Take fails with an fs.ErrNotExist.
	Existing
)

// Lock is a file that is locked by this process. Its methods may be called from several
// goroutines.
type Lock struct {
	file *flock.Flock
	path string
}

// Take locks a file and waits until ctx ends for others to unlock it; the error is ctx's
// then. A lock that is free is taken whatever ctx is. Where the folder is missing the error
// is an fs.ErrNotExist. The holder of a lock may remove its file: a process that waited
// locks the file that others find at path, or makes it again.
func Take(ctx context.Context, path string, mode Mode) (*Lock, error) {
	flag := os.O_CREATE | os.O_RDONLY
	if mode&Existing != 0 {
		flag = os.O_RDONLY
	}
	l := &Lock{path: path, file: flock.New(path, flock.SetFlag(flag), flock.SetPermissions(0o600))}
	try, wait := l.file.TryLock, l.file.TryLockContext
	if mode&Shared != 0 {
		try, wait = l.file.TryRLock, l.file.TryRLockContext
	}
	ok, err := try()
	if !ok && err == nil {
		ok, err = wait(ctx, retryDelay)
	}
	for ok && !l.Current() {
		_ = l.file.Close() // the file was removed: no other process finds this lock
		ok, err = wait(ctx, retryDelay)
	}
	if !ok {
		return nil, err
	}
	return l, nil
}

// Close unlocks the file. It works twice.
func (l *Lock) Close() error { return l.file.Close() }

// Current reports whether the locked file is the one that others find at its path.
func (l *Lock) Current() bool { return isAt(l.file, l.path) }

// Acquire is [AcquireIn] that waits as long as timeout; then the error is ErrHeld.
func Acquire(path string, timeout time.Duration) (unlock func() error, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	unlock, err = AcquireIn(ctx, path)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, ErrHeld
	}
	return unlock, err
}

// AcquireIn locks a file as [Take] does in the zero Mode. unlock works twice.
func AcquireIn(ctx context.Context, path string) (unlock func() error, err error) {
	l, err := Take(ctx, path, 0)
	if err != nil {
		return nil, err
	}
	return l.Close, nil
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
