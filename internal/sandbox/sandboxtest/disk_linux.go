package sandboxtest

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"
)

// SmallDisk gives a folder with so many MiB of room and no more, as long as the test
// lasts. The test is skipped where none can be mounted.
func SmallDisk(t *testing.T, megabytes int) string {
	t.Helper()
	dir := t.TempDir()
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=755", megabytes))
	Require(t, "mount", err == nil, fmt.Sprintf("a small disk cannot be mounted: %v", err))
	t.Cleanup(func() {
		for late := time.Now().Add(timeout); ; time.Sleep(50 * time.Millisecond) {
			err := syscall.Unmount(dir, 0) // a worker may be ending
			if err == nil || errors.Is(err, syscall.EINVAL) {
				return
			}
			if time.Now().After(late) {
				t.Errorf("the small disk cannot be unmounted: %v", err)
				return
			}
		}
	})
	return dir
}

// FillDisk makes a file that takes all the room that is left.
func FillDisk(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{64 << 10, 4 << 10} {
		for err == nil {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		err = nil
	}
}
