package workspace

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"

	"paddock/internal/fault"
)

func TestEveryChangeThroughTheTreeIsKept(t *testing.T) {
	var (
		g    *testTree
		last *Listing
		told []string
		fail error
	)
	g = newTestTree(t, Options{DiskBytes: 1 << 20, Keep: func(paths []string) error {
		told = append(told, paths...)
		var err error
		if last, _, err = g.CapturePaths(last, paths, g.put); err != nil {
			return err
		}
		if len(paths) == 1 && paths[0] == "again" { // no lock is held
			_, err = g.Write("from within", nil)
		}
		return errors.Join(err, fail)
	}})
	last, _ = g.capture(nil)
	stage := func(names ...string) error {
		s, err := g.Stage()
		if err != nil {
			return err
		}
		defer s.Close()
		for _, n := range names {
			if _, err := s.Add(n, strings.NewReader("staged"), 0); err != nil {
				return err
			}
		}
		return s.Commit(nil)
	}
	for _, c := range []struct {
		name string
		do   func() error
		want []string
	}{
		{"a write", func() error { _, err := g.Write("a/b", []byte("x")); return err }, []string{"a/b"}},
		{"an edit", func() error { _, err := g.Edit("a/b", "x", "y", false); return err }, []string{"a/b"}},
		{"an edit that does not fit", func() error { _, err := g.Edit("a/b", "x", "y", false); return deny(err) }, nil},
		{"several files at once", func() error { return stage("s/1", "s/2") }, []string{"s/1", "s/2"}},
		{"a file that is received", func() error { _, _, err := g.Receive("r", strings.NewReader("x"), -1, nil); return err }, []string{"r"}},
		{"a file that is not, as it is too short", func() error { _, _, err := g.Receive("r", strings.NewReader("x"), 2, nil); return deny(err) }, nil},
		{"the removal of a file", func() error { return g.RemoveFile("r", nil) }, []string{"r"}},
		{"the removal of nothing", func() error { return deny(g.RemoveFile("r", nil)) }, nil},
		{"a keeper that writes", func() error { _, err := g.Write("again", nil); return err }, []string{"again", "from within"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			told = nil
			if err := c.do(); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(told, c.want) {
				t.Errorf("told were %q, want %q", told, c.want)
			}
			if now, _ := g.capture(nil); !now.Same(last) {
				t.Error("the listing is not that of the tree")
			}
		})
	}
	fail = fault.New(fault.Exhausted, "the host's disk is full")
	_, err := g.Write("b", nil)
	wantFault(t, err, fault.Exhausted)
}

// deny makes an error of none, and none of one.
func deny(err error) error {
	if err == nil {
		return errors.New("it was done")
	}
	return nil
}

func TestOnlyThePathsAreLookedAt(t *testing.T) {
	g := newTestTree(t, Options{DiskBytes: 1 << 20})
	for _, p := range []string{"a/x", "a/y", "a-b", "b/c/x", "b/c/y", "f"} {
		g.plant(p, "old")
	}
	old, _ := g.capture(nil)
	settle(old)
	everything := []string{"a/x", "a/y", "a-b", "b/c/x", "b/c/y", "f", "new/deep/x", "new/deep/y"}
	for _, c := range []struct {
		name  string
		paths []string
		want  string // the files that are listed as changed
	}{
		{"nothing", nil, ""},
		{"a file", []string{"a/x"}, "a/x"},
		{"two in a folder, and one of them twice", []string{"a/y", "a/x", "a/y"}, "a/x a/y"},
		{"a name that sorts between a folder and its files", []string{"a-b", "a/x"}, "a-b a/x"},
		{"a folder", []string{"b"}, "b/c/x b/c/y"},
		{"a folder and what is in it", []string{"b/c/x", "b"}, "b/c/x b/c/y"},
		{"what is new", []string{"new/deep/x"}, "new/deep/x"},
		{"what is not there", []string{"nowhere/x", "f/x/y"}, "f"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, p := range everything {
				g.plant(p, "changed")
			}
			l, changes, err := g.CapturePaths(again(t, old), c.paths, g.put)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, ch := range changes {
				got = append(got, ch.Path)
			}
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("changed are %q, want %q", s, c.want)
			}
			again(t, l) // it is well formed
			if now, _ := g.capture(nil); len(l.Changes(now)) != len(everything)-len(got) {
				t.Errorf("the rest is %v", l.Changes(now))
			}
		})
	}
	for _, bad := range []string{"", ".", "..", "a/../b", "/a", "a//b", "a\x00"} {
		_, _, err := g.CapturePaths(old, []string{bad}, g.put)
		wantFault(t, err, fault.Invalid)
	}
}

func TestAPathThroughLinksIsFound(t *testing.T) {
	g := newTestTree(t, Options{DiskBytes: 1 << 20})
	g.plant("real/deep/f", "old")
	err := errors.Join(os.Symlink("real/deep", g.path("short")), os.Mkdir(g.path("d"), 0o755), os.Symlink("../short/../deep", g.path("d/long")),
		os.Symlink("loop", g.path("loop")), os.Symlink("../outside", g.path("out")))
	if err != nil {
		t.Fatal(err)
	}
	old, _ := g.capture(nil)
	settle(old)
	for _, p := range []string{"short/f", "d/long/f"} {
		if _, err := g.Write(p, []byte(p)); err != nil {
			t.Fatal(err)
		}
		l, changes, err := g.CapturePaths(old, []string{p}, g.put)
		switch {
		case err != nil:
			t.Errorf("%s: %v", p, err)
		case len(changes) != 1:
			t.Errorf("%s: len(changes) = %d, want 1: %+v", p, len(changes), changes)
		case changes[0].Path != "real/deep/f":
			t.Errorf(`%s: changes[0].Path = %q, want "real/deep/f"`, p, changes[0].Path)
		}
		old = settle(l)
	}
	for _, p := range []string{"loop/f", "out/secret", "out/../f"} {
		if l, changes, err := g.CapturePaths(old, []string{p}, g.put); p != "out/../f" && (err != nil || len(changes) != 0 || !l.Same(old)) {
			t.Errorf("%s: %v, %v", p, changes, err)
		}
	}
}

// What is kept path by path is what there is.
func TestPathsAddUpToTheTree(t *testing.T) {
	names := []string{"a", "b", "a-b", "x\xffy"}
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 2))
		g := newTestTree(t, Options{})
		l, _ := g.capture(nil)
		for k := range 80 {
			p := names[r.IntN(len(names))]
			for r.IntN(2) == 0 {
				p += "/" + names[r.IntN(len(names))]
			}
			switch r.IntN(4) {
			case 0:
				_ = os.RemoveAll(g.path(p)) // it may not be there
			case 1:
				_ = os.MkdirAll(g.path(p), 0o755) // a file may be in the way
			default:
				if os.MkdirAll(g.path(p+"/.."), 0o755) == nil {
					_ = os.WriteFile(g.path(p), fmt.Append(nil, k), 0o644) // a folder may be there
				}
			}
			var err error
			if l, _, err = g.CapturePaths(l, []string{p}, g.put); err != nil {
				t.Fatal(err)
			}
			if now, _ := g.capture(nil); !now.Same(l) {
				t.Fatalf("seed %d: after a change of %q the listing lacks %v", seed, p, l.Changes(now))
			}
		}
	}
}
