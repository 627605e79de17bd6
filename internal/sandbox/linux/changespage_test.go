//go:build linux && (amd64 || arm64)

package linux

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/internal/sandbox/linux/gvisorfix"
)

// What a sentry is given of the number of changes it can read, and nothing else.
func TestOnlyTheServerRaisesTheNumberOfChanges(t *testing.T) {
	c := newChanges([]gvisorfix.CachedFolder{{Guest: "/workspace"}})
	if c == nil {
		t.Fatal("there is none")
	}
	fd := int(c.file.Fd())
	if _, err := unix.Mmap(fd, 0, pageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); !errors.Is(err, unix.EPERM) {
		t.Errorf("mapping it to write: %v", err)
	}
	if _, err := unix.Pwrite(fd, []byte{1}, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("writing: %v", err)
	}
	if err := unix.Ftruncate(fd, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("cutting: %v", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("sealing: %v", err)
	}
	theirs, err := unix.Mmap(fd, 0, pageBytes, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(theirs)
	if err := unix.Mprotect(theirs, unix.PROT_READ|unix.PROT_WRITE); !errors.Is(err, unix.EACCES) {
		t.Errorf("making it writable: %v", err)
	}
	before := numberIn(theirs).Load()
	if c.tell(); before == 0 || numberIn(theirs).Load() != before+1 {
		t.Errorf("the number was %d, and is %d", before, numberIn(theirs).Load())
	}
	if c.begin(); numberIn(theirs).Load() != before+1 {
		t.Error("a run that begins right after a change raised the number")
	}
	c.told = c.told.Add(-untoldAfter)
	if c.begin(); numberIn(theirs).Load() != before+2 {
		t.Error("a run that begins later did not raise the number")
	}
	c.close()
	c.tell()
	c.close()
	if numberIn(theirs).Load() != before+2 {
		t.Error("the number was raised after the end")
	}
	var none *changes
	none.tell()
	none.begin()
	none.close()
	if newChanges(nil) != nil {
		t.Error("there is one of no folders")
	}
}
