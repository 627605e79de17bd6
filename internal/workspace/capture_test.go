package workspace

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"paddock/internal/blob"
	"paddock/internal/fault"
)

// memoryBlobs keeps contents in memory.
type memoryBlobs struct {
	contents map[blob.Digest]string
	puts     []string // the paths that were kept
	opens    int
}

func newMemoryBlobs() *memoryBlobs { return &memoryBlobs{contents: map[blob.Digest]string{}} }

func (s *memoryBlobs) put(p string, r io.Reader) (blob.Ref, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return blob.Ref{}, err
	}
	s.puts = append(s.puts, p)
	d := blob.Digest(sha256.Sum256(data))
	s.contents[d] = string(data)
	return blob.Ref{Digest: d, Size: int64(len(data)), Stored: int64(len(data))}, nil
}

func (s *memoryBlobs) open(r blob.Ref) (io.ReadCloser, error) {
	s.opens++
	c, ok := s.contents[r.Digest]
	if !ok {
		return nil, fault.New(fault.Internal, "missing").WithCause(blob.ErrMissing)
	}
	return io.NopCloser(strings.NewReader(c)), nil
}

// testTree is a tree over a folder beside which lies a secret.
type testTree struct {
	t *testing.T
	*Tree
	dir string
	*memoryBlobs
}

func newTestTree(t *testing.T, o Options) *testTree {
	t.Helper()
	parent := t.TempDir()
	g := &testTree{t: t, dir: filepath.Join(parent, "workspace"), memoryBlobs: newMemoryBlobs()}
	err := errors.Join(os.Mkdir(g.dir, 0o755), os.Mkdir(filepath.Join(parent, "outside"), 0o755),
		os.WriteFile(filepath.Join(parent, "outside", "secret"), []byte("outside"), 0o644))
	if err == nil {
		g.Tree, err = Open(g.dir, o)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

// checkOutside sees to it that nothing happened beside the tree.
func (g *testTree) checkOutside() {
	g.t.Helper()
	outside := filepath.Join(filepath.Dir(g.dir), "outside")
	if data, err := os.ReadFile(filepath.Join(outside, "secret")); err != nil {
		g.t.Errorf("what lies outside: got error %v, want none", err)
	} else if string(data) != "outside" {
		g.t.Errorf("what lies outside: got %q, want %q", string(data), "outside")
	}
	if names, err := os.ReadDir(outside); err != nil {
		g.t.Errorf("outside: got error %v, want none", err)
	} else if len(names) != 1 {
		g.t.Errorf("outside: len(names): got %d, want 1: %v", len(names), names)
	}
}

func (g *testTree) path(p string) string { return filepath.Join(g.dir, filepath.FromSlash(p)) }

// plant writes a file past the Tree, as a guest does.
func (g *testTree) plant(p, text string) {
	g.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(g.path(p)), 0o755), os.WriteFile(g.path(p), []byte(text), 0o644)); err != nil {
		g.t.Fatal(err)
	}
}

// empty removes everything past the Tree.
func (g *testTree) empty() error {
	names, err := os.ReadDir(g.dir)
	for _, n := range names {
		err = errors.Join(err, os.RemoveAll(g.path(n.Name())))
	}
	return err
}

func (g *testTree) capture(before *Listing) (*Listing, []Change) {
	g.t.Helper()
	l, changes, err := g.Capture(before, g.put)
	if err != nil {
		g.t.Fatal(err)
	}
	return l, changes
}

func (g *testTree) apply(want, now *Listing) (*Listing, []Change) {
	g.t.Helper()
	l, changes, err := g.Apply(want, now, g.memoryBlobs.open)
	if err != nil {
		g.t.Fatal(err)
	}
	return l, changes
}

// settle makes a listing as it would be some time later: trusted.
func settle(l *Listing) *Listing {
	for k := range l.entries {
		l.entries[k].racy = false
	}
	return l
}

// again decodes what it encodes.
func again(t *testing.T, l *Listing) *Listing {
	t.Helper()
	data, err := l.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	back := &Listing{}
	if err := back.UnmarshalBinary(data); err != nil {
		t.Fatal(err)
	}
	return back
}

