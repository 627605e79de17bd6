package linkfarm

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"paddock/internal/blob"
	"paddock/internal/blob/blobtest"
)

var example = []File{
	{Path: "a.txt", Data: []byte("a")},
	{Path: "below/run.sh", Executable: true, Data: []byte("#!")},
	{Path: "below/deep/b.txt", Data: []byte("b")},
}

var exampleTexts = map[string]string{"a.txt": "a", "below/run.sh": "#!", "below/deep/b.txt": "b"}

func TestFilesHaveTheModesOfTheirDisk(t *testing.T) {
	for name, c := range map[string]struct {
		disk                   Disk
		file, executable, deep os.FileMode
	}{
		"for this user":      {Disk{Files: blob.OS}, 0o600, 0o700, 0o700},
		"for everybody":      {Disk{Files: blob.OS, Public: true}, 0o644, 0o755, 0o755},
		"durable for all":    {Disk{Files: blob.OS, Public: true, Durable: true}, 0o644, 0o755, 0o755},
		"durable for a user": {Disk{Files: blob.OS, Durable: true}, 0o600, 0o700, 0o700},
	} {
		t.Run(name, func(t *testing.T) {
			final := filepath.Join(t.TempDir(), "missing", "tree")
			for range 2 { // the second time in the place of the first
				if err := c.disk.Make(final, func(fresh string) error { return c.disk.Fill(fresh, example) }, nil); err != nil {
					t.Fatal(err)
				}
			}
			wantFiles(t, "the tree", final, exampleTexts)
			wantNames(t, "beside the tree", filepath.Dir(final), "tree")
			wantMode(t, filepath.Join(final, "a.txt"), c.file)
			wantMode(t, filepath.Join(final, "below", "run.sh"), c.executable)
			wantMode(t, filepath.Join(final, "below", "deep"), c.deep)
		})
	}
}

// What a power cut leaves at any operation is the old tree, none, or the new one.
func TestADurableTreeIsWholeAfterAPowerCut(t *testing.T) {
	old := []File{{Path: "old.txt", Data: []byte("old")}}
	build := func(files blob.Files, root string, of []File) error {
		d := Disk{Files: files, Durable: true}
		return d.Make(filepath.Join(root, "trees", "tree"), func(fresh string) error { return d.Fill(fresh, of) }, nil)
	}
	done := false
	for n := 1; !done; n++ {
		root := t.TempDir()
		disk, err := blobtest.New(root)
		if err != nil {
			t.Fatal(err)
		}
		if err := build(disk, root, old); err != nil {
			t.Fatal(err)
		}
		disk.SetFault(blobtest.From(disk.Ops()+n, blobtest.ErrCut))
		err = build(disk, root, example)
		done = err == nil
		if err := disk.Cut(rand.New(rand.NewPCG(uint64(n), 1))); err != nil {
			t.Fatal(err)
		}
		final := filepath.Join(root, "trees", "tree")
		switch {
		case done, has(final, "a.txt"):
			wantFiles(t, "the new tree", final, exampleTexts)
		case has(final, "old.txt"):
			wantFiles(t, "the old tree", final, map[string]string{"old.txt": "old"})
		default: // the old one was being removed
			if err := build(disk, root, example); err != nil {
				t.Errorf("cut at operation %d, it cannot be made again: %v", n, err)
			}
			wantFiles(t, "the tree, made again", final, exampleTexts)
		}
	}
}

func has(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

func TestAFailedTreeLeavesNothing(t *testing.T) {
	d, dir := Disk{Files: blob.OS}, t.TempDir()
	failed := errors.New("no more room")
	err := d.Make(filepath.Join(dir, "tree"), func(fresh string) error {
		return errors.Join(d.Fill(fresh, example), failed)
	}, nil)
	if !errors.Is(err, failed) {
		t.Errorf("it gives %v, want %v", err, failed)
	}
	wantNames(t, "where the tree would be", dir)
}

func TestPathsThatLeadOutOfATreeAreRefused(t *testing.T) {
	for _, path := range []string{"../a", "a/../../b", "/a", "a/./b", "", ".", "a//b"} {
		dir := filepath.Join(t.TempDir(), "tree")
		if err := (Disk{Files: blob.OS}).Fill(dir, []File{{Path: "x"}, {Path: path}}); err == nil {
			t.Errorf("%q is written, want an error", path)
		}
		if has(dir, "") {
			t.Errorf("%q: the folder is there, want none", path)
		}
	}
}

func TestPutReplacesAFileAsAWhole(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "index.json")
	d := Disk{Files: blob.OS, Public: true}
	write(t, dir, map[string]string{blob.TempPrefix + "index.json": "left by an interrupted process"})
	for _, text := range []string{"{}", `{"more":1}`} {
		if err := d.Put(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
		wantFiles(t, "the folder", dir, map[string]string{"index.json": text})
	}
	wantMode(t, name, 0o644)
	for n := range 6 {
		disk, err := blobtest.New(dir)
		if err != nil {
			t.Fatal(err)
		}
		disk.SetFault(blobtest.At(n+1, blobtest.Torn{Err: os.ErrPermission}))
		text := strings.Repeat("x", n+20)
		failed := (Disk{Files: disk, Durable: true}).Put(name, []byte(text))
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if failed == nil && string(got) != text {
			t.Errorf("with a fault at operation %d the file is %q, want %q", n+1, got, text)
		}
		if failed != nil && string(got) == text[:len(text)/2] {
			t.Errorf("with a fault at operation %d the file is half there", n+1)
		}
	}
}
