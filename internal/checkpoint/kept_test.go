package checkpoint_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"paddock/internal/blob"
	"paddock/internal/checkpoint"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/sandbox"
	"paddock/internal/workspace"
)

// bench has the folders of a session that is none, and what is kept of it.
type bench struct {
	*checkpoint.Kept
	t      *testing.T
	dir    string
	config checkpoint.Config
	record func() ([]byte, error)
	heads  []int64 // that it was told of
	undone int     // how often it was told of that
	litter int     // likewise
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir(), record: func() ([]byte, error) { return []byte(`{"of":"alice"}`), nil }}
	trees := map[string]*workspace.Tree{}
	for _, name := range []string{"files", "tmp"} {
		dir := filepath.Join(b.dir, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		tree, err := workspace.Open(dir, workspace.Options{DiskBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { tree.Close() })
		trees[name] = tree
	}
	store, err := blob.Open(filepath.Join(b.dir, "blobs"), blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b.config = checkpoint.Config{
		Owner: "alice", Session: "s", Store: store, Folder: filepath.Join(b.dir, "checkpoints"), Files: blob.OS, Trees: trees, Shown: "files", Most: 100,
		Record: func() ([]byte, error) { return b.record() }, Log: slog.New(slog.DiscardHandler),
		Moved:    func() { b.heads = append(b.heads, b.Head().Number) },
		Undone:   func(context.Context) { b.undone++ },
		Littered: func(int64) { b.litter++ },
	}
	b.Kept = b.open(nil)
	return b
}

// open opens the same folders again, as change says.
func (b *bench) open(change func(*checkpoint.Config)) *checkpoint.Kept {
	b.t.Helper()
	c := b.config
	if change != nil {
		change(&c)
	}
	k, err := checkpoint.Open(c)
	if err != nil {
		b.t.Fatal(err)
	}
	return k
}

func (b *bench) write(name, data string) {
	b.t.Helper()
	if _, err := b.config.Trees["files"].Write(name, []byte(data)); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) keep(n checkpoint.Note, live map[string]checkpoint.Snapshot) {
	b.t.Helper()
	if _, err := b.Keep(b.t.Context(), n, live); err != nil {
		b.t.Fatal(err)
	}
}

// step writes f and keeps that.
func (b *bench) step(data, label string) *history.Manifest {
	b.t.Helper()
	b.write("f", data)
	b.keep(checkpoint.Note{Cause: history.CauseExecute, Label: label, Always: label != ""}, nil)
	return b.Head()
}

// wantFile checks what a file holds; "" where there is none.
func (b *bench) wantFile(name, want string) {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(b.dir, "files", name))
	if err != nil && !errors.Is(err, os.ErrNotExist) || string(data) != want {
		b.t.Errorf("%s holds %q, %v, want %q", name, data, err, want)
	}
}

// numbers are those of the steps.
func (b *bench) numbers() (all []int64) {
	b.t.Helper()
	steps, err := b.Steps()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, m := range steps {
		all = append(all, m.Number)
	}
	if b.Count() != int64(len(all)) {
		b.t.Errorf("there are %d steps, and it counts %d", len(all), b.Count())
	}
	return all
}

func TestWhatIsKeptCanBeGoneBackTo(t *testing.T) {
	b := newBench(t)
	if h := b.Head(); h.Number != 0 || b.Count() != 0 {
		t.Errorf("before anything is kept the head is %+v", h)
	}
	b.write("f", "one")
	b.keep(checkpoint.Note{Cause: history.CauseCreate, Label: "first"}, nil)
	b.write("f", "two")
	b.write("g", "new")
	b.keep(checkpoint.Note{Cause: history.CauseExecute, Execution: "x-1", Code: "\n print(1) \nmore"}, nil)
	b.keep(checkpoint.Note{Cause: history.CauseExecute}, nil) // nothing changed
	if len(b.heads) != 2 || len(b.numbers()) != 2 {
		t.Errorf("it was told of %v, and has %v", b.heads, b.numbers())
	}
	if h := b.Head(); h.Code != "print(1)" || h.Execution != "x-1" || h.Label != "" || len(h.Files) != 2 || string(h.Record) != `{"of":"alice"}` {
		t.Errorf("the head is %+v", h)
	}
	first, err := b.Find("first")
	if err != nil {
		t.Fatal(err)
	}
	if previous, err := b.Previous(); err != nil || previous.Number != first.Number {
		t.Errorf("before the head is %+v, %v", previous, err)
	}
	changes, err := b.GoTo(t.Context(), first, nil)
	if err != nil || len(changes) != 2 {
		t.Fatalf("going back changes %v, %v", changes, err)
	}
	b.wantFile("f", "one")
	b.wantFile("g", "")
	if h := b.Head(); h.Of != first.Number || h.Number != 3 || b.undone != 0 {
		t.Errorf("the head is %+v", h)
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
	if _, err := b.GoTo(t.Context(), first, nil); !errors.Is(err, broken) || b.undone != 1 {
		t.Fatalf("it went back: %v; that it did not was told %d times", err, b.undone)
	}
	if _, err := os.Stat(hidden); err != nil {
		t.Skipf("a folder in use cannot be moved here: %v", err)
	}
	b.record = func() ([]byte, error) { return nil, nil }
	if err := b.Mend(); fault.KindOf(err) != fault.Unavailable || b.Mended() {
		t.Errorf("files that cannot be brought back are mended: %v", err)
	}
	if err := os.Rename(hidden, filepath.Join(b.dir, "blobs")); err != nil {
		t.Fatal(err)
	}
	b.keep(checkpoint.Note{Cause: history.CauseAsked, Always: true}, nil)
	b.wantFile("f", "two")
	if !b.Mended() || b.Mended() {
		t.Error("that they were mended is not told once")
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
	if skipped != nil || unlisted || err != nil || again.Head().Number != 2 {
		t.Fatalf("it is at %+v: %v, %v, %v", again.Head(), skipped, unlisted, err)
	}
	if changed, partly, err := again.Recover(t.Context(), false); !changed || partly || err != nil {
		t.Errorf("rolling back: %v, %v, %v", changed, partly, err)
	}
	b.wantFile("f", "two")
	if h := again.Head(); h.Number != 3 || h.Of != 2 {
		t.Errorf("it is at %+v then", h)
	}
	later := b.open(nil)
	if skipped, _, err := later.OpenHead(7); !errors.Is(skipped, history.ErrDamaged) || err != nil {
		t.Errorf("that checkpoint 7 is missing is told as %v, %v", skipped, err)
	}
}

// What a person changed while nobody had the session is a step of its own.
func TestWhatSomebodyChangedMeanwhileIsTakenUp(t *testing.T) {
	b := newBench(t)
	b.step("one", "")
	b.write("f", "changed")
	if changed, _, err := b.Recover(t.Context(), true); changed || err != nil {
		t.Errorf("rolling back: %v, %v", changed, err)
	}
	b.wantFile("f", "changed")
	if h := b.Head(); h.Number != 2 || h.Of != 2 || h.Cause != history.CauseFiles {
		t.Errorf("it is at %+v", h)
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
		if changed, partly, err := b.Recover(t.Context(), false); !changed || !partly || err != nil {
			t.Errorf("rolling back: %v, %v, %v", changed, partly, err)
		}
		if data, err := os.ReadFile(filepath.Join(b.dir, "tmp", "t")); string(data) != "one" || err != nil {
			t.Fatalf("what could be brought back is %q, %v", data, err)
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
		if err := line.Append(&bad); err != nil {
			t.Fatal(err)
		}
		b.write("f", "cut short")
		again := b.open(nil)
		if skipped, unlisted, err := again.OpenHead(2); skipped != nil || !unlisted || err != nil {
			t.Fatalf("it is opened with %v, %v, %v", skipped, unlisted, err)
		}
		if changed, partly, err := again.Recover(t.Context(), false); changed || partly || err != nil {
			t.Errorf("rolling back: %v, %v, %v", changed, partly, err)
		}
		b.wantFile("f", "cut short")
		if err := again.BringBack(); err != nil {
			t.Error(err)
		}
		b.wantFile("f", "cut short")
	}
}

func TestACheckpointOfAnotherSessionIsNone(t *testing.T) {
	b := newBench(t)
	b.step("one", "l")
	other := b.open(func(c *checkpoint.Config) { c.Session = "other" })
	if skipped, _, err := other.OpenHead(0); !errors.Is(skipped, history.ErrDamaged) || err != nil || other.Head().Number != 0 {
		t.Errorf("it is at %+v: %v, %v", other.Head(), skipped, err)
	}
	for _, name := range []string{"1", "l"} {
		if _, err := other.Find(name); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("%q is %v", name, err)
		}
	}
	if err := other.Check(b.Head()); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("it can be gone back to: %v", err)
	}
}

// says is an interpreter that writes a text, whole where it is asked to.
func says(text string, asked *[]bool) checkpoint.Snapshot {
	return func(_ context.Context, w io.Writer, o sandbox.SnapshotOptions) (sandbox.Snapshot, error) {
		*asked = append(*asked, o.Whole)
		n, err := io.WriteString(w, text)
		return sandbox.Snapshot{Whole: o.Whole, Bytes: int64(n), Known: true, Inspection: sandbox.Inspection{Variables: []sandbox.Variable{{Name: "x", Type: "str", Preview: text}}}}, err
	}
}

func TestAnInterpretersStateIsItsLayers(t *testing.T) {
	b := newBench(t)
	if b.step("one", ""); b.Resume("python") != nil {
		t.Error("there is a state before any was kept")
	}
	var whole []bool
	for _, text := range []string{"1", "2"} {
		b.keep(checkpoint.Note{Cause: history.CauseExecute}, map[string]checkpoint.Snapshot{"python": says(text, &whole)})
	}
	two := b.Head()
	r := b.Resume("python")
	if r == nil || len(r.Layers) != 2 || r.Anew || whole[1] || !two.Holds("python") || len(two.Variables) != 1 {
		t.Fatalf("what was kept is %+v, asked for whole: %v", r, whole)
	}
	layer, err := r.Layers[1]()
	if err != nil {
		t.Fatal(err)
	}
	defer layer.Close()
	if text, err := io.ReadAll(layer); string(text) != "2" || err != nil {
		t.Errorf("the layer holds %q, %v", text, err)
	}
	previous, err := b.Previous()
	if err == nil {
		_, err = b.GoTo(t.Context(), previous, nil)
	}
	if r := b.Resume("python"); err != nil || len(r.Layers) != 1 || !r.Anew {
		t.Errorf("gone back, it is %+v, %v", r, err)
	}
	b.keep(checkpoint.Note{Cause: history.CauseExecute}, map[string]checkpoint.Snapshot{"python": nil})
	if b.Resume("python") != nil || b.Head().Holds("python") {
		t.Error("one that is gone is still kept")
	}
}

func TestALongStateIsWrittenWhole(t *testing.T) {
	b := newBench(t)
	var whole []bool
	for n := range checkpoint.MaxLayers + 1 {
		b.keep(checkpoint.Note{Cause: history.CauseExecute}, map[string]checkpoint.Snapshot{"python": says(strconv.Itoa(n), &whole)})
	}
	if r := b.Resume("python"); len(r.Layers) != 1 || !whole[checkpoint.MaxLayers] || whole[checkpoint.MaxLayers-1] {
		t.Errorf("it has %d layers; asked for whole: %v", len(r.Layers), whole)
	}
}

func TestAMachineIsSavedWithItsFilesOrNot(t *testing.T) {
	b := newBench(t)
	b.step("one", "")
	save := func(_ context.Context, w io.Writer, still func() error) ([]byte, map[string]*sandbox.Inspection, error) {
		b.write("f", "while it ran")
		err := still()
		b.write("f", "later")
		_, _ = io.WriteString(w, "machine")
		return []byte("state"), map[string]*sandbox.Inspection{"python": {Imports: []string{"re"}}, "command": nil}, err
	}
	b.keep(checkpoint.Note{Cause: history.CauseSleep, Save: save, MachineMoved: true, Resting: true}, nil)
	m := b.Machine()
	if m == nil || string(m.State) != "state" || m.Anew || !b.Head().Holds("python") || b.Head().Machine.Interpreters["command"].Known {
		t.Fatalf("the machine is %+v in %+v", m, b.Head())
	}
	if err := b.BringBack(); err != nil {
		t.Fatal(err)
	}
	b.wantFile("f", "while it ran")
	if h := b.Head(); h.Of != h.Number { // its files are no others by resting
		t.Errorf("what changed files is no step: %+v", h)
	}
	quiet := func(_ context.Context, _ io.Writer, still func() error) ([]byte, map[string]*sandbox.Inspection, error) {
		return nil, nil, still()
	}
	steps := b.Count()
	for range 2 {
		b.keep(checkpoint.Note{Cause: history.CauseSleep, Save: quiet, MachineMoved: true, Resting: true}, nil)
	}
	if h := b.Head(); b.Count() != steps || h.Of == h.Number || b.litter != 1 {
		t.Errorf("resting makes steps: %d are %d; the head is %+v; it was told of %d", steps, b.Count(), h, b.litter)
	}
	b.step("two", "")
	if b.keep(checkpoint.Note{Cause: history.CauseExecute, MachineMoved: true}, nil); b.Machine() != nil {
		t.Error("a machine that moved is still the checkpoint's")
	}
	forgetful := func(context.Context, io.Writer, func() error) ([]byte, map[string]*sandbox.Inspection, error) {
		return nil, nil, nil
	}
	if _, err := b.Keep(t.Context(), checkpoint.Note{Save: forgetful}, nil); fault.KindOf(err) != fault.Internal {
		t.Errorf("a machine without its files is kept: %v", err)
	}
}

func TestANewSessionBeginsAsAnotherIs(t *testing.T) {
	b := newBench(t)
	var whole []bool
	b.write("f", "one")
	b.keep(checkpoint.Note{Cause: history.CauseExecute}, map[string]checkpoint.Snapshot{"python": says("1", &whole)})
	from := b.Head()
	b.write("f", "two") // of which the fork knows nothing
	fork := b.open(func(c *checkpoint.Config) {
		c.Session, c.Folder, c.Moved = "fork", filepath.Join(b.dir, "forks"), func() {}
	})
	then := false
	err := fork.Begin(t.Context(), history.CauseFork, from, func() {
		then = fork.Head().Number == 0
		b.wantFile("f", "one")
	})
	if err != nil || !then {
		t.Fatalf("%v; told in time: %v", err, then)
	}
	if r := fork.Resume("python"); len(r.Layers) != 1 || !r.Anew {
		t.Errorf("it begins with %+v", r)
	}
	if h := fork.Head(); h.Session != "fork" || h.Previous != 0 || h.Cause != history.CauseFork || len(h.Files) != 0 {
		t.Errorf("it begins at %+v", h)
	}
}

func TestWhatIsEmptiedCanBeUndone(t *testing.T) {
	b := newBench(t)
	b.step("one", "")
	if gone, err := b.Empty(t.Context()); len(gone) != 1 || err != nil {
		t.Errorf("it deleted %v, %v", gone, err)
	}
	b.wantFile("f", "")
	previous, err := b.Previous()
	if err == nil {
		_, err = b.GoTo(t.Context(), previous, nil)
	}
	if b.wantFile("f", "one"); err != nil {
		t.Error(err)
	}
}

// The oldest goes first, but for those with a label, where the session is, and where
// undo leads.
func TestCheckpointsAreGivenUpFromTheOldestOn(t *testing.T) {
	b := newBench(t)
	for n := range 6 {
		label := ""
		if n == 1 {
			label = "stays"
		}
		b.step(strconv.Itoa(n), label)
	}
	b.Prune(2)
	if got := b.numbers(); len(got) != 3 || got[0] != 2 || got[1] != 5 || got[2] != 6 || b.litter != 3 {
		t.Errorf("there are %v; it was told of %d", got, b.litter)
	}
	if b.Labels() != 1 {
		t.Errorf("%d have a label", b.Labels())
	}
	b.config.Most = 2
	again := b.open(nil)
	if err := again.Look(); err != nil {
		t.Fatal(err)
	}
	if done, err := again.Unlabel("stays"); len(done) != 1 || done[0] != 2 || err != nil {
		t.Errorf("it took the label off %v, %v", done, err)
	}
	if again.Count() != 2 || again.Labels() != 0 {
		t.Errorf("what has no label any more is among %d", again.Count())
	}
	b.Prune(0)
	if h, err := b.Previous(); err != nil || h.Number != 5 {
		t.Errorf("undo leads to %+v, %v", h, err)
	}
}

func TestALabelThatWasTakenOffIsNowhere(t *testing.T) {
	b := newBench(t)
	b.step("one", "twice")
	b.step("two", "twice")
	if _, err := b.Unlabel("none"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a label that there is not is %v", err)
	}
	if done, err := b.Unlabel("1"); len(done) != 1 || err != nil {
		t.Errorf("by its number it was taken off %v, %v", done, err)
	}
	if found, err := b.Find("twice"); err != nil || found.Number != 2 {
		t.Errorf("it is found at %+v, %v", found, err)
	}
	if steps, err := b.Steps(); err != nil || steps[0].Label != "" || steps[1].Label != "twice" {
		t.Errorf("there are %+v, %v", steps, err)
	}
}

func TestNothingIsWrittenOfWhatIsClosedOrPassing(t *testing.T) {
	b := newBench(t)
	passing := b.open(func(c *checkpoint.Config) { c.Passing = true })
	b.write("f", "one")
	err := passing.Begin(t.Context(), history.CauseCreate, nil, nil)
	if err == nil {
		_, err = passing.Keep(t.Context(), checkpoint.Note{Cause: history.CauseAsked, Always: true}, nil)
	}
	if gone, failed := passing.Empty(t.Context()); err != nil || failed != nil || len(gone) != 1 || passing.Count() != 0 {
		t.Errorf("%v, %v: %d of it are kept", err, failed, passing.Count())
	}
	b.wantFile("f", "")
	b.step("two", "l")
	closed := errors.New("closed")
	b.Close(closed)
	_, kept := b.Keep(t.Context(), checkpoint.Note{Cause: history.CauseAsked, Always: true}, nil)
	_, gone := b.GoTo(t.Context(), b.Head(), nil)
	_, empty := b.Empty(t.Context())
	_, label := b.Unlabel("l")
	for _, err := range []error{kept, gone, empty, label, b.KeepPaths(t.Context(), []string{"f"})} {
		if !errors.Is(err, closed) {
			t.Errorf("it is written: %v", err)
		}
	}
	if b.Prune(0); b.Count() != 1 || b.undone != 0 {
		t.Errorf("%d are left; told to undo %d times", b.Count(), b.undone)
	}
}
