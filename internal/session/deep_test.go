package session_test

import (
	"os"
	"path/filepath"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

// Files that lie deeper than anything is kept count towards what the owner may have, and
// every result that has to do with them tells: the first after they came, going back to
// where they are, and a fork. A session that goes takes them with it.
func TestFilesThatLieTooDeepAreCountedAndTold(t *testing.T) {
	dir := t.TempDir()
	m := manager(t, session.Config{Dir: dir, DiskBytes: 4 << 20, OwnerDiskBytes: 8 << 20}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	home, err := filepath.Glob(filepath.Join(dir, "owners", "*", string(id), "workspace"))
	if err != nil {
		t.Fatal(err)
	}
	if len(home) != 1 {
		t.Fatalf("len(home): got %d, want 1: %v", len(home), home)
	}
	execute(t, m, id, "write('a', 'text')")
	dig(t, home[0], 300, 1<<20)
	r := execute(t, m, id, "write('b', 'text')")
	says(t, r.Notice, "not kept", "/workspace/d/d", "deeper than 200 folders")
	says(t, execute(t, m, id, "write('c', 'text')").Notice, "", "not kept")
	if i, err := m.Info(alice, id); err != nil {
		t.Error(err)
	} else if i.DiskBytes < 1<<20+300*4096 {
		t.Errorf("i.DiskBytes: got %v, want at least %v", i.DiskBytes, 1<<20+300*4096)
	}
	back, err := m.Undo(t.Context(), alice, id)
	if err != nil {
		t.Fatal(err)
	}
	says(t, back.Notice, "does not hold all files")
	forks, err := m.Fork(t.Context(), alice, id, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	says(t, execute(t, m, forks[0].ID, "read('b')").Notice, "does not hold all files", "", "not kept")
	dig(t, filepath.Join(home[0], "d"), 0, 9<<20)
	execute(t, m, id, "1")
	_, err = m.Create(t.Context(), alice, "", session.Settings{})
	wantKind(t, err, fault.Exhausted)
	if err := m.Destroy(t.Context(), alice, id); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(home[0]); err == nil {
		t.Error("its files are still there")
	}
	create(t, m, alice, "")
}

// dig makes so many folders in each other, as a program does with relative paths, and a
// file of so many bytes in the deepest.
func dig(t *testing.T, dir string, depth int, bytes int64) {
	t.Helper()
	root, err := os.OpenRoot(dir)
	for range depth {
		if err == nil {
			err = root.Mkdir("d", 0o755)
		}
		var sub *os.Root
		if err == nil {
			sub, err = root.OpenRoot("d")
		}
		if err != nil {
			t.Fatal(err)
		}
		root.Close()
		root = sub
	}
	if err == nil {
		defer root.Close()
		err = root.WriteFile("f", make([]byte, bytes), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}
