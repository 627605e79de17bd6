package atomicfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"paddock/internal/atomicfile"
)

// wantFile checks a file's content, and that it is alone in its folder.
func wantFile(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	if string(got) != want {
		t.Errorf("the file has %q, want %q", got, want)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Error(err)
	}
	if len(entries) != 1 {
		t.Errorf("the folder has %v, want the file alone", entries)
	}
}

func TestAFileIsReplacedWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, o := range []atomicfile.Options{{}, {Durable: true}, {Prefix: "file.", Mode: 0o644}} {
		want := strings.Repeat("text", 1+len(o.Prefix))
		if err := atomicfile.WriteFile(path, []byte(want), o); err != nil {
			t.Fatalf("%+v: %v", o, err)
		}
		wantFile(t, path, want)
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		mode := o.Mode
		if mode == 0 {
			mode = 0o600
		}
		if got := info.Mode().Perm(); got != mode && runtime.GOOS != "windows" {
			t.Errorf("%+v: the mode is %v, want %v", o, got, mode)
		}
	}
}

func TestANewFileReplacesNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	var made atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			switch err := atomicfile.WriteNew(path, []byte("text"), atomicfile.Options{}); {
			case err == nil:
				made.Add(1)
			case !errors.Is(err, fs.ErrExist):
				t.Errorf("writing gave %v, want %v", err, fs.ErrExist)
			}
		})
	}
	all.Wait()
	if n := made.Load(); n != 1 {
		t.Errorf("%d writers made the file, want 1", n)
	}
	wantFile(t, path, "text")
}

func TestWhatIsDiscardedLeavesTheOldFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := atomicfile.WriteFile(path, []byte("old"), atomicfile.Options{}); err != nil {
		t.Fatal(err)
	}
	p, err := atomicfile.Create(path, atomicfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.WriteString("new"); err != nil {
		t.Fatal(err)
	}
	p.Discard()
	p.Discard()
	if err := p.Commit(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("committing what was discarded gave %v, want %v", err, os.ErrClosed)
	}
	wantFile(t, path, "old")
}

func TestAFileThatCannotGetItsNameIsRemoved(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "folder")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.WriteFile(path, nil, atomicfile.Options{}); err == nil {
		t.Error("a file took the place of a folder")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 {
		t.Errorf("the folder has %v, want what was there before", entries)
	}
}

// steps is a file system that writes down what is done, and fails at one step.
type steps struct {
	done []string
	fail string
}

func (s *steps) do(step string) error {
	s.done = append(s.done, step)
	if step == s.fail {
		return errors.New("the disk failed")
	}
	return nil
}

func (s *steps) Close() error                 { return s.do("close") }
func (s *steps) Rename(from, to string) error { return s.do("rename") }
func (s *steps) Remove(string) error          { return s.do("remove") }
func (s *steps) SyncDir(string) error         { return s.do("sync folder") }

func TestTheStepsComeInOrder(t *testing.T) {
	for _, c := range []struct {
		fail, want string
		durable    bool
	}{
		{"", "fill close rename sync folder", true},
		{"", "fill close rename", false},
		{"fill", "fill close remove", true},
		{"close", "fill close remove", true},
		{"rename", "fill close rename remove", true},
		{"sync folder", "fill close rename sync folder", true},
	} {
		s := &steps{fail: c.fail}
		err := atomicfile.Finish(s, s, "temp", "path", c.durable, func() error { return s.do("fill") })
		if failed := err != nil; failed != (c.fail != "") {
			t.Errorf("failing at %q gave %v", c.fail, err)
		}
		if got := strings.Join(s.done, " "); got != c.want {
			t.Errorf("failing at %q: the steps were %q, want %q", c.fail, got, c.want)
		}
	}
}

func TestAlternateReplacesAFileThroughItsSpare(t *testing.T) {
	dir := t.TempDir()
	path, spare := filepath.Join(dir, "record"), filepath.Join(dir, "record.spare")
	for _, text := range []string{"the first and longest", "second", "the third", ""} {
		if err := atomicfile.Alternate(path, spare, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("the file holds %q (%v), want %q", got, err, text)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 2 {
		t.Errorf("the folder holds %v (%v), want the file and its spare", entries, err)
	}
}

func TestAlternateThatCannotWriteLeavesTheFile(t *testing.T) {
	dir := t.TempDir()
	path, spare := filepath.Join(dir, "record"), filepath.Join(dir, "record.spare")
	if err := atomicfile.Alternate(path, spare, []byte("old")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.RemoveAll(spare), os.Mkdir(spare, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Alternate(path, spare, []byte("new")); err == nil {
		t.Error("a folder in the spare's place: no error")
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "old" {
		t.Errorf("the file holds %q (%v), want %q", got, err, "old")
	}
}
