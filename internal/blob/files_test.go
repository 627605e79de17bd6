package blob_test

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"paddock/internal/blob"
	"paddock/internal/blob/blobtest"
)

func TestAFileHasItsNameOnlyAfterWhatComesBefore(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	if err := blob.WriteFile(blob.OS, name, []byte("old")); err != nil {
		t.Fatal(err)
	}
	holds := func(want string) {
		t.Helper()
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("it holds %q, not %q (%v)", got, want, err)
		}
	}
	refusal := errors.New("not yet")
	done := make([]bool, 3)
	before := func(n int, err error) func() error {
		return func() error {
			holds("old")
			done[n] = true
			return err
		}
	}
	if err := blob.WriteFile(blob.OS, name, []byte("new"), before(0, nil), before(1, refusal), before(2, nil)); !errors.Is(err, refusal) {
		t.Errorf("the error is %v", err)
	}
	holds("old")
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("the folder holds %v, %v", names, err)
	}
	if err := blob.WriteFile(blob.OS, name, []byte("new"), before(0, nil), before(1, nil), before(2, nil)); err != nil {
		t.Error(err)
	}
	holds("new")
	for k, called := range done {
		if !called {
			t.Errorf("the %d. function was not called before the write: %v", k+1, done)
		}
	}
}

// A folder that was placed and synced outlasts a power cut, with those above it;
// where a sync fails it is told.
func TestAPlacedFolderOutlastsAPowerCutOnceItIsSynced(t *testing.T) {
	for seed := range uint64(20) {
		root := t.TempDir()
		disk, err := blobtest.New(root)
		if err != nil {
			t.Fatal(err)
		}
		place := func(name string) func() error {
			sync, err := blob.PlaceFolder(disk, filepath.Join(root, name))
			if err != nil {
				t.Fatal(err)
			}
			return sync
		}
		if err := place("a/b/c")(); err != nil {
			t.Fatal(err)
		}
		half := place("x") // somebody places it, and dies
		if err := place("x/y")(); err != nil {
			t.Fatal(err)
		}
		lost := place("z/z")
		disk.SetFault(func(op blobtest.Op) error {
			if op.Kind == "syncdir" && filepath.Base(op.Name) == "z" {
				return syscall.EIO
			}
			return nil
		})
		if err := lost(); !errors.Is(err, syscall.EIO) {
			t.Errorf("a sync that fails gives %v", err)
		}
		_ = half
		if err := disk.Cut(rand.New(rand.NewPCG(seed, 2))); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a/b/c", "x/y"} {
			if _, err := os.Stat(filepath.Join(root, name)); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		}
	}
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := blob.PlaceFolder(blob.OS, file); err == nil {
		t.Error("a file is taken for a folder")
	}
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		t.Error("the file is gone")
	}
}
