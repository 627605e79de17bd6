package session

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/workspace"
)

// bench is what is on disk of a session that is none.
type bench struct {
	t     *testing.T
	dir   string
	k     kept
	heads []int64 // that it was told of
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir()}
	b.k.trees = map[string]*workspace.Tree{}
	for _, name := range []string{workspaceFolder, tmpFolder} {
		dir := filepath.Join(b.dir, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		tree, err := workspace.Open(dir, workspace.Options{DiskBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { tree.Close() })
		b.k.trees[name] = tree
	}
	b.open(&b.k, "s")
	return b
}

// open opens the same folders as a session's of this name.
func (b *bench) open(k *kept, id ID) {
	b.t.Helper()
	k.key, k.trees, k.log = key{"alice", id}, b.k.trees, slog.New(slog.DiscardHandler)
	k.record = func() ([]byte, error) { return []byte(`{"of":"alice"}`), nil }
	k.moved = func(*history.Manifest) { b.heads = append(b.heads, k.head.Number) }
	store, err := blob.Open(filepath.Join(b.dir, "blobs"), blob.Options{})
	if err == nil {
		err = k.open(store, filepath.Join(b.dir, "checkpoints"), blob.OS)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) write(name, data string) {
	b.t.Helper()
	if _, err := b.k.trees[workspaceFolder].Write(name, []byte(data)); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) keep(n note, live map[string]sandbox.Instance) {
	b.t.Helper()
	if _, err := b.k.keep(b.t.Context(), n, live); err != nil {
		b.t.Fatal(err)
	}
}

// wantFile checks what a file holds; "" where there is none.
func (b *bench) wantFile(name, want string) {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(b.dir, workspaceFolder, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) || string(data) != want {
		b.t.Errorf("%s holds %q, %v, want %q", name, data, err, want)
	}
}

func TestWhatIsKeptCanBeGoneBackTo(t *testing.T) {
	b := newBench(t)
	b.write("f", "one")
	b.keep(note{cause: causeCreate, label: "first"}, nil)
	b.write("f", "two")
	b.write("g", "new")
	b.keep(note{cause: causeExecute, execution: "x-1", code: "\n print(1) \nmore"}, nil)
	b.keep(note{cause: causeExecute}, nil) // nothing changed
	if len(b.heads) != 2 || b.k.line.Len() != 2 {
		t.Errorf("it was told of %v, and has %d", b.heads, b.k.line.Len())
	}
	if h := b.k.head; h.Code != "print(1)" || h.Execution != "x-1" || h.Label != "" || len(h.Files) != 2 || string(h.Record) != `{"of":"alice"}` {
		t.Errorf("the head is %+v", h)
	}
	first, err := b.k.named("first")
	if err != nil {
		t.Fatal(err)
	}
	if previous, err := b.k.previous(); err != nil || previous.Number != first.Number {
		t.Errorf("before the head is %+v, %v", previous, err)
	}
	d, err := b.k.draftOver(t.Context(), causeRestore)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	if err := d.become(first, b.k.head); err != nil {
		t.Fatal(err)
	}
	if err := d.persist(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.wantFile("f", "one")
	b.wantFile("g", "")
	if b.k.head.Of != first.Number || b.k.head.Number != 3 {
		t.Errorf("the head is %+v", b.k.head)
	}
	if _, err := b.k.named("3"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("what only says that it went back can be gone back to: %v", err)
	}
	if _, err := b.k.previous(); fault.KindOf(err) != fault.Conflict {
		t.Errorf("before the first is %v", err)
	}
}

func TestWhatAnUndoneDraftLeavesTornIsMendedByTheNext(t *testing.T) {
	b := newBench(t)
	b.write("f", "one")
	b.keep(note{cause: causeCreate}, nil)
	first := *b.k.head
	b.write("f", "two")
	b.keep(note{cause: causeExecute}, nil)
	d, err := b.k.draftOver(t.Context(), causeRestore)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.become(&first, b.k.head); err != nil {
		t.Fatal(err)
	}
	b.wantFile("f", "one")
	hidden := filepath.Join(b.dir, "hidden")
	if err := os.Rename(filepath.Join(b.dir, "blobs"), hidden); err != nil {
		t.Skipf("a folder in use cannot be moved here: %v", err)
	}
	d.undo()
	d.close()
	if !b.k.torn {
		t.Error("files that cannot be brought back are not torn")
	}
	if err := os.Rename(hidden, filepath.Join(b.dir, "blobs")); err != nil {
		t.Fatal(err)
	}
	next, err := b.k.draft(t.Context(), causeAsked)
	if err != nil {
		t.Fatal(err)
	}
	next.close()
	b.wantFile("f", "two")
	if b.k.torn {
		t.Error("they are still torn")
	}
}

func TestWhoOpensItNextIsWhereTheLastOneWas(t *testing.T) {
	b := newBench(t)
	b.write("f", "one")
	b.keep(note{cause: causeCreate}, nil)
	b.write("f", "two")
	b.keep(note{cause: causeExecute}, nil)
	b.write("f", "cut short")
	var again kept
	b.open(&again, "s")
	skipped, damaged, err := again.openHead(2)
	if skipped != nil || damaged || err != nil || again.head.Number != 2 {
		t.Fatalf("it is at %+v: %v, %v, %v", again.head, skipped, damaged, err)
	}
	d, err := again.draft(t.Context(), causeFiles)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	if changed, partly, err := d.rollBack(); !changed || partly || err != nil {
		t.Errorf("rolling back: %v, %v, %v", changed, partly, err)
	}
	b.wantFile("f", "two")
	var later kept
	b.open(&later, "s")
	if skipped, _, err := later.openHead(7); !errors.Is(skipped, history.ErrDamaged) || err != nil {
		t.Errorf("that checkpoint 7 is missing is told as %v, %v", skipped, err)
	}
}

func TestACheckpointOfAnotherSessionIsNone(t *testing.T) {
	b := newBench(t)
	b.write("f", "one")
	b.keep(note{cause: causeCreate, label: "l"}, nil)
	var other kept
	b.open(&other, "other")
	if skipped, _, err := other.openHead(0); !errors.Is(skipped, history.ErrDamaged) || err != nil || other.head != nil {
		t.Errorf("it is at %+v: %v, %v", other.head, skipped, err)
	}
	for _, name := range []string{"1", "l"} {
		if _, err := other.named(name); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("%q is %v", name, err)
		}
	}
}

func TestAnInterpreterThatCouldNotBeKeptIsUnsureUntilItIs(t *testing.T) {
	b := newBench(t)
	backend := sandboxtest.NewFake(sandboxtest.FakeConfig{})
	defer backend.Close()
	in, err := backend.Start(t.Context(), sandbox.Spec{Owner: "alice", Runtime: "python", Dir: "/workspace", Snapshots: true,
		Limits: sandbox.Limits{MemoryBytes: 1 << 20}, Mounts: []sandbox.Mount{{Guest: "/workspace", Host: filepath.Join(b.dir, workspaceFolder), DiskBytes: 1 << 20}}})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if _, err := in.Run(t.Context(), sandbox.Command{Code: "x = 1", Language: "python", Limits: sandbox.RunLimits{StdoutBytes: 1, StderrBytes: 1, DisplayBytes: 1}}); err != nil {
		t.Fatal(err)
	}
	live := map[string]sandbox.Instance{"python": in}
	if b.keep(note{cause: causeCreate}, nil); b.k.state("python") != nil {
		t.Error("there is a state before any was kept")
	}
	broken := errors.New("no record")
	b.k.record = func() ([]byte, error) { return nil, broken }
	if _, err := b.k.keep(t.Context(), note{cause: causeExecute}, live); !errors.Is(err, broken) || !b.k.unsure["python"] {
		t.Errorf("it is sure: %v", err)
	}
	b.k.record = func() ([]byte, error) { return json.Marshal("again") }
	b.keep(note{cause: causeExecute}, live)
	if r := b.k.state("python"); b.k.unsure["python"] || r == nil || len(r.Layers) != 1 {
		t.Errorf("what was kept is %+v", r)
	}
	b.keep(note{cause: causeExecute}, map[string]sandbox.Instance{"python": nil})
	if b.k.state("python") != nil {
		t.Error("one that is gone is still kept")
	}
	b.k.closed = true
	if _, err := b.k.keep(t.Context(), note{cause: causeAsked, always: true}, nil); fault.KindOf(err) != fault.NotFound {
		t.Errorf("what was let go of is written: %v", err)
	}
}
