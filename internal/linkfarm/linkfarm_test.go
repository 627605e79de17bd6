package linkfarm

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// wantFiles compares the files beneath a folder, but for stamps, with their contents.
func wantFiles(t *testing.T, what, dir string, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	err := filepath.WalkDir(dir, func(at string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == Stamp {
			return err
		}
		data, err := os.ReadFile(at)
		name, _ := filepath.Rel(dir, at)
		got[filepath.ToSlash(name)] = string(data)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for name, text := range want {
		if other, there := got[name]; !there {
			t.Errorf("%s: %s is missing", what, name)
		} else if other != text {
			t.Errorf("%s: %s is %q, want %q", what, name, other, text)
		}
	}
	for name := range got {
		if _, wanted := want[name]; !wanted {
			t.Errorf("%s: %s is there, want no such file", what, name)
		}
	}
}

// wantNames compares the names in a folder.
func wantNames(t *testing.T, what, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if got, want := strings.Join(names, " "), strings.Join(want, " "); got != want {
		t.Errorf("%s: the folder has %q, want %q", what, got, want)
	}
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		at := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

func wantMode(t *testing.T, name string, want fs.FileMode) {
	t.Helper()
	if runtime.GOOS == "windows" {
		return
	}
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != want {
		t.Errorf("%s has the mode %v, want %v", filepath.Base(name), got, want)
	}
}

func sameFile(t *testing.T, a, b string) bool {
	t.Helper()
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	return os.SameFile(infoA, infoB)
}
