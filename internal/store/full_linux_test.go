package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"paddock/internal/sandbox/sandboxtest"
)

func TestAFullDiskLosesNothingThatTheNextSpaceDoesNotBringBack(t *testing.T) {
	dir := sandboxtest.SmallDisk(t, 2)
	s := open(filepath.Join(dir, "index.db"), logger(t), hastyTerms)
	defer s.Close()
	complete(t, s)
	s.PutSession(example("local", 0))
	flush(t, s)
	sandboxtest.FillDisk(t, filepath.Join(dir, "filler"))
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
	sandboxtest.FillDisk(t, filepath.Join(dir, "filler"))
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
