package session_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"paddock/internal/expect"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

func reopened(t *testing.T, m *session.Manager, dir string, config session.Config) *session.Manager {
	t.Helper()
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	config.Dir = dir
	return manager(t, config, sandboxtest.FakeConfig{})
}

func undo(t *testing.T, m *session.Manager, id session.ID) session.Restored {
	t.Helper()
	r, err := m.Undo(t.Context(), alice, id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func checkpoints(t *testing.T, m *session.Manager, id session.ID) []session.Checkpoint {
	t.Helper()
	all, err := m.Checkpoints(alice, id)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestVariablesAndFilesOutliveTheProcess(t *testing.T) {
	dir := t.TempDir()
	m := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1\nwrite('f', 'one')")
	if _, err := m.Execute(t.Context(), alice, id, session.Request{Code: "y = 7", Language: "javascript"}); err != nil {
		t.Fatal(err)
	}
	m = reopened(t, m, dir, session.Config{})
	if i, err := m.Info(alice, id); err != nil {
		t.Error(err)
	} else if i.State != session.Asleep {
		t.Errorf("i.State: got %v, want %v", i.State, session.Asleep)
	}
	if d, err := m.Details(t.Context(), alice, id); err != nil {
		t.Error(err)
	} else {
		expect.Equal(t, "len(d.Variables)", len(d.Variables), 2)
		expect.Equal(t, "d.Notice", d.Notice, "")
	}
	if r := prints(t, m, id, "print(x, read('f'))", "1 one"); r.Notice != "" {
		t.Errorf("the notice is %q", r.Notice)
	}
	r, err := m.Execute(t.Context(), alice, id, session.Request{Code: "print(y)", Language: "javascript"})
	if err != nil {
		t.Fatal(err)
	}
	expect.Equal(t, "r.Stdout", strings.TrimSpace(r.Stdout), "7")
	expect.Equal(t, "r.Notice", r.Notice, "")
}

func TestUndoGoesBackOneByOneAndIsUndoneByRestore(t *testing.T) {
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	for k := range 4 {
		execute(t, m, id, fmt.Sprintf("x = %d\nwrite('f', '%d')\nwrite('f%d', 'new')", k, k, k))
	}
	last := checkpoints(t, m, id)
	for k := 2; k >= 0; k-- {
		r := undo(t, m, id)
		expect.Equal(t, "len(r.Changes)", len(r.Changes), 2)
		expect.Equal(t, "len(r.Variables)", len(r.Variables), 1)
		expect.Equal(t, "r.Notice", r.Notice, "")
		if k == 1 { // what was undone is left; what comes now follows on
			continue
		}
		d, err := m.Details(t.Context(), alice, id)
		if err != nil {
			t.Fatalf("the files: got error %v, want none", err)
		}
		if len(d.Files) != k+2 {
			t.Errorf("the files: len(d.Files): got %d, want %d: %v", len(d.Files), k+2, d.Files)
		}
	}
	if got := checkpoints(t, m, id); len(got) != len(last) {
		t.Errorf("the checkpoints: len(got): got %d, want %d: %v", len(got), len(last), got)
	} else {
		expect.Equal(t, "the checkpoints: got[1].Current", got[1].Current, true)
		expect.Equal(t, "the checkpoints: got[len(got)-1].Current", got[len(got)-1].Current, false)
	}
	prints(t, m, id, "print(x, read('f'))", "0 0")
	undo(t, m, id) // of what printed, if that changed anything, or of the first
	if _, err := m.Restore(t.Context(), alice, id, last[len(last)-1].ID); err != nil {
		t.Fatal(err)
	}
	prints(t, m, id, "print(x, read('f'), read('f3'))", "3 3 new")
}

func TestThereIsNothingToUndoAtTheBeginning(t *testing.T) {
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	_, err := m.Undo(t.Context(), alice, id)
	wantKind(t, err, fault.Conflict)
	execute(t, m, id, "x = 1")
	undo(t, m, id)
	if r := execute(t, m, id, "x"); r.Exit.Error == nil {
		t.Error("x is still there")
	}
	for _, name := range []string{"77", "never", "-1", "0"} {
		_, err = m.Restore(t.Context(), alice, id, name)
		wantKind(t, err, fault.NotFound)
	}
	_, err = m.Restore(t.Context(), alice, id, "")
	wantKind(t, err, fault.Invalid)
	_, err = m.Undo(t.Context(), "mallory", id)
	wantKind(t, err, fault.NotFound)
}

func TestALabelledCheckpointStaysWhenOthersAreGivenUp(t *testing.T) {
	m := manager(t, session.Config{Checkpoints: 3}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 'begun'")
	c, err := m.Checkpoint(t.Context(), alice, id, "begun")
	if err != nil {
		t.Fatal(err)
	}
	if c.Label != "begun" {
		t.Fatalf("c.Label: got %q, want %q", c.Label, "begun")
	}
	if !c.Current {
		t.Fatal("c.Current: got false, want true")
	}
	for k := range 10 {
		execute(t, m, id, fmt.Sprintf("x = %d", k))
	}
	if all := checkpoints(t, m, id); len(all) > 5 {
		t.Errorf("len(all): got %v, want at most 5", len(all))
	} else if all[0].ID != c.ID {
		t.Errorf("all[0].ID: got %v, want %v", all[0].ID, c.ID)
	}
	if _, err := m.Restore(t.Context(), alice, id, "begun"); err != nil {
		t.Fatal(err)
	}
	prints(t, m, id, "print(x)", "begun")
	for _, bad := range []string{"12", strings.Repeat("x", 101), "\xff"} {
		_, err := m.Checkpoint(t.Context(), alice, id, bad)
		wantKind(t, err, fault.Invalid)
	}
}

func TestFilesThatAreWrittenFromOutsideAreKeptAndUndone(t *testing.T) {
	dir := t.TempDir()
	m := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1")
	write := func(name, text string) {
		tree, done, err := m.Files(alice, id)
		if err == nil {
			defer done()
			_, err = tree.Write(name, []byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write("a/b", "first")
	write("a/b", "second")
	if r := undo(t, m, id); len(r.Changes) != 1 {
		t.Errorf("len(r.Changes): got %d, want 1: %v", len(r.Changes), r.Changes)
	} else if r.Changes[0].Path != "a/b" {
		t.Errorf("r.Changes[0].Path: got %q, want %q", r.Changes[0].Path, "a/b")
	}
	prints(t, m, id, "print(x, read('a/b'))", "1 first")
	write("c", "third")
	m = reopened(t, m, dir, session.Config{})
	prints(t, m, id, "print(x, read('c'))", "1 third")
}

func TestFoldersAndLinksAloneAreKeptToo(t *testing.T) {
	dir := t.TempDir()
	m := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	home, err := filepath.Glob(filepath.Join(dir, "owners", "*", string(id), "workspace"))
	if err != nil {
		t.Fatal(err)
	}
	if len(home) != 1 {
		t.Fatalf("len(home): got %d, want 1: %v", len(home), home)
	}
	if err := os.Mkdir(filepath.Join(home[0], "empty"), 0o755); err != nil { // as a program might
		t.Fatal(err)
	}
	if err := os.Symlink("empty", filepath.Join(home[0], "link")); err != nil {
		t.Fatal(err)
	}
	execute(t, m, id, "x = 1")
	if err := os.Remove(filepath.Join(home[0], "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(home[0], "empty")); err != nil {
		t.Fatal(err)
	}
	execute(t, m, id, "x = 2")
	undo(t, m, id)
	if info, err := os.Lstat(filepath.Join(home[0], "empty")); err != nil {
		t.Errorf("the folder: got error %v, want none", err)
	} else if !info.IsDir() {
		t.Error("the folder: info.IsDir(): got false, want true")
	}
	if to, err := os.Readlink(filepath.Join(home[0], "link")); err != nil {
		t.Errorf("the link: got error %v, want none", err)
	} else if to != "empty" {
		t.Errorf("the link: got %q, want %q", to, "empty")
	}
}

func TestAResetCanBeUndone(t *testing.T) {
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1\nwrite('f', 'text')")
	if n, err := m.Reset(t.Context(), alice, id); err != nil {
		t.Fatal(err)
	} else if n != 1 {
		t.Fatalf("m.Reset(t.Context(), alice, id): got %v, want 1", n)
	}
	if r := execute(t, m, id, "x"); r.Exit.Error == nil {
		t.Error("r.Exit.Error: got nil, want one")
	} else if r.Notice != "" {
		t.Errorf("r.Notice: got %q, want none", r.Notice)
	}
	undo(t, m, id) // the failed look
	undo(t, m, id)
	prints(t, m, id, "print(x, read('f'))", "1 text")
}

func TestForksBeginAlikeAndGoTheirOwnWay(t *testing.T) {
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1\nwrite('f', 'one')")
	if _, err := m.Checkpoint(t.Context(), alice, id, "one"); err != nil {
		t.Fatal(err)
	}
	execute(t, m, id, "x = 2\nwrite('f', 'two')")
	now, err := m.Fork(t.Context(), alice, id, "", 2)
	if err != nil {
		t.Fatal(err)
	}
	if len(now) != 2 {
		t.Fatalf("len(now): got %d, want 2: %v", len(now), now)
	}
	if now[0].ID == now[1].ID {
		t.Fatalf("now[0].ID: got %v, want another", now[0].ID)
	}
	then, err := m.Fork(t.Context(), alice, id, "one", 1)
	if err != nil {
		t.Fatal(err)
	}
	prints(t, m, now[0].ID, "x = 10\nwrite('f', 'ten')\nprint(x)", "10")
	prints(t, m, now[1].ID, "print(x, read('f'))", "2 two")
	prints(t, m, then[0].ID, "print(x, read('f'))", "1 one")
	prints(t, m, id, "print(x, read('f'))", "2 two")
	if err := m.Destroy(t.Context(), alice, id); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	prints(t, m, now[1].ID, "print(x, read('f'))", "2 two")
	for _, n := range []int{0, -1, 101} {
		_, err := m.Fork(t.Context(), alice, now[0].ID, "", n)
		wantKind(t, err, fault.Invalid)
	}
}

// Nothing of the session that is forked lives, so its forks begin from what is on disk.
func TestForksOfASleepingSessionDrawOtherNumbers(t *testing.T) {
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1")
	if err := m.Sleep(alice, id); err != nil {
		t.Fatal(err)
	}
	forks, err := m.Fork(t.Context(), alice, id, "", 2)
	if err != nil {
		t.Fatal(err)
	}
	drawn := map[string]session.ID{}
	for _, one := range []session.ID{id, forks[0].ID, forks[1].ID} {
		number := execute(t, m, one, "print(random())").Stdout
		if other, there := drawn[number]; there {
			t.Errorf("%s and %s draw %s", one, other, number)
		}
		drawn[number] = one
	}
}

func TestASleepingSessionIsWokenByItsNextCall(t *testing.T) {
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1")
	if err := m.Sleep(alice, id); err != nil {
		t.Fatal(err)
	}
	if s := m.Stats(); s.Sessions != 0 {
		t.Errorf("s.Sessions: got %v, want 0", s.Sessions)
	} else if s.Interpreters != 0 {
		t.Errorf("s.Interpreters: got %v, want 0", s.Interpreters)
	}
	prints(t, m, id, "print(x)", "1")
	_, done, err := m.Files(alice, id)
	if err != nil {
		t.Fatal(err)
	}
	wantKind(t, m.Sleep(alice, id), fault.Conflict)
	done()
	done()
	if err := m.Sleep(alice, id); err != nil {
		t.Error(err)
	}
	if err := m.Destroy(t.Context(), alice, id); err != nil {
		t.Error(err)
	}
	wantKind(t, m.Sleep(alice, id), fault.NotFound)
}

func TestMoreSessionsThanMayBeAwakeTakeTurns(t *testing.T) {
	m := manager(t, session.Config{MaxPerOwner: 3}, sandboxtest.FakeConfig{})
	var ids []session.ID
	for k := range 10 {
		ids = append(ids, create(t, m, alice, ""))
		execute(t, m, ids[k], fmt.Sprintf("x = %d", k))
	}
	if s := m.Stats(); s.Sessions > 3 {
		t.Errorf("%+v", s)
	}
	for k, id := range ids {
		prints(t, m, id, "print(x)", fmt.Sprint(k))
	}
}

func TestAnExportedSessionGoesOnElsewhere(t *testing.T) {
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 41\nwrite('f', 'text')")
	var archive bytes.Buffer
	if err := m.Export(t.Context(), alice, id, &archive); err != nil {
		t.Fatal(err)
	}
	prints(t, m, id, "x = 42\nprint(x)", "42") // what it was exported from goes on
	elsewhere := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	i, _, err := elsewhere.Import(t.Context(), "bob", "", bytes.NewReader(archive.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	r, err := elsewhere.Execute(t.Context(), "bob", i.ID, session.Request{Code: "print(x, read('f'))", Language: "python"})
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(r.Stdout) != "41 text" {
		t.Errorf("r.Stdout: got %q, want %q", strings.TrimSpace(r.Stdout), "41 text")
	}
	_, _, err = elsewhere.Import(t.Context(), "bob", i.ID, bytes.NewReader(archive.Bytes()))
	wantKind(t, err, fault.Conflict)
	whole := archive.Bytes()
	for n := range whole {
		if n%97 != 0 {
			continue
		}
		if _, _, err := elsewhere.Import(t.Context(), "bob", "", bytes.NewReader(whole[:n])); err == nil {
			t.Errorf("the first %d of %d bytes were imported", n, len(whole))
		}
		bad := bytes.Clone(whole)
		bad[n] ^= 0x40
		// Some bits of a compressed stream say the same in another way.
		if i, _, err := elsewhere.Import(t.Context(), "bob", "", bytes.NewReader(bad)); err == nil && !bytes.Equal(unpacked(t, bad), unpacked(t, whole)) {
			t.Errorf("with another byte at %d it was imported as %s", n, i.ID)
		}
	}
}

// unpacked gives what an archive is compressed from.
func unpacked(t *testing.T, archive []byte) []byte {
	t.Helper()
	z, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	data, err := z.DecodeAll(archive, nil)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestWhatNothingRefersToIsCollected(t *testing.T) {
	dir := t.TempDir()
	m := manager(t, session.Config{Dir: dir, Checkpoints: 2}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	for k := range 6 {
		execute(t, m, id, fmt.Sprintf("write('f', 'content %d')", k))
	}
	settle(t, m)
	before := count(t, filepath.Join(dir, "blobs"))
	got, err := m.Collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.Blobs == 0 {
		t.Error("got.Blobs: got 0, want more")
	}
	if got.Bytes == 0 {
		t.Error("got.Bytes: got 0, want more")
	}
	if after := count(t, filepath.Join(dir, "blobs")); after >= before {
		t.Errorf("there were %d files, and are %d", before, after)
	}
	undo(t, m, id)
	prints(t, m, id, "print(read('f'))", "content 4")
	if err := m.Destroy(t.Context(), alice, id); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := m.Collect(t.Context()); err != nil {
		t.Error(err)
	} else if got != (session.Collected{}) {
		t.Errorf("m.Collect(t.Context()): got %v, want %v", got, (session.Collected{}))
	}
}

func count(t *testing.T, dir string) (n int) {
	t.Helper()
	err := filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestKeepingLaterAnswersFirstAndKeepsAllTheSame(t *testing.T) {
	dir := t.TempDir()
	m := manager(t, session.Config{Dir: dir, AsyncCheckpoint: true}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	for k := range 5 {
		if r := execute(t, m, id, fmt.Sprintf("x = %d\nwrite('f', '%d')", k, k)); len(r.Changes) != 1 {
			t.Errorf("%+v", r.Changes)
		}
	}
	m = reopened(t, m, dir, session.Config{AsyncCheckpoint: true})
	prints(t, m, id, "print(x, read('f'))", "4 4")
}

func TestTheIndexCanBeDeleted(t *testing.T) {
	dir := t.TempDir()
	m := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
	a, b := create(t, m, alice, "a"), create(t, m, alice, "b")
	execute(t, m, a, "x = 1")
	execute(t, m, b, "x = 2")
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(filepath.Join(dir, "index.db"+suffix)); err != nil && suffix == "" {
			t.Error(err)
		}
	}
	m = manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
	all, err := m.List(alice)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 {
		t.Fatalf("len(all): got %d, want 2: %v", len(all), all)
	}
	expect.Equal(t, "all[0].ID", all[0].ID, "a")
	expect.Equal(t, "all[0].Executions", all[0].Executions, 1)
	prints(t, m, b, "print(x)", "2")
}

func TestANewerStateFolderIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "format"), []byte("99\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := session.New(session.Config{Dir: dir, Backends: []sandbox.Backend{sandboxtest.NewFake(sandboxtest.FakeConfig{})}})
	wantKind(t, err, fault.Unsupported)
}

func TestARunThatIsCutShortLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	m := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1\nwrite('f', 'before')")
	// As a process leaves it that is killed in the middle of a run.
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(dir, "owners")
	folders, err := filepath.Glob(filepath.Join(home, "*", string(id)))
	if err != nil {
		t.Fatal(err)
	}
	if len(folders) != 1 {
		t.Fatalf("len(folders): got %d, want 1: %v", len(folders), folders)
	}
	record, err := os.ReadFile(filepath.Join(folders[0], "session.json"))
	if err != nil {
		t.Fatal(err)
	}
	signed := strings.Replace(string(record), `"session_id"`, `"process": 4000000, "session_id"`, 1)
	for name, text := range map[string]string{"session.json": signed, "workspace/f": "half", "workspace/g": "half"} {
		if err := os.WriteFile(filepath.Join(folders[0], name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m = manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
	r := prints(t, m, id, "print(x, read('f'))", "1 before")
	if !strings.Contains(r.Notice, "ended unexpectedly") {
		t.Errorf("the notice is %q", r.Notice)
	}
	if d, err := m.Details(context.Background(), alice, id); err != nil {
		t.Error(err)
	} else if len(d.Files) != 1 {
		t.Errorf("len(d.Files): got %d, want 1: %v", len(d.Files), d.Files)
	}
}
