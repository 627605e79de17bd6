package checkpoint_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"paddock/internal/blob"
	"paddock/internal/checkpoint"
	"paddock/internal/fault"
	"paddock/internal/history"
)

func TestWhatIsKeptCanBeGoneBackTo(t *testing.T) {
	b := newBench(t)
	if h := b.Head(); h.Number != 0 {
		t.Errorf("before anything is kept the head: h.Number: got %v, want 0", h.Number)
	} else if b.Count() != 0 {
		t.Errorf("before anything is kept the head: b.Count(): got %v, want 0", b.Count())
	}
	b.write("f", "one")
	b.keep(checkpoint.Note{Cause: history.CauseCreate, Label: "first"}, nil)
	b.write("f", "two")
	b.write("g", "new")
	b.keep(checkpoint.Note{Cause: history.CauseExecute, Execution: "x-1", Code: "\n print(1) \nmore"}, nil)
	b.keep(checkpoint.Note{Cause: history.CauseExecute}, nil) // nothing changed
	if len(b.heads) != 2 {
		t.Errorf("len(b.heads): got %d, want 2: %v", len(b.heads), b.heads)
	}
	if len(b.numbers()) != 2 {
		t.Errorf("len(b.numbers()): got %d, want 2: %v", len(b.numbers()), b.numbers())
	}
	switch h := b.Head(); {
	case h.Code != "print(1)":
		t.Errorf(`the head: h.Code = %q, want "print(1)"`, h.Code)
	case h.Execution != "x-1":
		t.Errorf(`the head: h.Execution = %q, want "x-1"`, h.Execution)
	case h.Label != "":
		t.Errorf(`the head: h.Label = %q, want ""`, h.Label)
	case len(h.Files) != 2:
		t.Errorf("the head: len(h.Files) = %d, want 2: %+v", len(h.Files), h.Files)
	case string(h.Record) != `{"of":"alice"}`:
		t.Errorf("the head: h.Record = %q, want %q", string(h.Record), `{"of":"alice"}`)
	}
	first, err := b.Find("first")
	if err != nil {
		t.Fatal(err)
	}
	if previous, err := b.Previous(); err != nil {
		t.Errorf("before the head: got error %v, want none", err)
	} else if previous.Number != first.Number {
		t.Errorf("before the head: previous.Number: got %v, want %v", previous.Number, first.Number)
	}
	changes, err := b.RestoreTo(t.Context(), first, nil)
	if err != nil {
		t.Fatalf("going back: got error %v, want none", err)
	}
	if len(changes) != 2 {
		t.Fatalf("going back: len(changes): got %d, want 2: %v", len(changes), changes)
	}
	b.wantFile("f", "one")
	b.wantFile("g", "")
	switch h := b.Head(); {
	case h.Of != first.Number:
		t.Errorf("the head: h.Of = %v, want %v: %+v", h.Of, first.Number, h)
	case h.Number != 3:
		t.Errorf("the head: h.Number = %v, want 3: %+v", h.Number, h)
	case b.undone != 0:
		t.Errorf("the head: b.undone = %v, want 0: %+v", b.undone, h)
	}
	if _, err := b.Find("3"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("what only says that it went back can be gone back to: %v", err)
	}
	if _, err := b.Previous(); fault.KindOf(err) != fault.Conflict {
		t.Errorf("before the first is %v", err)
	}
	if got := b.numbers(); len(got) != 2 {
		t.Errorf("there are %v to go back to", got)
	}
}

