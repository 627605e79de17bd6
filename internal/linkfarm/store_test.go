package linkfarm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"paddock/internal/fault"
)

// treeOf is a tree of [example]; made counts how often its files are made.
func treeOf(owner, digest string, made *atomic.Int32) *Tree {
	return &Tree{Owner: owner, Digest: digest, Files: func() []File { made.Add(1); return example }}
}

func mustLink(t *testing.T, s *Store, tree *Tree) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "to")
	if err := s.Link(t.Context(), tree, to); err != nil {
		t.Fatal(err)
	}
	if got := MadeOf(to); got != tree.Digest {
		t.Errorf("the folder is made of %q, want %q", got, tree.Digest)
	}
	return to
}

func TestATreeIsMadeOnceForEachOwner(t *testing.T) {
	var made atomic.Int32
	dir := t.TempDir()
	s := NewStore(dir, os.Link)
	one, two := mustLink(t, s, treeOf("ann", "1", &made)), mustLink(t, s, treeOf("ann", "1", &made))
	next := mustLink(t, NewStore(dir, os.Link), treeOf("ann", "1", &made)) // another process's
	if got := made.Load(); got != 1 {
		t.Errorf("the files of one owner are made %d times, want once", got)
	}
	other := mustLink(t, s, treeOf("bob", "1", &made))
	if got := made.Load(); got != 2 {
		t.Errorf("the files of two owners are made %d times, want twice", got)
	}
	for _, to := range []string{one, two, next, other} {
		wantFiles(t, "a folder", to, exampleTexts)
	}
	for name := range exampleTexts {
		at := filepath.FromSlash(name)
		for what, to := range map[string]string{"the second folder": two, "the folder of another process": next} {
			if !sameFile(t, filepath.Join(one, at), filepath.Join(to, at)) {
				t.Errorf("%s has a %s of its own, want a link", what, name)
			}
		}
		if sameFile(t, filepath.Join(one, at), filepath.Join(other, at)) {
			t.Errorf("%s is linked between owners", name)
		}
	}
	if sameFile(t, filepath.Join(one, Stamp), filepath.Join(other, Stamp)) {
		t.Error("a stamp is linked between owners")
	}
}

// The owner's name and the digest are told apart, whatever is in them.
func TestNoTwoOwnersHaveOneTree(t *testing.T) {
	pairs := [][2]string{{"a", "bc"}, {"ab", "c"}, {"", "abc"}, {"abc", ""}, {"a\n1 b", "c"}, {"a", "1 b\nc"}, {"1 a", "\n"}, {"1 a\n", ""}}
	names := map[string][2]string{}
	for _, pair := range pairs {
		name := (&Tree{Owner: pair[0], Digest: pair[1]}).name()
		if other, there := names[name]; there {
			t.Errorf("%q and %q have one folder", pair, other)
		}
		names[name] = pair
	}
}

func TestABaseIsSharedWithWhatIsMadeOfIt(t *testing.T) {
	var made atomic.Int32
	s := NewStore(t.TempDir(), os.Link)
	base := treeOf("ann", "base", &made)
	first := mustLink(t, s, base)
	changed := mustLink(t, s, &Tree{Owner: "ann", Digest: "changed", Base: base, Files: func() []File {
		return []File{{Path: "a.txt", Data: []byte("changed")}, {Path: "new/c.txt", Data: []byte("c")}}
	}})
	want := maps.Clone(exampleTexts)
	want["a.txt"], want["new/c.txt"] = "changed", "c"
	wantFiles(t, "the changed tree", changed, want)
	wantFiles(t, "its base", first, exampleTexts)
	if deep := filepath.Join("below", "deep", "b.txt"); !sameFile(t, filepath.Join(first, deep), filepath.Join(changed, deep)) {
		t.Error("a file of the base is not shared")
	}
	if got := made.Load(); got != 1 {
		t.Errorf("the base is made %d times, want once", got)
	}
}

// A process that was killed and a host that lost its power leave trees that are made again.
func TestADamagedTreeIsMadeAgain(t *testing.T) {
	for name, damage := range map[string]func(tree string) error{
		"a file is empty": func(tree string) error {
			at := filepath.Join(tree, "a.txt")
			return errors.Join(os.Remove(at), os.WriteFile(at, nil, 0o644))
		},
		"a file is missing": func(tree string) error { return os.RemoveAll(filepath.Join(tree, "below", "deep")) },
		"a file is a folder": func(tree string) error {
			at := filepath.Join(tree, "a.txt")
			return errors.Join(os.Remove(at), os.Mkdir(at, 0o755))
		},
		"the stamp is missing":  func(tree string) error { return os.Remove(filepath.Join(tree, Stamp)) },
		"the stamp is another":  func(tree string) error { return os.WriteFile(filepath.Join(tree, Stamp), []byte("2\n"), 0o644) },
		"the stamp leads out":   func(tree string) error { return os.WriteFile(filepath.Join(tree, Stamp), []byte("1\n1 ../x\n"), 0o644) },
		"the folder is a file":  func(tree string) error { return errors.Join(os.RemoveAll(tree), os.WriteFile(tree, nil, 0o644)) },
		"the folder is missing": os.RemoveAll,
	} {
		t.Run(name, func(t *testing.T) {
			var made atomic.Int32
			dir := t.TempDir()
			tree := treeOf("ann", "1", &made)
			mustLink(t, NewStore(dir, os.Link), tree)
			if err := damage(filepath.Join(dir, tree.name())); err != nil {
				t.Fatal(err)
			}
			to := mustLink(t, NewStore(dir, os.Link), tree)
			wantFiles(t, "the folder", to, exampleTexts)
			if got := made.Load(); got != 2 {
				t.Errorf("the tree is made %d times, want twice", got)
			}
		})
	}
}