// describe tells all that is in a folder, but for the times of folders.
func describe(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		fmt.Fprintf(&b, "%q %v", rel, info.Mode())
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %d %q", info.ModTime().UnixNano(), data)
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " -> %q", target)
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func wantFault(t *testing.T, err error, want fault.Kind) {
	t.Helper()
	if got := fault.KindOf(err); got != want {
		t.Errorf("got the fault %q (%v), want %q", got, err, want)
	}
}

// plantMuch makes a tree with files, folders and links of all kinds; some of it is as old as it says.
func (g *testTree) plantMuch(old time.Time) {
	g.t.Helper()
	g.plant("a.txt", "first")
	g.plant("empty", "")
	g.plant("data/deep/b.bin", strings.Repeat("\x00\xff", 70_000))
	g.plant("data-2/c", "sorts after the folder data, and not between it and what is in it")
	g.plant("odd/new\nline", "x")
	g.plant("odd/\x1b[31mred", "x")
	err := errors.Join(os.Mkdir(g.path("nothing"), 0o700), os.Chmod(g.path("a.txt"), 0o640), os.Chmod(g.path("data"), 0o711),
		os.Chmod(g.path("empty"), 0), os.Chtimes(g.path("a.txt"), old, old),
		os.Symlink("../outside/secret", g.path("out")), os.Symlink("a.txt", g.path("data/in")), os.Symlink("nowhere", g.path("odd/dangling")),
		os.Chtimes(g.path("data"), old, old))
	if err != nil {
		g.t.Fatal(err)
	}
}

// wrecks are what may happen to the tree that plantMuch makes.
func (g *testTree) wrecks(old time.Time) map[string]func() error {
	return map[string]func() error{
		"nothing changed":    func() error { return nil },
		"all was removed":    g.empty,
		"a file was changed": func() error { return os.WriteFile(g.path("a.txt"), []byte("other"), 0o644) },
		"a file was changed and its time was not": func() error {
			return errors.Join(os.WriteFile(g.path("a.txt"), []byte("other"), 0o644), os.Chtimes(g.path("a.txt"), old, old))
		},
		"files became folders and folders files": func() error {
			return errors.Join(os.RemoveAll(g.path("data")), os.WriteFile(g.path("data"), nil, 0o600),
				os.Remove(g.path("a.txt")), os.MkdirAll(g.path("a.txt/x/y"), 0o755), os.WriteFile(g.path("a.txt/x/z"), nil, 0o600),
				os.Remove(g.path("out")), os.Mkdir(g.path("out"), 0o755))
		},
		"a folder became a link to the outside": func() error {
			return errors.Join(os.RemoveAll(g.path("data")), os.Symlink("../outside", g.path("data")))
		},
		"files became links": func() error {
			return errors.Join(os.Remove(g.path("a.txt")), os.Symlink("../outside/secret", g.path("a.txt")),
				os.Remove(g.path("out")), os.Symlink("elsewhere", g.path("out")))
		},
		"a link became a file": func() error {
			return errors.Join(os.Remove(g.path("out")), os.WriteFile(g.path("out"), []byte("x"), 0o644))
		},
		"two files became one": func() error {
			return errors.Join(os.Remove(g.path("odd/new\nline")), os.Remove(g.path("empty")), os.Link(g.path("a.txt"), g.path("empty")),
				os.Link(g.path("odd/\x1b[31mred"), g.path("odd/new\nline")))
		},
		"modes were changed": func() error {
			return errors.Join(os.Chmod(g.path("a.txt"), 0o777), os.Chmod(g.path("data"), 0), os.Chmod(g.path("nothing"), 0o500))
		},
		"much was added": func() error {
			return errors.Join(os.MkdirAll(g.path("x/y/z"), 0o755), os.WriteFile(g.path("x/y/z/f"), []byte("x"), 0o644),
				os.WriteFile(g.path("data/deep/f"), []byte("x"), 0), os.Chmod(g.path("x/y"), 0))
		},
	}
}

