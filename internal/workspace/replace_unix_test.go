//go:build unix

package workspace_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/workspace"
)

func TestAnEmptyFolderIsReplacedByAnotherAndAFullOneIsNot(t *testing.T) {
	top := t.TempDir()
	dirs := map[string]string{}
	for _, name := range []string{"own", "first", "second"} {
		dirs[name] = filepath.Join(top, name)
		if err := os.Mkdir(dirs[name], 0o755); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := workspace.Open(dirs["own"], workspace.Options{DiskBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	if err := tree.Replace(dirs["first"]); err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Put("f", strings.NewReader("text"), 4); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dirs["own"], "f")); string(text) != "text" {
		t.Errorf("there is %q, %v", text, err)
	}
	if err := tree.Replace(dirs["second"]); fault.KindOf(err) != fault.Conflict {
		t.Errorf("with a file in it: %v", err)
	}
	if err := tree.Replace(filepath.Join(top, "none")); err == nil {
		t.Error("by nothing")
	}
	if _, err := tree.Stat("f"); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(top); err != nil {
		t.Error(err)
	} else if len(entries) != 2 {
		t.Errorf("len(entries): got %d, want 2: %v", len(entries), entries)
	}
}
