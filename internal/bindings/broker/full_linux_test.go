package broker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"paddock/internal/sandbox/sandboxtest"
)

func TestOnAFullDiskThereAreOldFilesOrNone(t *testing.T) {
	disk := t.TempDir()
	err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=2m,mode=0755")
	sandboxtest.Require(t, "tmpfs", err == nil, "a small file system cannot be mounted")
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	c := serve(t)
	b := open(t, Config{Servers: []Definition{c.definition("party")}, Dir: filepath.Join(disk, "state")})
	dir, filler := filepath.Join(disk, "servers"), filepath.Join(disk, "filler")
	mustProvide(t, b, alice, dir)
	old := contents(t, dir)
	fill(t, filler)
	for i := range 40 {
		c.grow(fmt.Sprint("more-", i))
	}
	var failed error
	eventually(t, "an error", func() bool {
		failed = b.Provide(t.Context(), alice, dir)
		return failed != nil
	})
	if !errors.Is(failed, syscall.ENOSPC) {
		t.Errorf("it fails with %v", failed)
	}
	if got := contents(t, dir); fmt.Sprint(got) != fmt.Sprint(old) {
		t.Errorf("there are %d files, and not the %d old ones", len(got), len(old))
	}
	fresh := filepath.Join(disk, "fresh")
	if err := b.Provide(t.Context(), Session{"alice", "s-2"}, fresh); err == nil {
		t.Error("a new session's files are there")
	}
	if got := contents(t, fresh); len(got) != 0 {
		t.Errorf("a new session has %d files", len(got))
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	mustProvide(t, b, alice, dir)
	if got := contents(t, dir); got["party/more_39.py"] == "" {
		t.Errorf("with room again there are %d files", len(got))
	}
}

// fill takes all the space that is left.
func fill(t *testing.T, path string) {
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
