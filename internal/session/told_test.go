package session_test

import (
	"os"
	"path/filepath"
	"testing"

	"paddock/internal/session"
)

// A session is killed twice before anybody was told of the first time.
func TestWhatIsToldOfACrashIsToldBesideWhatWasNotToldYet(t *testing.T) {
	dir := t.TempDir()
	m, _ := machines(t, session.Config{Dir: dir})
	id := create(t, m, alice, "")
	execute(t, m, id, "write('a', '1')")
	command(t, m, id, "spawn", "server")
	if err := m.Sleep(alice, id); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Details(t.Context(), alice, id); err != nil { // it is open again, and told nobody
		t.Fatal(err)
	}
	folders, err := filepath.Glob(filepath.Join(dir, "owners", "*", string(id), "workspace"))
	if err != nil || len(folders) != 1 {
		t.Fatal(folders, err)
	}
	if err := os.WriteFile(filepath.Join(folders[0], "half"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	next, _ := machines(t, session.Config{Dir: withoutDesks(t, dir)})
	r := prints(t, next, id, "print(read('a'))", "1")
	says(t, r.Notice, "server", "left memory", "ended unexpectedly: files are as they were")
}
