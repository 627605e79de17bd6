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

// Whichever operation of a commit fails, its last file is there only if all others are,
// and it is what it was before unless the error says that it may not be.
func TestTheLastFileOfACommitIsThereOnlyWithAllOthers(t *testing.T) {
	for n := 1; ; n++ {
		root := t.TempDir()
		disk, err := blobtest.New(root)
		if err != nil {
			t.Fatal(err)
		}
		last := filepath.Join(root, "line", "1")
		if err := blob.Commit(disk, []blob.Write{{Name: last, Data: []byte("old")}}); err != nil {
			t.Fatal(err)
		}
		others := []string{filepath.Join(root, "a", "one"), filepath.Join(root, "b", "two")}
		writes := []blob.Write{{Name: others[0], Data: []byte("1")}, {Name: others[1], Data: []byte("2")}, {Name: last, Data: []byte("new")}}
		before := disk.Ops()
		disk.SetFault(blobtest.At(before+n, syscall.EIO))
		err = blob.Commit(disk, writes)
		if disk.Ops() < before+n {
			if err != nil {
				t.Errorf("without a fault: %v", err)
			}
			break
		}
		if err == nil {
			t.Errorf("a fault at operation %d: no error", n)
		}
		if err := disk.Cut(rand.New(rand.NewPCG(uint64(n), 1))); err != nil {
			t.Fatal(err)
		}
		got, readErr := os.ReadFile(last)
		if readErr != nil {
			t.Fatal(readErr)
		}
		if string(got) != "old" && !errors.Is(err, blob.ErrNamed) {
			t.Errorf("a fault at operation %d: the last file is %q, want %q after %v", n, got, "old", err)
		}
		for _, name := range others {
			if _, err := os.Stat(name); string(got) == "new" && err != nil {
				t.Errorf("a fault at operation %d: the last file is there, and %v", n, err)
			}
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
