//go:build unix

package workspace

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWhatAGuestLockedIsRemoved(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Log("root is kept out of nothing: this shows less")
	}
	dir := filepath.Join(t.TempDir(), "w")
	deep := filepath.Join(dir, "a", "b", "c")
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	outside := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(deep, "l")); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{deep, filepath.Dir(deep), filepath.Join(dir, "a"), dir} {
		if err := os.Chmod(p, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := RemoveAll(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(dir); err == nil {
		t.Error("it is still there")
	}
	if info, err := os.Stat(outside); err != nil {
		t.Errorf("what a link leads to: got error %v, want none", err)
	} else if info.Mode().Perm() == 0 {
		t.Error("what a link leads to: info.Mode().Perm(): got 0, want more")
	}
	if err := RemoveAll(dir); err != nil {
		t.Error(err)
	}
}
