package checkpoint_test

import (
	"context"
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
	*checkpoint.Repo
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
	b.Repo = b.open(nil)
	return b
}

// open opens the same folders again, as change says.
func (b *bench) open(change func(*checkpoint.Config)) *checkpoint.Repo {
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
	if _, err := b.Commit(b.t.Context(), n, live); err != nil {
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
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		b.t.Errorf("%s holds %q, %v, want %q", name, data, err, want)
	}
	if string(data) != want {
		b.t.Errorf("%s: data: got %q, want %q", name, string(data), want)
	}
}

// numbers are those of the steps.
func (b *bench) numbers() (all []int64) {
	b.t.Helper()
	steps, err := b.History()
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
	switch {
	case r == nil:
		t.Fatalf("what was kept: r is nil, want a value: %v", whole)
	case len(r.Layers) != 2:
		t.Fatalf("what was kept: len(r.Layers) = %d, want 2: %+v", len(r.Layers), r.Layers)
	case r.Reseed:
		t.Fatalf("what was kept: r.Reseed = true, want false: %+v, %v", r, whole)
	case whole[1]:
		t.Fatalf("what was kept: whole[1] = true, want false: %+v, %v", r, whole)
	case !two.Holds("python"):
		t.Fatalf(`what was kept: two.Holds("python") = false, want true: %+v, %v`, r, whole)
	case len(two.Variables) != 1:
		t.Fatalf("what was kept: len(two.Variables) = %d, want 1: %+v", len(two.Variables), two.Variables)
	}
	layer, err := r.Layers[1]()
	if err != nil {
		t.Fatal(err)
	}
	defer layer.Close()
	if text, err := io.ReadAll(layer); err != nil {
		t.Errorf("the layer: got error %v, want none: %s", err, text)
	} else if string(text) != "2" {
		t.Errorf("the layer: got %q, want %q", string(text), "2")
	}
	previous, err := b.Previous()
	if err == nil {
		_, err = b.RestoreTo(t.Context(), previous, nil)
	}
	switch r := b.Resume("python"); {
	case err != nil:
		t.Errorf("gone back: %v", err)
	case len(r.Layers) != 1:
		t.Errorf("gone back: len(r.Layers) = %d, want 1: %+v", len(r.Layers), r.Layers)
	case !r.Reseed:
		t.Errorf("gone back: r.Reseed = false, want true: %+v", r)
	}
	b.keep(checkpoint.Note{Cause: history.CauseExecute}, map[string]checkpoint.Snapshot{"python": nil})
	if b.Resume("python") != nil {
		t.Errorf(`b.Resume("python"): got %+v, want nil`, b.Resume("python"))
	}
	if b.Head().Holds("python") {
		t.Error("one that is gone is still kept")
	}
}

