package session_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

func TestWhatNobodyHereHasOpenIsListedWithoutOpeningIt(t *testing.T) {
	dir := t.TempDir()
	mine := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
	other := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
	id := create(t, mine, alice, "")
	for n := range 3 {
		execute(t, mine, id, fmt.Sprint("x = ", n))
	}
	if _, err := mine.Checkpoint(t.Context(), alice, id, "three"); err != nil {
		t.Fatal(err)
	}
	undo(t, mine, id)
	want := checkpoints(t, mine, id)
	if len(want) != 5 {
		t.Fatalf("len(want): got %d, want 5: %v", len(want), want)
	}
	if !want[3].Current {
		t.Fatal("want[3].Current: got false, want true")
	}
	if want[4].Label != "three" {
		t.Fatalf("want[4].Label: got %q, want %q", want[4].Label, "three")
	}
	if got := checkpoints(t, other, id); !reflect.DeepEqual(got, want) {
		t.Errorf("while another has it there are %+v, want %+v", got, want)
	}
	if err := mine.Sleep(alice, id); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*session.Manager{mine, other} {
		if got := checkpoints(t, m, id); !reflect.DeepEqual(got, want) {
			t.Errorf("asleep there are %+v, want %+v", got, want)
		}
		if i, err := m.Info(alice, id); err != nil {
			t.Errorf("after listing: got error %v, want none", err)
		} else if i.State != session.Asleep {
			t.Errorf("after listing: i.State: got %v, want %v", i.State, session.Asleep)
		}
	}
	if err := mine.Destroy(t.Context(), alice, id); err != nil {
		t.Fatal(err)
	}
	_, err := other.Checkpoints(alice, id)
	wantKind(t, err, fault.NotFound)
}

func TestARebuiltIndexCountsWhatCanBeGoneBackTo(t *testing.T) {
	dir := t.TempDir()
	config := session.Config{Dir: dir}
	m := manager(t, config, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1")
	undo(t, m, id) // which is not a checkpoint of its own
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "index.db")); err != nil {
		t.Fatal(err)
	}
	m = manager(t, config, sandboxtest.FakeConfig{})
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for known := 0; known == 0; <-tick.C {
		all, err := m.List(alice)
		if err != nil {
			t.Fatal(err)
		}
		if len(all) != 1 {
			t.Fatalf("len(all): got %d, want 1: %v", len(all), all)
		}
		if t.Context().Err() != nil {
			t.Fatalf("t.Context().Err(): got %+v, want nil", t.Context().Err())
		}
		if known = all[0].Checkpoints; known != 0 && known != 2 {
			t.Errorf("it counts %d", known)
		}
	}
}

// Whatever the process that has it does meanwhile, a list is of one moment.
func TestAListIsWholeWhileAnotherProcessGivesCheckpointsUp(t *testing.T) {
	dir := t.TempDir()
	mine := manager(t, session.Config{Dir: dir, Checkpoints: 3}, sandboxtest.FakeConfig{})
	other := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
	id := create(t, mine, alice, "")
	execute(t, mine, id, "x = 0")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range 40 {
			label := strings.Repeat("l", n%2)
			if _, err := mine.Checkpoint(t.Context(), alice, id, label); err != nil {
				t.Error(err)
				return
			}
			if _, err := mine.Undo(t.Context(), alice, id); err != nil {
				t.Error(err)
			}
			if label == "" {
				continue
			}
			if _, err := mine.Unlabel(t.Context(), alice, id, label); err != nil {
				t.Error(err)
			}
		}
	}()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		all, err := other.Checkpoints(alice, id)
		if fault.KindOf(err) == fault.Conflict {
			continue
		}
		current := 0
		for _, c := range all {
			if c.Current {
				current++
			}
		}
		if err != nil {
			t.Fatalf("the list: got error %v, want none", err)
		}
		if current != 1 {
			t.Fatalf("the list: current: got %v, want 1", current)
		}
		if len(all) < 2 {
			t.Fatalf("the list: len(all): got %v, want at least 2", len(all))
		}
	}
}