func TestATreeIsBroughtBack(t *testing.T) {
	g := newTestTree(t, Options{})
	old := time.Date(2001, 2, 3, 4, 5, 6, 789_000_000, time.UTC)
	g.plantMuch(old)
	want, changes := g.capture(nil)
	before := describe(t, g.dir)
	if len(changes) != 6 {
		t.Fatalf("the first listing: len(changes): got %d, want 6: %v", len(changes), changes)
	}
	if changes[0] != (Change{Path: "a.txt", Change: Added, Size: 5}) {
		t.Errorf("the first listing: changes[0]: got %v, want %v",
			changes[0], (Change{Path: "a.txt", Change: Added, Size: 5}))
	}
	switch {
	case want.files() != 6:
		t.Errorf("the listing tells of: want.files() = %v, want 6: %v",
			want.files(), want.unknown())
	case want.bytes() != 5+140_000+65+2:
		t.Errorf("the listing tells of: want.bytes() = %v, want %v: %v",
			want.bytes(), 5+140_000+65+2, want.unknown())
	case len(want.unknown()) != 0:
		t.Errorf("the listing tells of: want.unknown() = %v, want none", want.unknown())
	}
	for name, wreck := range g.wrecks(old) {
		for _, known := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, known %t", name, known), func(t *testing.T) {
				now, _ := g.capture(nil)
				if err := wreck(); err != nil {
					t.Fatal(err)
				}
				if known {
					now = settle(now)
				} else {
					now = nil
				}
				after, _ := g.apply(again(t, want), now)
				if got := describe(t, g.dir); got != before {
					t.Errorf("the tree became\n%s, want\n%s", got, before)
				}
				if !after.Same(want) {
					t.Error("the listing that was given is not the one that was wanted")
				}
				seen, changes := g.capture(settle(after))
				if len(changes) != 0 {
					t.Errorf("the listing that was given: changes: got %v, want none", changes)
				}
				if !seen.Same(after) {
					t.Error("the listing that was given: seen.Same(after): got false, want true")
				}
				if info, err := os.Stat(g.path("data")); err != nil {
					t.Errorf("the folder: got error %v, want none", err)
				} else if !info.ModTime().Equal(old) {
					t.Errorf("the folder's time: got %v, want %v", info.ModTime(), old)
				}
				used := g.Used()
				if really, err := g.DiskBytes(); err != nil {
					t.Error(err)
				} else if used != really {
					t.Errorf("used: got %v, want %v", used, really)
				}
				g.checkOutside()
			})
		}
	}
}