func TestALongStateIsWrittenWhole(t *testing.T) {
	b := newBench(t)
	var whole []bool
	for n := range checkpoint.MaxLayers + 1 {
		b.keep(checkpoint.Note{Cause: history.CauseExecute}, map[string]checkpoint.Snapshot{"python": says(strconv.Itoa(n), &whole)})
	}
	switch r := b.Resume("python"); {
	case len(r.Layers) != 1:
		t.Errorf("len(r.Layers) = %d, want 1: %+v", len(r.Layers), r.Layers)
	case !whole[checkpoint.MaxLayers]:
		t.Errorf("whole[checkpoint.MaxLayers] = false, want true: %v", whole)
	case whole[checkpoint.MaxLayers-1]:
		t.Errorf("whole[checkpoint.MaxLayers-1] = true, want false: %v", whole)
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
	switch {
	case m == nil:
		t.Fatalf("the machine: m is nil, want a value: %+v", b.Head())
	case string(m.State) != "state":
		t.Fatalf(`the machine: m.State = %q, want "state"`, string(m.State))
	case m.Reseed:
		t.Fatalf("the machine: m.Reseed = true, want false: %+v, %+v", m, b.Head())
	case !b.Head().Holds("python"):
		t.Fatalf(`the machine: b.Head().Holds("python") = false, want true: %+v, %+v`, m, b.Head())
	case b.Head().Machine.Interpreters["command"].Known:
		t.Fatalf(`the machine: b.Head().Machine.Interpreters["command"].Known = true, want false: %+v, %+v`,
			m, b.Head())
	}
	if err := b.RestoreFiles(); err != nil {
		t.Fatal(err)
	}
	b.wantFile("f", "while it ran")
	if h := b.Head(); h.Of != h.Number { // its files are no others by resting
		t.Errorf("what changed files is not a step: %+v", h)
	}
	quiet := func(_ context.Context, _ io.Writer, still func() error) ([]byte, map[string]*sandbox.Inspection, error) {
		return nil, nil, still()
	}
	steps := b.Count()
	for range 2 {
		b.keep(checkpoint.Note{Cause: history.CauseSleep, Save: quiet, MachineMoved: true, Resting: true}, nil)
	}
	switch h := b.Head(); {
	case b.Count() != steps:
		t.Errorf("resting makes steps: b.Count() = %v, want %v: %+v, %d", b.Count(), steps, h, b.litter)
	case h.Of == h.Number:
		t.Errorf("h.Of = %v, want other than %v; resting makes steps: %d are %d; the head is %+v; it was told of %d",
			h.Of, h.Number, steps, b.Count(), h, b.litter)
	case b.litter != 1:
		t.Errorf("resting makes steps: b.litter = %v, want 1: %d, %+v", b.litter, steps, h)
	}
	b.step("two", "")
	if b.keep(checkpoint.Note{Cause: history.CauseExecute, MachineMoved: true}, nil); b.Machine() != nil {
		t.Error("a machine that moved is still the checkpoint's")
	}
	forgetful := func(context.Context, io.Writer, func() error) ([]byte, map[string]*sandbox.Inspection, error) {
		return nil, nil, nil
	}
	if _, err := b.Commit(t.Context(), checkpoint.Note{Save: forgetful}, nil); fault.KindOf(err) != fault.Internal {
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
	if err != nil {
		t.Fatal(err)
	}
	if !then {
		t.Fatal("then: got false, want true")
	}
	if r := fork.Resume("python"); len(r.Layers) != 1 {
		t.Errorf("len(r.Layers): got %d, want 1: %v", len(r.Layers), r.Layers)
	} else if !r.Reseed {
		t.Error("r.Reseed: got false, want true")
	}
	switch h := fork.Head(); {
	case h.Session != "fork":
		t.Errorf(`it begins at: h.Session = %q, want "fork"`, h.Session)
	case h.Previous != 0:
		t.Errorf("it begins at: h.Previous = %v, want 0: %+v", h.Previous, h)
	case h.Cause != history.CauseFork:
		t.Errorf("it begins at: h.Cause = %v, want %v: %+v", h.Cause, history.CauseFork, h)
	case len(h.Files) != 0:
		t.Errorf("it begins at: h.Files = %v, want none: %+v", h.Files, h)
	}
}

func TestNothingIsWrittenOfWhatIsClosedOrPassing(t *testing.T) {
	b := newBench(t)
	passing := b.open(func(c *checkpoint.Config) { c.Ephemeral = true })
	b.write("f", "one")
	err := passing.Begin(t.Context(), history.CauseCreate, nil, nil)
	if err == nil {
		_, err = passing.Commit(t.Context(), checkpoint.Note{Cause: history.CauseAsked, Always: true}, nil)
	}
	switch gone, failed := passing.Empty(t.Context()); {
	case err != nil:
		t.Error(err)
	case failed != nil:
		t.Errorf("failed = %v, want nil", failed)
	case len(gone) != 1:
		t.Errorf("len(gone) = %d, want 1: %+v", len(gone), gone)
	case passing.Count() != 0:
		t.Errorf("passing.Count() = %v, want 0: %v", passing.Count(), failed)
	}
	b.wantFile("f", "")
	b.step("two", "l")
	closed := errors.New("closed")
	b.Close(closed)
	_, kept := b.Commit(t.Context(), checkpoint.Note{Cause: history.CauseAsked, Always: true}, nil)
	_, gone := b.RestoreTo(t.Context(), b.Head(), nil)
	_, empty := b.Empty(t.Context())
	_, label := b.Unlabel("l")
	for _, err := range []error{kept, gone, empty, label, b.CommitPaths(t.Context(), []string{"f"})} {
		if !errors.Is(err, closed) {
			t.Errorf("it is written: %v", err)
		}
	}
	if b.Prune(0); b.Count() != 1 {
		t.Errorf("b.Count(): got %v, want 1", b.Count())
	} else if b.undone != 0 {
		t.Errorf("b.undone: got %v, want 0", b.undone)
	}
}