func TestATreeThatAnotherProcessRemovedIsMadeAgain(t *testing.T) {
	var made atomic.Int32
	dir := t.TempDir()
	s := NewStore(dir, os.Link)
	tree := treeOf("ann", "1", &made)
	mustLink(t, s, tree)
	if err := os.RemoveAll(filepath.Join(dir, tree.name())); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, "the folder", mustLink(t, s, tree), exampleTexts)
}

func TestManyLinkOneTreeAtOnce(t *testing.T) {
	var made atomic.Int32
	dir, root := t.TempDir(), t.TempDir()
	stores := []*Store{NewStore(dir, os.Link), NewStore(dir, os.Link)} // as two processes
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			to := filepath.Join(root, fmt.Sprint(i))
			if err := stores[i%2].Link(t.Context(), treeOf("ann", "1", &made), to); err != nil {
				t.Error(err)
			}
			wantFiles(t, "a folder", to, exampleTexts)
		})
	}
	all.Wait()
	if got := made.Load(); got > 2 {
		t.Errorf("the tree is made %d times, want once in each process at most", got)
	}
}

func TestATreeThatIsTooLargeIsRefused(t *testing.T) {
	made := 0
	s := NewStore(t.TempDir(), os.Link)
	tree := &Tree{Owner: "ann", Digest: "large", Files: func() []File {
		made++
		return []File{{Path: "a", Data: make([]byte, maxTree)}, {Path: "b", Data: []byte("b")}}
	}}
	to := filepath.Join(t.TempDir(), "to")
	for range 2 {
		if err := s.Link(t.Context(), tree, to); fault.KindOf(err) != fault.Exhausted {
			t.Errorf("it gives %v, want a fault of the kind %v", err, fault.Exhausted)
		}
	}
	if made != 1 {
		t.Errorf("it is tried %d times, want once", made)
	}
	if has(to, "") {
		t.Error("the folder is there, want none")
	}
}

func TestATemporaryStoreGoesWhenItIsClosed(t *testing.T) {
	var made atomic.Int32
	s := NewStore("", os.Link)
	to := mustLink(t, s, treeOf("ann", "1", &made))
	dir := s.dir
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if has(dir, "") {
		t.Error("its folder is there, want none")
	}
	wantFiles(t, "what it gave", to, exampleTexts)
	if err := s.Link(t.Context(), treeOf("ann", "2", &made), to+"2"); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("after Close it gives %v, want a fault of the kind %v", err, fault.Unavailable)
	}
}

func TestACancelledTreeIsNotMade(t *testing.T) {
	var made atomic.Int32
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := NewStore(t.TempDir(), os.Link).Link(ctx, treeOf("ann", "1", &made), filepath.Join(t.TempDir(), "to"))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it gives %v, want %v", err, context.Canceled)
	}
	if got := made.Load(); got != 0 {
		t.Errorf("the files are made %d times, want never", got)
	}
}

func TestOldTreesAreRemoved(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	put := func(name string, age time.Duration, size int64) {
		t.Helper()
		path := filepath.Join(dir, name)
		write(t, path, map[string]string{Stamp: string(stampOf(name, map[string]int64{"x": size}))})
		if err := os.Chtimes(path, now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	put("young", time.Hour, 1)
	put("large", 2*time.Hour, maxBytes)
	put("old", maxAge+time.Hour, 1)
	put(".new-x", time.Minute, 1)
	put(".old-y", 2*time.Hour, 1)
	var gone []string
	for _, path := range unused(dir, now) {
		gone = append(gone, filepath.Base(path))
	}
	if got, want := strings.Join(gone, " "), ".old-y old large"; got != want {
		t.Errorf("it removes %q, want %q", got, want)
	}
	NewStore(dir, os.Link).sweep()
	wantNames(t, "after a sweep", dir, ".new-x", "young")
}

// What is in a stamp may be anything: a damaged disk's, or another process's. No file
// outside the tree is ever taken for one of it, and what a store wrote is read as it was.
func FuzzStamp(f *testing.F) {
	f.Add("digest\n1 a.txt\n", "a.txt")
	f.Add("digest\n1 ../outside\n", "../outside")
	f.Add("digest\n-1 a\n99999999999999999999 b\n x\n", "below/b")
	f.Add("", "")
	f.Fuzz(func(t *testing.T, stamp, name string) {
		root := t.TempDir()
		dir := filepath.Join(root, "tree")
		write(t, root, map[string]string{"tree/a.txt": "a", "outside": "x"})
		if err := os.WriteFile(filepath.Join(dir, Stamp), []byte(stamp), 0o644); err != nil {
			t.Fatal(err)
		}
		files, err := verify(dir, "digest")
		for _, file := range files {
			if !filepath.IsLocal(filepath.FromSlash(file)) {
				t.Errorf("it names %q, which is not in the tree", file)
			}
		}
		if err == nil && MadeOf(dir) != "digest" {
			t.Errorf("a tree made of %q is taken for one of %q", MadeOf(dir), "digest")
		}
		if strings.ContainsAny(name, "\n\r") || !filepath.IsLocal(filepath.FromSlash(name)) {
			return
		}
		written := string(stampOf("digest", map[string]int64{name: 7}))
		if want := "digest\n7 " + name + "\n"; written != want {
			t.Errorf("the stamp is %q, want %q", written, want)
		}
	})
}