func TestWhatDidNotChangeIsNotRead(t *testing.T) {
	g := newTestTree(t, Options{})
	g.plant("a", "one")
	g.plant("d/b", "two")
	g.plant("d/c", "two")
	first, _ := g.capture(nil)
	settle(first)
	g.plant("d/b", "three")
	g.puts = nil
	second, changes := g.capture(again(t, first))
	if !slices.Equal(g.puts, []string{"d/b"}) {
		t.Errorf("kept: g.puts: got %q, want %q", g.puts, []string{"d/b"})
	}
	if !reflect.DeepEqual(changes, []Change{{Path: "d/b", Change: Modified, Size: 5}}) {
		t.Errorf("kept: changes: got %v, want %v", changes, []Change{{Path: "d/b", Change: Modified, Size: 5}})
	}
	settle(second)
	inode := func(p string) fs.FileInfo {
		info, err := os.Stat(g.path(p))
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	a, b := inode("a"), inode("d/b")
	_, changes = g.apply(first, second)
	switch {
	case g.opens != 1:
		t.Errorf("g.opens = %v, want 1: %v", g.opens, changes)
	case !os.SameFile(a, inode("a")):
		t.Errorf(`os.SameFile(a, inode("a")) = false, want true: %d, %v`, g.opens, changes)
	case os.SameFile(b, inode("d/b")):
		t.Errorf(`os.SameFile(b, inode("d/b")) = true, want false: %d, %v`, g.opens, changes)
	case !reflect.DeepEqual(changes, []Change{{Path: "d/b", Change: Modified, Size: 3}}):
		t.Errorf("changes = %v, want %v: %d",
			changes, []Change{{Path: "d/b", Change: Modified, Size: 3}}, g.opens)
	}
	g.opens = 0
	if _, changes = g.apply(first, nil); g.opens != 0 {
		t.Errorf("with nothing known: g.opens: got %v, want 0", g.opens)
	} else if len(changes) != 0 {
		t.Errorf("with nothing known: got %v, want none", changes)
	}
}

func TestAStampIsTrustedWhenItCannotLie(t *testing.T) {
	g := newTestTree(t, Options{})
	g.plant("a", "one")
	l, _ := g.capture(nil)
	// The content that the listing has is another one, as after a change that
	// the stamp does not show.
	ref, err := g.put("a", strings.NewReader("eno"))
	if err != nil {
		t.Fatal(err)
	}
	l.entries[0].ref = ref
	for _, c := range []struct {
		name    string
		racy    bool
		boot    string
		trusted bool
	}{
		{"when the file was old", false, thisBoot(), true},
		{"not when it had just been changed", true, thisBoot(), false},
		{"not when the system was started again since", false, "another", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l.entries[0].racy, l.boot = c.racy, c.boot
			after, changes := g.capture(again(t, l))
			if trusted := after.entries[0].ref == ref; trusted != c.trusted {
				t.Errorf("trusted: got %v, want %v", trusted, c.trusted)
			} else if (len(changes) == 0) != c.trusted {
				t.Errorf("trusted: %t, the changes are %v", trusted, changes)
			}
			copied := *l
			g.opens = 0
			_, _ = g.apply(&copied, l)
			if trusted := g.opens == 0; trusted != c.trusted {
				t.Errorf("applying it opened %d contents", g.opens)
			}
			g.plant("a", "one")
			now, _ := g.capture(nil)
			l.entries[0].stamp = now.entries[0].stamp
		})
	}
}

