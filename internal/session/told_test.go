package session_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"paddock/internal/session"
)

func TestWhatIsToldOfACrashIsToldBesideWhatWasNotToldYet(t *testing.T) {
	dir := t.TempDir()
	m, _ := machines(t, session.Config{Dir: dir})
	id := create(t, m, alice, "")
	execute(t, m, id, "write('a', '1')")
	command(t, m, id, "spawn", "server")
	if err := m.Sleep(alice, id); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Details(t.Context(), alice, id); err != nil { // it is open again, and no client was told
		t.Fatal(err)
	}
	for range 2 { // it is killed, and opened, and killed again
		folders, err := filepath.Glob(filepath.Join(dir, "owners", "*", string(id), "workspace"))
		if err != nil {
			t.Fatal(err)
		}
		if len(folders) != 1 {
			t.Fatalf("len(folders): got %d, want 1: %v", len(folders), folders)
		}
		if err := os.WriteFile(filepath.Join(folders[0], "half"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		dir = withoutDesks(t, dir)
		m, _ = machines(t, session.Config{Dir: dir})
		if _, err := m.Details(t.Context(), alice, id); err != nil {
			t.Fatal(err)
		}
	}
	const crashed = "The server ended unexpectedly: files are as they were"
	r := prints(t, m, id, "print(read('a'))", "1")
	if says(t, r.Notice, "server", "left memory", crashed); strings.Count(r.Notice, crashed) != 1 {
		t.Errorf("the notice is %q", r.Notice)
	}
}
