package workspace

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/internal/blob"
	"paddock/internal/fault"
)

// Two runs of random changes jump between the trees that they have seen.
func TestAnyTreeIsMadeOfAnyOther(t *testing.T) {
	names := []string{"a", "b", "a-b", "A b", "é", "c\nd", "x\xffy"}
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 1))
		g := newTestTree(t, Options{})
		type moment struct {
			listing *Listing
			tree    string
		}
		now, _ := g.capture(nil)
		moments := []moment{{now, describe(t, g.dir)}}
		for range 60 {
			for range 1 + r.IntN(4) {
				g.mutate(r, names)
			}
			var before *Listing
			if r.IntN(3) > 0 {
				before = again(t, now)
			}
			l, changes := g.capture(before)
			if want := before.Changes(l); !reflect.DeepEqual(changes, want) {
				t.Fatalf("seed %d: the changes are %v, want %v", seed, changes, want)
			}
			now = l
			moments = append(moments, moment{again(t, l), describe(t, g.dir)})
			if r.IntN(2) == 0 {
				continue
			}
			g.mutate(r, names) // what has not been looked at
			to := moments[r.IntN(len(moments))]
			if r.IntN(3) == 0 {
				now = nil
			}
			now, _ = g.apply(to.listing, now)
			if got := describe(t, g.dir); withoutSpecial(got) != withoutSpecial(to.tree) {
				t.Fatalf("seed %d: the tree: withoutSpecial(got): got %v, want %v",
					seed, withoutSpecial(got), withoutSpecial(to.tree))
			} else if got != withoutSpecial(got) {
				t.Fatalf("seed %d: the tree: got %v, want %v", seed, got, withoutSpecial(got))
			}
			if !now.Same(to.listing) {
				t.Fatalf("seed %d: the listing that was given is not the one that was wanted", seed)
			}
		}
		g.checkOutside()
	}
}

// withoutSpecial leaves out the lines of FIFOs.
func withoutSpecial(s string) string {
	lines := strings.SplitAfter(s, "\n")
	return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return strings.Contains(l, `" p`) }), "")
}

// mutate changes the tree as a guest might.
func (g *testTree) mutate(r *rand.Rand, names []string) {
	p := g.path(names[r.IntN(len(names))])
	for r.IntN(2) == 0 {
		p = filepath.Join(p, names[r.IntN(len(names))])
	}
	for dir := filepath.Dir(p); dir != g.dir; dir = filepath.Dir(dir) {
		if info, err := os.Lstat(dir); err == nil && !info.IsDir() {
			return // a guest cannot change what its links lead to
		}
	}
	_ = os.MkdirAll(filepath.Dir(p), 0o755)
	other := g.path(names[r.IntN(len(names))])
	switch r.IntN(10) {
	case 0:
		_ = os.RemoveAll(p)
	case 1:
		_ = os.Mkdir(p, 0o700)
	case 2:
		_ = os.Symlink([]string{"../outside", "a", ".", "nowhere"}[r.IntN(4)], p)
	case 3:
		_ = mkfifo(p)
	case 4:
		_ = os.Rename(other, p)
	case 5:
		_ = os.Link(other, p)
	case 6:
		if info, err := os.Lstat(p); err == nil && (info.Mode().IsRegular() || info.IsDir()) {
			_ = os.Chmod(p, 0o700|os.FileMode(r.IntN(0o100)))
		}
	case 7:
		if info, err := os.Lstat(p); err == nil && info.Mode().IsRegular() {
			old := time.Unix(int64(r.IntN(1000)), 0)
			_ = os.Chtimes(p, old, old)
		}
	default:
		if info, err := os.Lstat(p); err != nil || info.Mode().IsRegular() {
			_ = os.WriteFile(p, fmt.Append(nil, r.IntN(20)), 0o644)
		}
	}
}

