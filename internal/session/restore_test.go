package session_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

func TestWhatWasRestoredIsNotSaidToBeGone(t *testing.T) {
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	if _, err := m.Execute(t.Context(), alice, id, session.Request{Code: "y = 1", Language: "javascript"}); err != nil {
		t.Fatal(err)
	}
	_, err := m.Execute(t.Context(), alice, id, session.Request{Code: "write('half', 'x')\nvanish", Language: "python"})
	wantKind(t, err, fault.Unavailable)
	undo(t, m, id)
	if r := execute(t, m, id, "x = 1"); r.Notice != "" {
		t.Errorf("the notice is %q", r.Notice)
	}
}

// However often a session goes back to one state, and wherever it is woken, what
// it draws there comes only once.
func TestWhatIsDrawnAfterGoingBackIsNew(t *testing.T) {
	dir := t.TempDir()
	m := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1")
	if _, err := m.Checkpoint(t.Context(), alice, id, "here"); err != nil {
		t.Fatal(err)
	}
	drawn := map[string]bool{}
	for range 3 {
		number := execute(t, m, id, "print(random())").Stdout
		if drawn[number] {
			t.Errorf("%s came again", number)
		}
		drawn[number] = true
		for range 2 { // the second time it is there already
			if _, err := m.Restore(t.Context(), alice, id, "here"); err != nil {
				t.Fatal(err)
			}
			if err := m.Sleep(alice, id); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// What a killed process left half written is gone from all folders of a session
// when it is opened again.
func TestWhatWasHalfWrittenIsRemoved(t *testing.T) {
	dir := t.TempDir()
	m := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1")
	if err := m.Sleep(alice, id); err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, file := range []string{"owners/*/*/workspace/.paddock-write-X", "owners/*/*/tmp/.paddock-write-X", "owners/*/*/session.json.X", "owners/*/*/.new-X", "checkpoints/*/*/.new-X"} {
		home, err := filepath.Glob(filepath.Join(dir, filepath.Dir(file)))
		if err != nil {
			t.Fatal(err)
		}
		if len(home) != 1 {
			t.Fatalf("len(home): got %d, want 1: %v", len(home), home)
		}
		left = append(left, filepath.Join(home[0], filepath.Base(file)))
	}
	for _, name := range left {
		if err := os.WriteFile(name, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	prints(t, m, id, "print(x)", "1")
	for _, name := range left {
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is listed of a session that is not open can be gone back to, also where
// its process was killed and it has as many checkpoints as are kept.
func TestWhatIsListedOfASleepingSessionIsNotGivenUpByOpeningIt(t *testing.T) {
	dir := t.TempDir()
	config := session.Config{Dir: dir, Checkpoints: 3}
	m := manager(t, config, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	for n := range 6 {
		execute(t, m, id, fmt.Sprint("x = ", n))
	}
	execute(t, m, create(t, m, alice, ""), "1") // with it, what was given up is gone from the disk
	config.Dir = copyState(t, dir)
	other := manager(t, config, sandboxtest.FakeConfig{})
	listed := checkpoints(t, other, id)
	if _, err := other.Restore(t.Context(), alice, id, listed[0].ID); err != nil {
		t.Errorf("the oldest of %d: %v", len(listed), err)
	}
}

func TestOnlyWhatIsListedCanBeGoneBackTo(t *testing.T) {
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1")
	execute(t, m, id, "x = 2")
	undo(t, m, id) // what tells that has a number of its own
	listed := map[string]bool{}
	for _, c := range checkpoints(t, m, id) {
		listed[c.ID] = true
	}
	for n := range 6 {
		name := fmt.Sprint(n)
		if _, err := m.Restore(t.Context(), alice, id, name); (err == nil) != listed[name] {
			t.Errorf("restoring %s: %v", name, err)
		}
	}
	for _, label := range []string{"-1", "+5", "007"} { // they could not be found again
		_, err := m.Checkpoint(t.Context(), alice, id, label)
		wantKind(t, err, fault.Invalid)
	}
}

// Of two checkpoints with a label the later is meant. Where it cannot be read,
// the earlier is not taken for it.
func TestADamagedLabelIsNotTakenForAnEarlierOne(t *testing.T) {
	dir := t.TempDir()
	m := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	var last session.Checkpoint
	for n := range 2 {
		execute(t, m, id, fmt.Sprintf("x = %d", n))
		var err error
		if last, err = m.Checkpoint(t.Context(), alice, id, "here"); err != nil {
			t.Fatal(err)
		}
	}
	execute(t, m, id, "x = 2")
	if err := m.Sleep(alice, id); err != nil {
		t.Fatal(err)
	}
	folder, _ := line(t, dir, id)
	if err := os.Truncate(filepath.Join(folder, last.ID+".kept"), 50); err != nil {
		t.Fatal(err)
	}
	_, err := m.Restore(t.Context(), alice, id, "here")
	wantKind(t, err, fault.Unavailable)
	prints(t, m, id, "print(x)", "2")
}

// A session that was only used through its files has been used, also where its
// process was killed.
func TestASessionInUseDoesNotExpireWithItsProcess(t *testing.T) {
	dir := t.TempDir()
	config := session.Config{Dir: dir, IdleTTL: time.Hour}
	m := manager(t, config, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	if err := (bout{t: t, m: m}).put(alice, id, "f", "just now"); err != nil {
		t.Fatal(err)
	}
	there := copyState(t, dir)
	found, err := filepath.Glob(filepath.Join(there, "owners", "*", string(id), "session.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 {
		t.Fatalf("len(found): got %d, want 1: %v", len(found), found)
	}
	data, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	record := map[string]any{}
	if err := json.Unmarshal(data, &record); err != nil {
		t.Fatal(err)
	}
	record["last_used_at"] = time.Now().Add(-2 * time.Hour) // when it was made
	if data, err = json.Marshal(record); err == nil {
		err = os.WriteFile(found[0], data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	config.Dir = there
	m = manager(t, config, sandboxtest.FakeConfig{})
	if got, err := m.Collect(t.Context()); err != nil {
		t.Error(err)
	} else if got.Sessions != 0 {
		t.Errorf("got.Sessions: got %v, want 0", got.Sessions)
	}
	prints(t, m, id, "print(read('f'))", "just now")
}
