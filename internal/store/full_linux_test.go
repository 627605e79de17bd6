package store

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"paddock/internal/sandbox/sandboxtest"
)

func TestAFullDiskLosesNothingThatTheNextSpaceDoesNotBringBack(t *testing.T) {
	dir := t.TempDir()
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m,mode=0700")
	sandboxtest.Require(t, "tmpfs", err == nil, "a small file system cannot be mounted")
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s := open(filepath.Join(dir, "index.db"), logger(t), hastyTerms)
	defer s.Close()
	complete(t, s)
	s.PutSession(example("local", 0))
	flush(t, s)
	fill(t, filepath.Join(dir, "filler"))
	for i := range 1000 {
		s.PutSession(example("local", i))
	}
	settle(t, s, ErrUnavailable)
	if _, err := s.Sessions("local"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("reading what is not written gives %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
		t.Fatal(err)
	}
	settle(t, s, nil)
	if all := sessions(t, s, "local"); len(all) != 1000 {
		t.Errorf("of 1000 sessions there are %d", len(all))
	}
	fill(t, filepath.Join(dir, "filler"))
	other := open(filepath.Join(dir, "another.db"), logger(t), hastyTerms) // there is no room to make one
	other.PutSession(example("local", 1))
	if err := other.await(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("an index is made on a full disk: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
		t.Fatal(err)
	}
	settle(t, other, nil)
	other.Close()
	if _, err := os.Lstat(s.path + ".damaged"); err == nil {
		t.Error("a file was set aside")
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
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}