func TestWhatWasTornIsMendedBeforeAnythingIsKept(t *testing.T) {
	b := newBench(t)
	first := b.step("one", "")
	b.step("two", "")
	hidden := filepath.Join(b.dir, "hidden")
	broken := errors.New("no record")
	b.record = func() ([]byte, error) {
		b.wantFile("f", "one") // the files are there; the checkpoint will not be
		return nil, errors.Join(broken, os.Rename(filepath.Join(b.dir, "blobs"), hidden))
	}
	if _, err := b.RestoreTo(t.Context(), first, nil); !errors.Is(err, broken) {
		t.Fatalf("got %v, want %v", err, broken)
	} else if b.undone != 1 {
		t.Fatalf("b.undone: got %v, want 1", b.undone)
	}
	if _, err := os.Stat(hidden); err != nil {
		t.Skipf("a folder in use cannot be moved here: %v", err)
	}
	b.record = func() ([]byte, error) { return nil, nil }
	if err := b.RepairFiles(); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("files that cannot be brought back: got %v, want one of kind %v", err, fault.Unavailable)
	} else if b.NeedsRepair() {
		t.Error("files that cannot be brought back: b.NeedsRepair(): got true, want false")
	}
	if err := os.Rename(hidden, filepath.Join(b.dir, "blobs")); err != nil {
		t.Fatal(err)
	}
	b.keep(checkpoint.Note{Cause: history.CauseAsked, Always: true}, nil)
	b.wantFile("f", "two")
	if !b.NeedsRepair() {
		t.Error("b.NeedsRepair(): got false, want true")
	}
	if b.NeedsRepair() {
		t.Error("b.NeedsRepair(): got true, want false")
	}
	if !b.Close(errors.New("closed")) {
		t.Error("they are not whole")
	}
}

func TestWhoOpensItNextIsWhereTheLastOneWas(t *testing.T) {
	b := newBench(t)
	b.step("one", "")
	b.step("two", "")
	b.write("f", "cut short")
	again := b.open(func(c *checkpoint.Config) { c.Moved = func() {} })
	skipped, unlisted, err := again.OpenHead(2)
	switch {
	case err != nil:
		t.Fatal(err)
	case skipped != nil:
		t.Fatalf("skipped = %v, want nil: %+v, %v", skipped, again.Head(), unlisted)
	case unlisted:
		t.Fatalf("unlisted = true, want false: %+v, %v", again.Head(), skipped)
	case again.Head().Number != 2:
		t.Fatalf("again.Head().Number = %v, want 2; it is at %+v: %v, %v, %v",
			again.Head().Number, again.Head(), skipped, unlisted, err)
	}
	switch changed, partly, err := again.Recover(t.Context(), false); {
	case err != nil:
		t.Errorf("rolling back: %v", err)
	case !changed:
		t.Errorf("rolling back: changed = false, want true: %v", partly)
	case partly:
		t.Errorf("rolling back: partly = true, want false: %v", changed)
	}
	b.wantFile("f", "two")
	if h := again.Head(); h.Number != 3 {
		t.Errorf("h.Number: got %v, want 3", h.Number)
	} else if h.Of != 2 {
		t.Errorf("h.Of: got %v, want 2", h.Of)
	}
	later := b.open(nil)
	if skipped, _, err := later.OpenHead(7); err != nil {
		t.Errorf("that checkpoint 7 is missing: got error %v, want none", err)
	} else if !errors.Is(skipped, history.ErrDamaged) {
		t.Errorf("that checkpoint 7 is missing: got %v, want %v", skipped, history.ErrDamaged)
	}
}

// What a person changed while no process had the session is a step of its own.
func TestWhatSomebodyChangedMeanwhileIsTakenUp(t *testing.T) {
	b := newBench(t)
	b.step("one", "")
	b.write("f", "changed")
	if changed, _, err := b.Recover(t.Context(), true); err != nil {
		t.Errorf("rolling back: got error %v, want none", err)
	} else if changed {
		t.Error("rolling back: got true, want false")
	}
	b.wantFile("f", "changed")
	switch h := b.Head(); {
	case h.Number != 2:
		t.Errorf("h.Number = %v, want 2: %+v", h.Number, h)
	case h.Of != 2:
		t.Errorf("h.Of = %v, want 2: %+v", h.Of, h)
	case h.Cause != history.CauseFiles:
		t.Errorf("h.Cause = %v, want %v: %+v", h.Cause, history.CauseFiles, h)
	}
}

