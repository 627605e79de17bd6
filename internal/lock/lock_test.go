package lock_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"paddock/internal/lock"
)

const timeout = 20 * time.Millisecond

func TestALockIsOnesUntilItIsLetGoOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if lock.Held(path) {
		t.Error("one that is not there is held")
	}
	unlock, err := lock.Acquire(path, timeout)
	if err != nil {
		t.Fatal(err)
	}
	if !lock.Held(path) {
		t.Error("nobody holds it")
	}
	if _, err := lock.Acquire(path, timeout); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("a second one has it: %v", err)
	}
	if free, err := lock.Try(path, os.O_RDWR); free != nil || err != nil {
		t.Errorf("a third one has it: %v", err)
	}
	if err := errors.Join(unlock(), unlock()); err != nil {
		t.Error(err)
	}
	if lock.Held(path) {
		t.Error("it is still held")
	}
	again, err := lock.Try(path, os.O_RDWR)
	if err != nil || again == nil {
		t.Fatalf("it cannot be taken again: %v", err)
	}
	again()
}

func TestALockInAFolderThatIsGoneIsNobodys(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "gone", "lock")
	if _, err := lock.Acquire(path, timeout); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is %v", err)
	}
	if unlock, err := lock.Try(path, os.O_RDWR|os.O_CREATE); unlock != nil || err != nil {
		t.Errorf("it was taken, or %v", err)
	}
	if unlock, err := lock.Try(filepath.Join(dir, "lock"), os.O_RDWR); unlock != nil || err != nil {
		t.Errorf("one that is not to be made was taken, or %v", err)
	}
	if n, err := os.ReadDir(dir); err != nil || len(n) != 0 {
		t.Errorf("there is %v, %v", n, err)
	}
}

// Whoever holds the lock removes its file, as who removes a session does: of
// those that had the old file open none may believe that it has the lock.
func TestWhoRemovesALockTakesNobodyIn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var inside atomic.Int32
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50 {
				unlock, err := lock.Acquire(path, time.Minute)
				if err != nil {
					t.Error(err)
					return
				}
				if inside.Add(1) != 1 || !lock.Held(path) {
					t.Error("the lock is two's, or one's that others do not find")
				}
				inside.Add(-1)
				_ = os.Remove(path) // not where an open file cannot be removed
				if err := unlock(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

func TestASharedLockKeepsOutOnlyThoseThatWantItAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := lock.Take(t.Context(), path, lock.Shared)
	if err != nil {
		t.Fatal(err)
	}
	second, err := lock.Take(t.Context(), path, lock.Shared|lock.Existing)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Acquire(path, timeout); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("locking it alone gave %v, want %v", err, lock.ErrHeld)
	}
	if err := errors.Join(first.Close(), second.Close(), second.Close()); err != nil {
		t.Errorf("unlocking: %v", err)
	}
	alone, err := lock.Take(t.Context(), path, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer alone.Close()
	short, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if _, err := lock.Take(short, path, lock.Shared); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("sharing it gave %v, want %v", err, context.DeadlineExceeded)
	}
}

func TestALockOnAFileThatIsGoneIsNotCurrent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if _, err := lock.Take(t.Context(), path, lock.Existing); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("locking what is not there gave %v, want %v", err, fs.ErrNotExist)
	}
	l, err := lock.Take(t.Context(), path, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if !l.Current() {
		t.Error("a lock that was just taken is not current")
	}
	if err := os.Remove(path); err != nil {
		t.Skip("this system removes no open file: ", err)
	}
	if l.Current() {
		t.Error("the lock is current, and its file is gone")
	}
}
