package session_test

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

// line gives the folder of a session's checkpoints and the number of the newest.
func line(t *testing.T, dir string, id session.ID) (folder string, newest int) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "checkpoints", "*", string(id), "*"))
	if err != nil {
		t.Fatalf("looking for checkpoints of %s: %v", id, err)
	}
	if len(found) == 0 {
		t.Fatalf("session %s has no checkpoints", id)
	}
	for _, path := range found {
		n, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(path), ".kept"))
		if err != nil {
			t.Fatal(err)
		}
		newest = max(newest, n)
	}
	return filepath.Dir(found[0]), newest
}

// settle has the contents of alice's sessions be files of their own: they are when one of
// her sessions goes to sleep.
func settle(t *testing.T, m *session.Manager) {
	t.Helper()
	id := create(t, m, alice, "")
	if err := m.Sleep(alice, id); err != nil {
		t.Fatal(err)
	}
	if err := m.Destroy(t.Context(), alice, id); err != nil {
		t.Fatal(err)
	}
}

// copyState gives the state folder as it is when its process is killed now, without the index,
// which can be made again. The log is copied first: what it holds no longer is at its place by
// then.
func copyState(t *testing.T, from string) (to string) {
	t.Helper()
	to = t.TempDir()
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"log"}
	for _, e := range entries {
		if name := e.Name(); name != "log" && !strings.HasPrefix(name, "index.db") {
			names = append(names, name)
		}
	}
	for _, name := range names {
		info, err := os.Lstat(filepath.Join(from, name))
		switch {
		case errors.Is(err, fs.ErrNotExist): // there is no log
			continue
		case err == nil && info.Mode().IsRegular():
			copyFile(t, filepath.Join(to, name), filepath.Join(from, name))
		case err == nil:
			err = os.CopyFS(filepath.Join(to, name), os.DirFS(filepath.Join(from, name)))
		}
		// Sockets are not copied, and what vanishes meanwhile is not needed.
		if err != nil && !errors.Is(err, os.ErrInvalid) && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	return to
}

func copyFile(t *testing.T, to, from string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A checkpoint that lies where it does not belong counts for no session, whoever's blobs it
// names: it is not opened, not listed and not gone back to.
func TestACheckpointOfSomebodyElseIsRefusedWhereverItLies(t *testing.T) {
	for name, who := range map[string]session.Owner{"another session's": alice, "another owner's": "bob"} {
		for _, asNewest := range []bool{true, false} {
			t.Run(name+", as the newest: "+strconv.FormatBool(asNewest), func(t *testing.T) {
				dir := t.TempDir()
				m := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
				mine := create(t, m, alice, "")
				execute(t, m, mine, "x = 'mine'\nwrite('f', 'mine')")
				execute(t, m, mine, "x = 'newer'")
				theirs := create(t, m, who, "")
				for range 3 {
					if _, err := m.Execute(t.Context(), who, theirs, session.Request{Code: "x = 'secret'\nwrite('f', 'secret' + str(random()))", Language: "python"}); err != nil {
						t.Fatal(err)
					}
				}
				if err := m.Close(); err != nil {
					t.Fatal(err)
				}
				to, newest := line(t, dir, mine)
				from, _ := line(t, dir, theirs)
				n := newest + 1
				if !asNewest {
					n = newest - 1
				}
				copyFile(t, filepath.Join(to, strconv.Itoa(n)), filepath.Join(from, strconv.Itoa(n)))
				m = manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
				for _, c := range checkpoints(t, m, mine) {
					if c.ID == strconv.Itoa(n) && strings.Contains(c.Code, "secret") {
						t.Errorf("it is listed: %+v", c)
					}
				}
				r := prints(t, m, mine, "print(x, read('f'))", "newer mine")
				if asNewest && r.Notice == "" {
					t.Error("nothing is said of a newest checkpoint that cannot be used")
				}
				_, err := m.Restore(t.Context(), alice, mine, strconv.Itoa(n))
				if k := fault.KindOf(err); k != fault.Unavailable && k != fault.NotFound && !asNewest {
					t.Errorf("it was restored: %v", err)
				}
				_, err = m.Fork(t.Context(), alice, mine, strconv.Itoa(n), 1)
				if err == nil && !asNewest {
					t.Error("it was forked")
				}
				if _, err := m.Collect(t.Context()); err != nil {
					t.Error(err)
				}
				prints(t, m, mine, "print(x, read('f'))", "newer mine")
			})
		}
	}
}

// What an archive says of itself does not lead to another owner's blobs: what it
// does not hold is not there.
func TestAnArchiveNamesNobodyElsesBlobs(t *testing.T) {
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "write('f', 'secret')")
	var archive bytes.Buffer
	if err := m.Export(t.Context(), alice, id, &archive); err != nil {
		t.Fatal(err)
	}
	bare := withoutBlobs(t, archive.Bytes())
	_, _, err := m.Import(t.Context(), "bob", "", bytes.NewReader(bare))
	wantKind(t, err, fault.Invalid)
	wantSessions(t, m, "bob", 0)
	if err := m.Destroy(t.Context(), alice, id); err != nil {
		t.Fatal(err)
	}
	_, err = m.Restore(t.Context(), alice, id, "1")
	wantKind(t, err, fault.NotFound)
}

// Putting sessions to sleep, or ending the process, makes no owner's disk larger.
func TestSleepingSessionsCountTowardsTheQuota(t *testing.T) {
	dir := t.TempDir()
	config := session.Config{Dir: dir, DiskBytes: 4 * mib, OwnerDiskBytes: 9 * mib}
	m := manager(t, config, sandboxtest.FakeConfig{})
	fill := func(id session.ID) error {
		tree, done, err := m.Files(alice, id)
		if err != nil {
			return err
		}
		defer done()
		data := make([]byte, 3*mib)
		rand.NewChaCha8([32]byte([]byte(id + "...."))).Read(data) // so that it does not become small
		_, err = tree.Write("big", data)
		return err
	}
	var full error
	filled := 0
	for range 6 {
		i, err := m.Create(t.Context(), alice, "", session.Settings{})
		if err == nil {
			err = fill(i.ID)
		}
		if err == nil {
			filled++
			err = m.Sleep(alice, i.ID)
		}
		if full = err; err != nil {
			break
		}
	}
	wantKind(t, full, fault.Exhausted)
	if filled != 1 { // with what is kept of it, it takes twice of 3 MiB
		t.Errorf("sessions that were filled: got %d, want 1", filled)
	}
	m = reopened(t, m, dir, config)
	for range 2 { // at once, and when what is known is measured again
		i, err := m.Create(t.Context(), alice, "", session.Settings{})
		if err == nil {
			err = fill(i.ID)
		}
		wantKind(t, err, fault.Exhausted)
	}
	all, err := m.List(alice)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		if err := m.Destroy(t.Context(), alice, i.ID); err != nil {
			t.Error(err)
		}
	}
	if _, err := m.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := fill(create(t, m, alice, "")); err != nil {
		t.Errorf("with room again: %v", err)
	}
}