func TestAFileThatWasJustChangedIsRacy(t *testing.T) {
	now := time.Unix(1000, 500_000_000)
	for _, c := range []struct {
		name string
		s    stamp
		want bool
	}{
		{"changed a second ago", stamp{modified: 1, meta: now.Add(-time.Second).UnixNano()}, false},
		{"changed a millisecond ago", stamp{modified: 1, meta: now.Add(-time.Millisecond).UnixNano()}, true},
		{"changed in the future", stamp{modified: 1, meta: now.Add(time.Hour).UnixNano()}, true},
		{"whole seconds, one and a half ago", stamp{modified: 1, meta: 999 * int64(time.Second)}, true},
		{"whole seconds, three ago", stamp{modified: 1, meta: 997 * int64(time.Second)}, false},
		{"no time of change, modified a millisecond ago", stamp{modified: now.Add(-time.Millisecond).UnixNano()}, true},
		{"no time of change, modified an hour ago", stamp{modified: now.Add(-time.Hour).UnixNano()}, false},
	} {
		if got := racy(c.s, now); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
	g := newTestTree(t, Options{})
	g.plant("a", "x")
	if l, _ := g.capture(nil); !l.entries[0].racy {
		t.Error("a file that was written just now is trusted")
	}
}

func TestAFileThatChangesWhileItIsReadIsLookedAtAgain(t *testing.T) {
	g := newTestTree(t, Options{})
	g.plant("a", "0000")
	n := 0
	restless := func(p string, r io.Reader) (blob.Ref, error) {
		n++
		g.plant("a", fmt.Sprintf("%04d", n)) // the same size
		return g.put(p, r)
	}
	l, _, err := g.Capture(nil, restless)
	switch {
	case err != nil:
		t.Fatalf("it was read: %v", err)
	case n != attempts:
		t.Fatalf("it was read: n = %v, want %v: %+v", n, attempts, l)
	case !l.entries[0].racy:
		t.Fatalf("it was read: l.entries[0].racy = false, want true: %d, %+v", n, l)
	}
	if l.entries[0].ref.Size != 4 {
		t.Errorf("l.entries[0].ref.Size: got %v, want 4", l.entries[0].ref.Size)
	}
	if g.contents[l.entries[0].ref.Digest] == "" {
		t.Error("g.contents[l.entries[0].ref.Digest]: got none, want one")
	}
	after, _ := g.capture(again(t, l))
	if got, want := g.contents[after.entries[0].ref.Digest], fmt.Sprintf("%04d", attempts); got != want {
		t.Errorf("later it is %q, want %q", got, want)
	}
	grow := func(p string, r io.Reader) (blob.Ref, error) {
		return g.put(p, readerOf(func(b []byte) (int, error) {
			f, err := os.OpenFile(g.path("a"), os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = f.Write(bytes.Repeat([]byte("x"), 4096))
				f.Close()
			}
			if err != nil {
				t.Error(err)
			}
			return r.Read(b)
		}))
	}
	if l, _, err = g.Capture(nil, grow); err != nil {
		t.Errorf("a file that grows for ever: got error %v, want none", err)
	} else if !l.entries[0].racy {
		t.Error("a file that grows for ever: l.entries[0].racy: got false, want true")
	}
}

type readerOf func([]byte) (int, error)

func (r readerOf) Read(p []byte) (int, error) { return r(p) }

func TestWhatVanishesIsLeftOut(t *testing.T) {
	g := newTestTree(t, Options{})
	g.plant("a", "x")
	g.plant("b", "x")
	l, _, err := g.Capture(nil, func(p string, r io.Reader) (blob.Ref, error) {
		if err := os.RemoveAll(g.path("b")); err != nil {
			t.Error(err)
		}
		return g.put(p, r)
	})
	if err != nil {
		t.Fatal(err)
	}
	if l.files() != 1 {
		t.Errorf("l.files(): got %v, want 1", l.files())
	}
}

func TestAnErrorOfTheStoreEndsACapture(t *testing.T) {
	g := newTestTree(t, Options{})
	g.plant("a", "x")
	full := fault.New(fault.Exhausted, "the host's disk is full")
	_, _, err := g.Capture(nil, func(string, io.Reader) (blob.Ref, error) { return blob.Ref{}, full })
	wantFault(t, err, fault.Exhausted)
	if !strings.Contains(err.Error(), "a") {
		t.Errorf("the file is not named: %v", err)
	}
	l, changes := g.capture(nil)
	if l.files() != 1 {
		t.Errorf("afterwards: l.files(): got %v, want 1", l.files())
	}
	if len(changes) != 1 {
		t.Errorf("afterwards: len(changes): got %d, want 1: %v", len(changes), changes)
	}
}

func TestHiddenAndSpecialFilesAreNotListedButCount(t *testing.T) {
	g := newTestTree(t, Options{DiskBytes: 1 << 20})
	g.plant("d/a", "x")
	g.plant(tempPrefix+"X", "half")
	g.plant(tempPrefix+"STAGE/f", "half")
	g.plant("d/"+tempPrefix+"Y", "half")
	l, changes := g.capture(nil)
	switch {
	case l.files() != 1:
		t.Errorf("l.files() = %v, want 1: %v", l.files(), l.entries)
	case len(changes) != 1:
		t.Errorf("len(changes) = %d, want 1: %+v", len(changes), changes)
	case len(l.entries) != 2:
		t.Errorf("len(l.entries) = %d, want 2: %+v", len(l.entries), l.entries)
	}
	used := g.Used()
	switch really, err := g.DiskBytes(); {
	case err != nil:
		t.Error(err)
	case used != really:
		t.Errorf("used = %v, want %v", used, really)
	case used != 6*blockBytes:
		t.Errorf("used = %v, want %v: %d", used, 6*blockBytes, really)
	}
	stage, err := g.Stage()
	if err != nil {
		t.Fatal(err)
	}
	defer stage.Close()
	if _, err := stage.Add("new", strings.NewReader("x"), 0); err != nil {
		t.Fatal(err)
	}
	g.apply(l, nil)
	if err := stage.Commit(nil); err != nil {
		t.Errorf("what was being written is gone: %v", err)
	}
}