// remove removes a content from the store.
func (b *bench) remove(ref blob.Ref) {
	b.t.Helper()
	d := ref.Digest
	if err := os.Remove(filepath.Join(b.dir, "blobs", hex.EncodeToString(d[:1]), hex.EncodeToString(d[1:]))); err != nil {
		b.t.Fatal(err)
	}
}

// After a process that was killed, what can be brought back is, whatever became of
// other folders.
func TestAFolderIsBroughtBackWhateverBecameOfAnother(t *testing.T) {
	for range 8 { // folders are in no order
		b := newBench(t)
		b.write("f", "precious")
		if _, err := b.config.Trees["tmp"].Write("t", []byte("one")); err != nil {
			t.Fatal(err)
		}
		b.keep(checkpoint.Note{Cause: history.CauseCreate}, nil)
		list, err := checkpoint.ReadListing(b.config.Store, b.Head().Trees["files"])
		if err != nil {
			t.Fatal(err)
		}
		for ref := range list.Refs() {
			b.remove(ref)
		}
		b.write("f", "cut short")
		if _, err := b.config.Trees["tmp"].Write("t", []byte("two")); err != nil {
			t.Fatal(err)
		}
		switch changed, partly, err := b.Recover(t.Context(), false); {
		case err != nil:
			t.Errorf("rolling back: %v", err)
		case !changed:
			t.Errorf("rolling back: changed = false, want true: %v", partly)
		case !partly:
			t.Errorf("rolling back: partly = false, want true: %v", changed)
		}
		if data, err := os.ReadFile(filepath.Join(b.dir, "tmp", "t")); err != nil {
			t.Fatalf("what could be brought back: got error %v, want none", err)
		} else if string(data) != "one" {
			t.Fatalf("what could be brought back: got %q, want %q", string(data), "one")
		}
	}
}

// Where it cannot be known what was in a folder, all are as they were found.
func TestFilesAreAsTheyWereFoundWhereAListIsDamaged(t *testing.T) {
	for range 8 {
		b := newBench(t)
		b.step("one", "")
		data := []byte("no list")
		batch, err := b.config.Store.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ref, err := batch.Put(bytes.NewReader(data))
		if err == nil {
			err = batch.Sync(t.Context())
		}
		batch.Close()
		line, open := history.Open(b.config.Folder, blob.OS)
		if err := errors.Join(err, open); err != nil {
			t.Fatal(err)
		}
		bad := b.Head().Clone()
		bad.Of, bad.Trees["tmp"] = 0, ref
		if err := line.Append(&bad, nil, nil); err != nil {
			t.Fatal(err)
		}
		b.write("f", "cut short")
		again := b.open(nil)
		switch skipped, unlisted, err := again.OpenHead(2); {
		case err != nil:
			t.Fatalf("it is opened: %v", err)
		case skipped != nil:
			t.Fatalf("it is opened: skipped = %v, want nil: %v", skipped, unlisted)
		case !unlisted:
			t.Fatalf("it is opened: unlisted = false, want true: %v", skipped)
		}
		switch changed, partly, err := again.Recover(t.Context(), false); {
		case err != nil:
			t.Errorf("rolling back: %v", err)
		case changed:
			t.Errorf("rolling back: changed = true, want false: %v", partly)
		case partly:
			t.Errorf("rolling back: partly = true, want false: %v", changed)
		}
		b.wantFile("f", "cut short")
		if err := again.RestoreFiles(); err != nil {
			t.Error(err)
		}
		b.wantFile("f", "cut short")
	}
}

func TestWhatIsEmptiedCanBeUndone(t *testing.T) {
	b := newBench(t)
	b.step("one", "")
	if gone, err := b.Empty(t.Context()); err != nil {
		t.Error(err)
	} else if len(gone) != 1 {
		t.Errorf("len(gone): got %d, want 1: %v", len(gone), gone)
	}
	b.wantFile("f", "")
	previous, err := b.Previous()
	if err == nil {
		_, err = b.RestoreTo(t.Context(), previous, nil)
	}
	if b.wantFile("f", "one"); err != nil {
		t.Error(err)
	}
}
