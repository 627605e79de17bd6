package session_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
	"paddock/internal/store"
)

// asleepWith makes a session with a file of 3 MiB, which takes little of the
// checkpoints' room, and puts it to sleep.
func asleepWith(t *testing.T, m *session.Manager, id session.ID) {
	t.Helper()
	create(t, m, alice, id)
	tree, done, err := m.Files(alice, id)
	if err == nil {
		_, err = tree.Write("big", make([]byte, 3*mib))
	}
	if err != nil {
		t.Fatal(err)
	}
	done()
	if err := m.Sleep(alice, id); err != nil {
		t.Fatal(err)
	}
}

// fits tells whether a file of so many MiB fits in beside what there is.
func fits(t *testing.T, m *session.Manager, size int) bool {
	t.Helper()
	create(t, m, alice, "probe")
	tree, done, err := m.Files(alice, "probe")
	if err != nil {
		t.Fatal(err)
	}
	_, err = tree.Write("more", make([]byte, size*mib))
	done()
	if err != nil {
		wantKind(t, err, fault.Exhausted)
	}
	if err := m.Destroy(t.Context(), alice, "probe"); err != nil { // and what is known is looked at again
		t.Fatal(err)
	}
	return err == nil
}

// Whatever the index says, a quota is of what is in the folders.
func TestAQuotaHoldsWhereTheIndexIsWrong(t *testing.T) {
	for name, spoil := range map[string]func(*testing.T, string){
		"it is right": func(*testing.T, string) {},
		"it misses sessions": func(t *testing.T, dir string) {
			index := store.Open(filepath.Join(dir, "index.db"), nil)
			index.DeleteSession(string(alice), "a")
			index.DeleteSession(string(alice), "b")
			if err := index.Close(); err != nil {
				t.Fatal(err)
			}
		},
		"it has too many": func(t *testing.T, dir string) {
			index := store.Open(filepath.Join(dir, "index.db"), nil)
			index.PutSession(store.Session{Owner: string(alice), ID: "ghost", TreeBytes: 100 * mib})
			if err := index.Close(); err != nil {
				t.Fatal(err)
			}
		},
		"it has others": func(t *testing.T, dir string) {
			index := store.Open(filepath.Join(dir, "index.db"), nil)
			index.DeleteSession(string(alice), "a")
			index.PutSession(store.Session{Owner: string(alice), ID: "ghost"})
			if err := index.Close(); err != nil {
				t.Fatal(err)
			}
		},
		"it was deleted": func(t *testing.T, dir string) {
			for _, suffix := range []string{"", "-wal", "-shm"} {
				if err := os.Remove(filepath.Join(dir, "index.db"+suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
					sandboxtest.Require(t, "unlink", false, "an open file cannot be deleted here")
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			config := session.Config{Dir: dir, DiskBytes: 20 * mib, OwnerDiskBytes: 16 * mib, MaxStored: 4}
			m := manager(t, config, sandboxtest.FakeConfig{})
			for _, id := range []session.ID{"a", "b", "c"} {
				asleepWith(t, m, id)
			}
			for _, where := range []string{"in the same process", "in another one"} {
				spoil(t, dir)
				if where == "in another one" {
					m = reopened(t, m, dir, config)
				}
				if !fits(t, m, 6) {
					t.Errorf("%s, 6 MiB do not fit in beside 9 of 16", where)
				}
				if fits(t, m, 8) {
					t.Errorf("%s, 8 MiB fit in beside 9 of 16", where)
				}
				create(t, m, alice, "fourth")
				_, err := m.Create(t.Context(), alice, "fifth", session.Settings{})
				wantKind(t, err, fault.Exhausted)
				if err := m.Destroy(t.Context(), alice, "fourth"); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestSessionsOfOneProgramCountWhileTheyAreThere(t *testing.T) {
	m := manager(t, session.Config{MaxStored: 2}, sandboxtest.FakeConfig{})
	var ids []session.ID
	for range 2 {
		i, err := m.Create(t.Context(), alice, "", session.Settings{Ephemeral: true})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, i.ID)
		if _, err := m.Execute(t.Context(), alice, i.ID, session.Request{Code: "1"}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := m.Create(t.Context(), alice, "", session.Settings{Ephemeral: true})
	wantKind(t, err, fault.Exhausted)
	if err := m.Destroy(t.Context(), alice, ids[0]); err != nil {
		t.Fatal(err)
	}
	create(t, m, alice, "")
	wantSessions(t, m, alice, 2)
}