func TestADamagedContentLeavesTheOldFile(t *testing.T) {
	for name, open := range map[string]func(g *testTree, r blob.Ref) (io.ReadCloser, error){
		"other bytes": func(_ *testTree, r blob.Ref) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(strings.Repeat("x", int(r.Size)))), nil
		},
		"too few": func(*testTree, blob.Ref) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("wan")), nil },
		"too many": func(*testTree, blob.Ref) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader("wanted, not")), nil
		},
		"an error at the end": func(*testTree, blob.Ref) (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(strings.NewReader("wanted"), readerOf(func([]byte) (int, error) {
				return 0, fault.New(fault.Internal, "damaged").WithCause(blob.ErrDamaged)
			}))), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newTestTree(t, Options{})
			g.plant("d/file", "wanted")
			want, _ := g.capture(nil)
			g.plant("d/file", "the old one")
			_, _, err := g.Apply(want, nil, func(r blob.Ref) (io.ReadCloser, error) { return open(g, r) })
			if !errors.Is(err, blob.ErrDamaged) {
				t.Fatalf("got %v, want %v", err, blob.ErrDamaged)
			}
			if !strings.Contains(fault.Of(err).Message, "d/file") {
				t.Errorf("fault.Of(err).Message: got %q, want %q in it", fault.Of(err).Message, "d/file")
			}
			if data, err := os.ReadFile(g.path("d/file")); err != nil {
				t.Errorf("the file: got error %v, want none", err)
			} else if string(data) != "the old one" {
				t.Errorf("the file: got %q, want %q", string(data), "the old one")
			}
			if names, err := os.ReadDir(g.path("d")); err != nil {
				t.Error(err)
			} else if len(names) != 1 {
				t.Errorf("len(names): got %d, want 1: %v", len(names), names)
			}
		})
	}
}

func TestAnApplyCanBeInterruptedAndDoneAgain(t *testing.T) {
	g := newTestTree(t, Options{})
	for k := range 6 {
		g.plant(fmt.Sprintf("d%d/f", k), fmt.Sprint("one ", k))
	}
	one, _ := g.capture(nil)
	treeOne := describe(t, g.dir)
	if err := os.RemoveAll(g.path("d3")); err != nil {
		t.Fatal(err)
	}
	for k := range 6 {
		g.plant(fmt.Sprintf("d%d/f", (k+1)%7), fmt.Sprint("two ", k))
	}
	g.plant("d2/g/h", "two")
	two, _ := g.capture(one)
	settle(one)
	settle(two)
	stop := errors.New("the disk was taken out")
	last, stopped := two, 0
	for k := range 8 {
		want := one
		n := 0
		_, _, err := g.Apply(want, last, func(r blob.Ref) (io.ReadCloser, error) {
			if n++; n > k {
				return nil, stop
			}
			return g.memoryBlobs.open(r)
		})
		if err != nil {
			stopped++
		}
		if err != nil && !errors.Is(err, stop) {
			t.Fatal(err)
		}
		used := g.Used()
		if really, err := g.DiskBytes(); err != nil {
			t.Error(err)
		} else if used != really {
			t.Errorf("used: got %v, want %v", used, really)
		}
		if k%2 == 0 {
			last, _ = g.apply(two, last) // somewhere else, with what was known before
			continue
		}
		last, _ = g.apply(one, last)
		if got := describe(t, g.dir); got != treeOne {
			t.Errorf("the tree became\n%s, want\n%s", got, treeOne)
		}
		last, _ = g.apply(two, last)
	}
	if stopped < 4 {
		t.Errorf("stopped: got %v, want at least 4", stopped)
	}
	if stopped == 8 {
		t.Errorf("stopped: got %v, want another", stopped)
	}
}

func TestNoLimitRefusesToGoBack(t *testing.T) {
	g := newTestTree(t, Options{DiskBytes: blockBytes, Grow: func(int64) error { return fault.New(fault.Exhausted, "no") }})
	g.plant("a", strings.Repeat("x", 5*blockBytes))
	want, _ := g.capture(nil)
	if err := g.empty(); err != nil {
		t.Fatal(err)
	}
	g.apply(want, nil)
	if used := g.Used(); used != 5*blockBytes {
		t.Errorf("%d bytes are counted", used)
	}
	_, err := g.Write("b", nil)
	wantFault(t, err, fault.Exhausted)
	g.apply(nil, nil)
	if left := describe(t, g.dir); left != "" {
		t.Errorf("of nothing wanted there is left %s", left)
	}
}

