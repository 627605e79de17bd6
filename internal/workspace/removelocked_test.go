package workspace_test

import (
	"os"
	"path/filepath"
	"testing"

	"paddock/internal/workspace"
)

func TestAFolderGoesWithTheLockThatIsHeldInIt(t *testing.T) {
	for name, comes := range map[string]bool{"nobody comes": false, "somebody locks it anew": true} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "d")
			if err := os.MkdirAll(filepath.Join(dir, "files", "deep"), 0o700); err != nil {
				t.Fatal(err)
			}
			lock := filepath.Join(dir, "lock")
			f, err := os.Create(lock)
			if err != nil {
				t.Fatal(err)
			}
			unlocked := 0
			err = workspace.RemoveLocked(dir, "lock", func() {
				unlocked++
				f.Close()
				if _, err := os.Lstat(filepath.Join(dir, "files")); !os.IsNotExist(err) {
					t.Errorf("it is let go of before what it guards is gone: %v", err)
				}
				if comes {
					_ = os.WriteFile(filepath.Join(dir, "another"), nil, 0o600)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if unlocked != 1 {
				t.Errorf("unlocked: got %v, want 1", unlocked)
			}
			if _, err := os.Lstat(dir); os.IsNotExist(err) == comes {
				t.Errorf("the folder: %v", err)
			}
		})
	}
	called := false
	if err := workspace.RemoveLocked(filepath.Join(t.TempDir(), "none"), "lock", func() { called = true }); err == nil {
		t.Error("a folder that there is not: got no error, want one")
	} else if !called {
		t.Error("a folder that there is not: called: got false, want true")
	}
}
