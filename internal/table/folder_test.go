package table_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"paddock/internal/lock"
	"paddock/internal/table"
	"paddock/internal/table/tabletest"
)

func config(dir string) table.FolderConfig {
	c := table.FolderConfig{Dir: dir}
	c.Write = func(path string, data []byte) error {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path+".new", data, 0o600); err != nil {
			return err
		}
		return os.Rename(path+".new", path)
	}
	c.Document = func(name string) bool { return name != "lock" && filepath.Ext(name) != ".new" }
	return c
}

func TestFolders(t *testing.T) {
	for name, stamps := range map[string]bool{"read each time": false, "by stamps": true} {
		t.Run(name, func(t *testing.T) {
			tabletest.Suite(t, func(t *testing.T) (one, again table.Table) {
				c := config(t.TempDir())
				c.Stamps = stamps
				return table.NewFolder(c), table.NewFolder(c)
			})
		})
	}
}

func TestAFolderHasItsDocumentsAsFiles(t *testing.T) {
	dir := t.TempDir()
	f := table.NewFolder(table.FolderConfig{Dir: dir})
	if err := f.Make("a"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Put(t.Context(), "a/b.json", []byte("{}"), table.None); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "a", "b.json")); err != nil || string(text) != "{}" {
		t.Errorf("the file has %q (%v)", text, err)
	}
	if names, err := f.Names(t.Context(), ""); err != nil || len(names) != 1 || names[0] != "a/b.json" {
		t.Errorf("it has %q (%v)", names, err)
	}
	if err := f.Delete(t.Context(), "a/b.json", table.Any); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "a", "b.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is still there (%v)", err)
	}
}

func TestAFileThatIsAsItWasIsNotReadAgain(t *testing.T) {
	c, reads := config(t.TempDir()), 0
	c.Stamps = true
	c.Read = func(path string) ([]byte, fs.FileInfo, error) {
		reads++
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, err
		}
		info, err := os.Stat(path)
		return data, info, err
	}
	f := table.NewFolder(c)
	if _, err := f.Put(t.Context(), "a", []byte("1"), table.Any); err != nil {
		t.Fatal(err)
	}
	get := func(known table.Revision, want int) table.Revision {
		t.Helper()
		d, err := f.Get(t.Context(), "a", known)
		if err != nil || reads != want {
			t.Errorf("it was read %d times, want %d (%v)", reads, want, err)
		}
		return d.Revision
	}
	young := get(table.None, 1)
	get(young, 2) // its stamp says nothing yet
	path := filepath.Join(c.Dir, "a")
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	r := get(table.None, 3)
	get(r, 3)
	get(r+1, 4)
	if err := os.Chtimes(path, old, old.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	get(r, 5)
}

func TestWhoHasAFolderAloneKeepsOthersOut(t *testing.T) {
	c := config(t.TempDir())
	c.Lock, c.Brief = func(name string) string { return name + ".lock" }, true
	c.Timeout = 20 * time.Millisecond
	c.Locked = func(err error) error { return errors.Join(errors.New("in use"), err) }
	one, other := table.NewFolder(c), table.NewFolder(c)
	err := one.Alone(t.Context(), "a", func(ctx context.Context) error {
		if _, err := one.Put(ctx, "a", []byte("1"), table.None); err != nil {
			t.Errorf("who has it alone cannot write: %v", err)
		}
		if _, err := other.Put(t.Context(), "a", []byte("2"), 7); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("another one gets %v", err)
		}
		if _, err := other.Put(t.Context(), "b", []byte("2"), table.None); err != nil {
			t.Errorf("another document has a lock of its own: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(c.Dir, "*.lock")); err != nil || len(left) != 0 {
		t.Errorf("there is %q (%v)", left, err)
	}
}