// A guest that swaps a folder for a link all the time does not lead outside.
func TestNobodyIsLedOutside(t *testing.T) {
	g := newTestTree(t, Options{})
	g.plant("d/secret", "inside")
	g.plant("d/e/f", "inside")
	want, _ := g.capture(nil)
	stop := make(chan struct{})
	var guest sync.WaitGroup
	guest.Go(func() {
		for k := 0; ; k++ {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Rename(g.path("d"), g.path("was"))
			_ = os.Symlink([]string{"../outside", "was", "d"}[k%3], g.path("d"))
			_ = os.Remove(g.path("d"))
			_ = os.Rename(g.path("was"), g.path("d"))
		}
	})
	for range 200 {
		_, _, err := g.Apply(want, nil, g.memoryBlobs.open)
		if f := (*fault.Error)(nil); err != nil && !errors.As(err, &f) {
			t.Error(err)
		}
		l, _, err := g.Capture(nil, g.put)
		if err != nil {
			t.Error(err)
			continue
		}
		for r := range l.Refs() {
			if g.contents[r.Digest] == "outside" {
				t.Error("what lies outside was kept")
			}
		}
	}
	close(stop)
	guest.Wait()
	g.checkOutside()
	g.apply(want, nil)
	if data, err := os.ReadFile(g.path("d/secret")); err != nil {
		t.Error(err)
	} else if string(data) != "inside" {
		t.Errorf(`os.ReadFile(g.path("d/secret")): got %q, want %q`, string(data), "inside")
	}
}

func TestDeepFoldersAreBroughtBack(t *testing.T) {
	g := newTestTree(t, Options{})
	deep := path.Join(slices.Repeat([]string{"d"}, maxDepth)...)
	g.plant(deep+"/at", "the deepest")
	g.plant(path.Dir(deep)+"/above", "it")
	if err := os.MkdirAll(g.path(deep+"/d/d/d"), 0o755); err != nil {
		t.Fatal(err)
	}
	want, _ := g.capture(nil)
	if unknown := want.unknown(); !slices.Equal(unknown, []string{deep + "/d"}) {
		t.Errorf("unknown: got %q, want %q", unknown, []string{deep + "/d"})
	} else if want.files() != 2 {
		t.Errorf("unknown: want.files(): got %v, want 2", want.files())
	}
	g.plant(deep+"/d/d/kept", "x")
	g.plant(deep+"/at", "other")
	g.apply(again(t, want), nil)
	if data, err := os.ReadFile(g.path(deep + "/at")); err != nil {
		t.Error(err)
	} else if string(data) != "the deepest" {
		t.Errorf(`os.ReadFile(g.path(deep + "/at")): got %q, want %q`, string(data), "the deepest")
	}
	if _, err := os.Stat(g.path(deep + "/d/d/kept")); err != nil {
		t.Errorf("what is too deep to be known: %v", err)
	}
	if _, changes := g.apply(nil, nil); len(changes) != 2 {
		t.Errorf("the changes are %v", changes)
	}
	back, _ := g.apply(again(t, want), nil)
	if back.files() != 2 {
		t.Errorf("from nothing: back.files(): got %v, want 2", back.files())
	}
	if len(back.unknown()) != 0 {
		t.Errorf("from nothing: back.unknown(): got %v, want none", back.unknown())
	}
}

func TestManyFilesAreBroughtBack(t *testing.T) {
	g := newTestTree(t, Options{})
	const many = MaxFiles + 500
	for k := range 10 {
		if err := os.Mkdir(g.path(fmt.Sprint(k)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for k := range many { // few files with many names: that is faster
		name := g.path(fmt.Sprintf("%d/%d", k%10, k))
		err := os.Link(g.path(fmt.Sprintf("%d/%d", k%10, k%10)), name)
		if k < 10 || err != nil {
			err = os.WriteFile(name, fmt.Append(nil, k%10), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	l, changes := g.capture(nil)
	if l.files() != many {
		t.Errorf("l.files(): got %v, want %v", l.files(), many)
	}
	if len(changes) != MaxFiles {
		t.Errorf("len(changes): got %d, want %d", len(changes), MaxFiles)
	}
	if err := os.RemoveAll(g.path("3")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(g.path("5/5")); err != nil {
		t.Fatal(err)
	}
	g.plant("5/5", "another")
	if _, changes := g.apply(again(t, l), nil); len(changes) != many/10+1 {
		t.Errorf("there are %d changes", len(changes))
	}
	if after, changes := g.capture(settle(l)); len(changes) != 0 {
		t.Errorf("changes: got %v, want none", changes)
	} else if !after.Same(l) {
		t.Error("after.Same(l): got false, want true")
	}
}
