//go:build linux && (amd64 || arm64)

package linux

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// However deep folders lie in each other, with others beside them, what is in them
// counts, with few descriptors.
func TestTheDepthOfFoldersCostsNoDescriptors(t *testing.T) {
	dir := t.TempDir()
	const depth = 4000
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	for range depth {
		for _, name := range []string{"beside", "d"} {
			if err == nil {
				err = unix.Mkdirat(at, name, 0o755)
			}
		}
		var next int
		if err == nil {
			next, err = unix.Openat(at, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(at)
		at = next
	}
	unix.Close(at)

	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	highest := 0
	for _, e := range open {
		n, _ := strconv.Atoi(e.Name())
		highest = max(highest, n)
	}
	few := was
	few.Cur = min(few.Cur, uint64(highest)+120)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &was) }()
	if got, want := mustSize(t, dir), int64(2*depth*entryBytes); got != want {
		t.Errorf("it counts %d bytes, want %d", got, want)
	}
}

// Files with holes say that they have more bytes than there are numbers for.
func TestWhatFilesSayTheyHaveIsNeverNegative(t *testing.T) {
	dir := t.TempDir()
	for n := range 3 {
		f, err := os.Create(filepath.Join(dir, strconv.Itoa(n)))
		if err != nil {
			t.Fatal(err)
		}
		for size := int64(1<<63 - 1); f.Truncate(size) != nil; size /= 2 { // what the file system allows
			if size == 0 {
				t.Fatal("no size is allowed")
			}
		}
		f.Close()
	}
	if n := mustSize(t, dir); n < 1<<30 || n > mostWeight {
		t.Errorf("it counts %d bytes", n)
	}
	for _, s := range []unix.Stat_t{{Mode: unix.S_IFREG, Size: 1<<63 - 1}, {Mode: unix.S_IFREG, Size: -1}} {
		if n := weight(&s); n < entryBytes || n > mostWeight {
			t.Errorf("a file of %d bytes counts %d", s.Size, n)
		}
	}
}

func TestCountingEndsWithItsCall(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a", "b", "c"), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := sizeOf(ctx, dir, 0); err == nil || n >= 3*entryBytes {
		t.Errorf("it counted %d bytes, %v", n, err)
	}
}
