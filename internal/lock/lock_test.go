package lock_test

import (
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