func TestALabelIsTakenOff(t *testing.T) {
	dir := t.TempDir()
	config := session.Config{Dir: dir, Checkpoints: 4}
	m := manager(t, config, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	var ids []string
	for n, label := range []string{"twice", "once", "twice"} {
		execute(t, m, id, fmt.Sprint("x = ", n))
		c, err := m.Checkpoint(t.Context(), alice, id, label)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, c.ID)
	}
	unlabel := func(name string, want ...string) {
		t.Helper()
		if got, err := m.Unlabel(t.Context(), alice, id, name); err != nil {
			t.Errorf("%q was taken off: got error %v, want none", name, err)
		} else if !reflect.DeepEqual(got, want) {
			t.Errorf("%q was taken off: got %v, want %v", name, got, want)
		}
	}
	labels := func() (all []string) {
		for _, c := range checkpoints(t, m, id) {
			if c.Label != "" {
				all = append(all, c.ID+" "+c.Label)
			}
		}
		return all
	}
	unlabel("twice", ids[0], ids[2])
	if got := labels(); !reflect.DeepEqual(got, []string{ids[1] + " once"}) {
		t.Errorf("there are the labels %q", got)
	}
	for _, name := range []string{"twice", ids[0], "1", "999", "nothing"} {
		_, err := m.Unlabel(t.Context(), alice, id, name)
		wantKind(t, err, fault.NotFound)
	}
	_, err := m.Unlabel(t.Context(), alice, id, "")
	wantKind(t, err, fault.Invalid)
	_, err = m.Restore(t.Context(), alice, id, "twice")
	wantKind(t, err, fault.NotFound)
	if all := checkpoints(t, m, id); len(all) != 5 {
		t.Errorf("with a label and four others there are %+v", all)
	}
	m = reopened(t, m, dir, config)
	if got := labels(); !reflect.DeepEqual(got, []string{ids[1] + " once"}) {
		t.Errorf("the next process finds the labels %q", got)
	}
	unlabel(ids[1], ids[1]) // by its id
	prints(t, m, id, "print(x)", "2")
	for n := range 4 {
		execute(t, m, id, fmt.Sprint("x = ", 10+n))
	}
	for _, c := range checkpoints(t, m, id) {
		if c.ID == ids[1] {
			t.Errorf("c.ID: got %v, want another", c.ID)
		}
		if c.Label != "" {
			t.Errorf("c.Label: got %q, want none", c.Label)
		}
	}
	_, err = m.Unlabel(t.Context(), "bob", id, "once")
	wantKind(t, err, fault.NotFound)
}

func TestWhoHasTooManyLabelsTakesOneOff(t *testing.T) {
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	var err error
	made := 0
	for ; err == nil && made < 1000; made++ {
		_, err = m.Checkpoint(t.Context(), alice, id, fmt.Sprint("l", made))
	}
	wantKind(t, err, fault.Exhausted)
	if f := fault.Of(err); made != 201 {
		t.Errorf("the label: made: got %v, want 201", made)
	} else if !strings.Contains(f.Hint, "--remove LABEL") {
		t.Errorf("the label: f.Hint: got %q, want %q in it", f.Hint, "--remove LABEL")
	}
	if _, err := m.Unlabel(t.Context(), alice, id, "l7"); err != nil {
		t.Error(err)
	}
	if _, err := m.Checkpoint(t.Context(), alice, id, "another"); err != nil {
		t.Error(err)
	}
}

// vanishing has a checkpoint be gone once when it is opened, as if the process that
// has the session had given it up just then.
type vanishing struct {
	blob.Files
	number string
	gone   bool
}

func (v *vanishing) Open(name string) (blob.File, error) {
	if !v.gone && filepath.Base(name) == v.number {
		v.gone = true
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return v.Files.Open(name)
}

func TestAListThatChangesWhileItIsReadIsReadAgain(t *testing.T) {
	dir, files := t.TempDir(), &vanishing{Files: blob.OS, number: "2"}
	mine := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
	other := manager(t, session.Config{Dir: dir, Files: files}, sandboxtest.FakeConfig{})
	id := create(t, mine, alice, "")
	for n := range 3 {
		execute(t, mine, id, fmt.Sprint("x = ", n))
	}
	if got, want := checkpoints(t, other, id), checkpoints(t, mine, id); !files.gone {
		t.Error("files.gone: got false, want true")
	} else if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
