package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"paddock/internal/fault"
)

// zeros gives n of them.
func zeros(n int64) io.Reader { return io.LimitReader(zero{}, n) }

type zero struct{}

func (zero) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func openTree(t *testing.T, o Options) (*Tree, string) {
	t.Helper()
	dir := t.TempDir()
	tree, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	return tree, dir
}

// wantOnly checks what is in a folder.
func wantOnly(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if fmt.Sprint(got) != fmt.Sprint(names) {
		t.Errorf("the folder has %v, want %v", got, names)
	}
}

func TestReceivingAFile(t *testing.T) {
	tree, dir := openTree(t, Options{DiskBytes: 64 << 20})
	f, created, err := tree.Receive("a/b.bin", zeros(3<<20), 3<<20, nil)
	switch {
	case err != nil:
		t.Fatal(err)
	case !created:
		t.Fatalf("created = false, want true: %+v", f)
	case f.Size != 3<<20:
		t.Fatalf("f.Size = %v, want %v: %+v, %v", f.Size, 3<<20, f, created)
	case f.Path != "a/b.bin":
		t.Fatalf(`f.Path = %q, want "a/b.bin"`, f.Path)
	}
	if err := os.Chmod(filepath.Join(dir, "a/b.bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	g, created, err := tree.Receive("/workspace/a/b.bin", strings.NewReader("new"), -1, nil)
	switch {
	case err != nil:
		t.Fatal(err)
	case created:
		t.Fatalf("created = true, want false: %+v", g)
	case g.Size != 3:
		t.Fatalf("g.Size = %v, want 3: %+v, %v", g.Size, g, created)
	case g.Tag() == f.Tag():
		t.Fatalf("g.Tag() = %v, want other than %v: %+v, %v", g.Tag(), f.Tag(), g, created)
	}
	info, err := os.Stat(filepath.Join(dir, "a/b.bin"))
	if err != nil {
		t.Fatalf("the mode: got error %v, want none", err)
	}
	if info.Mode().Perm()&0o100 == 0 && filepath.Separator == '/' {
		t.Errorf("the mode: got %v, want it to be executable", info.Mode())
	}
	wantOnly(t, dir, "a")
	if n := tree.leased.Load(); n != 0 {
		t.Errorf("%d bytes are still reserved", n)
	}
}

func TestWhatIsNotReceivedWholeLeavesTheOldFile(t *testing.T) {
	broke := errors.New("the line broke")
	changed := fault.New(fault.Conflict, "changed")
	for name, c := range map[string]struct {
		path  string
		src   io.Reader
		size  int64
		allow func(*File) error
		want  error
		kind  fault.Kind
	}{
		"the source breaks":          {"old", io.MultiReader(zeros(100_000), &failing{broke}), -1, nil, broke, fault.Internal},
		"fewer bytes than announced": {"old", zeros(10), 11, nil, nil, fault.Invalid},
		"more bytes than announced":  {"old", zeros(12), 11, nil, nil, fault.Invalid},
		"the limit, announced":       {"old", &failing{broke}, 9 << 20, nil, nil, fault.Exhausted},
		"the limit, on the way":      {"old", zero{}, -1, nil, nil, fault.Exhausted},
		"not allowed":                {"old", &failing{broke}, -1, func(*File) error { return changed }, changed, fault.Conflict},
		"a folder":                   {"folder", zeros(1), 1, nil, nil, fault.Invalid},
		"below a file":               {"old/new", zeros(1), 1, nil, nil, fault.Invalid},
		"out of it":                  {"../old", zeros(1), 1, nil, nil, fault.Denied},
		"paddock's own name":         {tempPrefix + "x", zeros(1), 1, nil, nil, fault.Invalid},
		"deeper than is looked":      {strings.Repeat("d/", maxDepth) + "f", zeros(1), 1, nil, nil, fault.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			tree, dir := openTree(t, Options{DiskBytes: 8 << 20})
			for _, p := range []string{"old", "folder/one"} {
				if _, err := tree.Write(p, []byte("content")); err != nil {
					t.Fatal(err)
				}
			}
			_, _, err := tree.Receive(c.path, c.src, c.size, c.allow)
			if fault.KindOf(err) != c.kind {
				t.Fatalf("got %v, want one of kind %v", err, c.kind)
			}
			if c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("got %v (%s), want %s", err, fault.KindOf(err), c.kind)
			}
			if old, err := tree.ReadAll("old", 100); err != nil {
				t.Errorf("the old file: got error %v, want none", err)
			} else if string(old.Data) != "content" {
				t.Errorf("the old file: old.Data: got %q, want %q", string(old.Data), "content")
			}
			wantOnly(t, dir, "folder", "old")
			if n := tree.leased.Load(); n != 0 {
				t.Errorf("%d bytes are still reserved", n)
			}
		})
	}
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

// What writers take ahead keeps others out of none of the room that is left.
func TestManySmallFilesAtOnceHaveRoom(t *testing.T) {
	tree, _ := openTree(t, Options{DiskBytes: 24 << 20})
	for k := range 8 {
		s, err := tree.Stage()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err := s.Add(fmt.Sprint("f", k), strings.NewReader(strings.Repeat("x", 100_000)), 0); err != nil {
			t.Errorf("of %d: %v", k, err)
		}
	}
}

func TestManyReceiversTogetherKeepTheDiskLimit(t *testing.T) {
	const limit = 40 << 20
	tree, _ := openTree(t, Options{DiskBytes: limit})
	var all sync.WaitGroup
	for k := range 8 {
		all.Go(func() { _, _, _ = tree.Receive(fmt.Sprint("f", k), zeros(9<<20), -1, nil) })
	}
	all.Wait()
	n, err := tree.DiskBytes()
	switch {
	case err != nil:
		t.Error(err)
	case n > limit:
		t.Errorf("n = %v, want at most %v", n, limit)
	case n < 9<<20:
		t.Errorf("n = %v, want at least %v: %d", n, 9<<20, limit)
	}
	if n := tree.leased.Load(); n != 0 {
		t.Errorf("%d bytes are still reserved", n)
	}
}

func TestSomebodyElseMayBoundTheGrowth(t *testing.T) {
	asked := int64(0)
	no := fault.New(fault.Exhausted, "not yours")
	var tree *Tree
	var dir string
	tree, dir = openTree(t, Options{DiskBytes: 1 << 30, Grow: func(n int64) error {
		if asked = n; tree.Used()+n > 1<<20 {
			return no
		}
		return nil
	}})
	if _, err := tree.Write("small", []byte("x")); err != nil {
		t.Error(err)
	} else if asked != blockBytes {
		t.Errorf("asked: got %v, want %v", asked, blockBytes)
	}
	if _, err := tree.Write("large", make([]byte, 2<<20)); !errors.Is(err, no) {
		t.Errorf("writing: %v", err)
	}
	if _, _, err := tree.Receive("large", zeros(2<<20), -1, nil); !errors.Is(err, no) {
		t.Errorf("receiving: %v", err)
	}
	wantOnly(t, dir, "small")
}

func TestAStageIsPutInPlaceWholeOrNotAtAll(t *testing.T) {
	for name, c := range map[string]struct {
		paths []string
		kind  fault.Kind
	}{
		"new files":              {[]string{"a", "b/c", "b/d/e"}, ""},
		"a file in place":        {[]string{"old"}, ""},
		"a folder in place":      {[]string{"a", "folder"}, fault.Invalid},
		"a file on the way":      {[]string{"a", "old/x/y"}, fault.Invalid},
		"the same file twice":    {[]string{"a", "./a"}, fault.Invalid},
		"a file below a new one": {[]string{"a", "a/b"}, fault.Invalid},
		"a link out on the way":  {[]string{"a", "out/x"}, fault.Denied},
	} {
		t.Run(name, func(t *testing.T) {
			tree, dir := openTree(t, Options{DiskBytes: 1 << 20})
			for _, p := range []string{"old", "folder/one"} {
				if _, err := tree.Write(p, []byte("content")); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink("..", filepath.Join(dir, "out")); err != nil {
				t.Skip("no links can be made here")
			}
			err := stage(tree, c.paths)
			if fault.KindOf(err) != c.kind {
				t.Fatalf("got %v, want %q", err, c.kind)
			}
			for _, p := range c.paths {
				if got, err := tree.ReadAll(p, 100); c.kind == "" && (err != nil || string(got.Data) != p) {
					t.Errorf("%s has %q, %v", p, got.Data, err)
				}
			}
			if c.kind != "" {
				wantOnly(t, dir, "folder", "old", "out")
			}
		})
	}
}

// stage puts files in place whose content is their name.
func stage(tree *Tree, paths []string) error {
	s, err := tree.Stage()
	if err != nil {
		return err
	}
	defer s.Close()
	for _, p := range paths {
		if _, err := s.Add(p, strings.NewReader(p), 0o644); err != nil {
			return err
		}
	}
	return s.Commit(nil)
}

func TestWhatAnInterruptedWriterLeftIsNotSeenAndSweptAway(t *testing.T) {
	tree, dir := openTree(t, Options{DiskBytes: 1 << 20})
	for _, p := range []string{tempPrefix + "X/sub/a", "b/" + tempPrefix + "Y", "kept"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(p)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, p), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if files, _, err := tree.List(t.Context(), ""); err != nil {
		t.Error(err)
	} else if len(files) != 1 {
		t.Errorf("len(files): got %d, want 1: %v", len(files), files)
	}
	if err := tree.Sweep(); err != nil {
		t.Fatal(err)
	}
	wantOnly(t, dir, "b", "kept")
}

func TestATagChangesWithTheFile(t *testing.T) {
	tree, _ := openTree(t, Options{DiskBytes: 1 << 20})
	seen := map[string]bool{}
	for k := range 20 {
		f, err := tree.Write("a", bytes.Repeat([]byte("x"), k+1))
		if err != nil {
			t.Fatalf("the tag: got error %v, want none", err)
		}
		if seen[f.Tag()] {
			t.Fatal("the tag: seen[f.Tag()]: got true, want false")
		}
		seen[f.Tag()] = true
		seen[f.Tag()] = true
		if g, err := tree.Stat("a"); err != nil {
			t.Fatalf("the tag: got error %v, want none", err)
		} else if g.Tag() != f.Tag() {
			t.Fatalf("the tag: g.Tag(): got %v, want %v", g.Tag(), f.Tag())
		}
	}
}

func TestRemovingOneFile(t *testing.T) {
	tree, dir := openTree(t, Options{DiskBytes: 1 << 20})
	if _, err := tree.Write("folder/one", []byte("x")); err != nil {
		t.Fatal(err)
	}
	no := fault.New(fault.Conflict, "no")
	for name, c := range map[string]struct {
		path  string
		allow func(File) error
		kind  fault.Kind
	}{
		"none":        {"two", nil, fault.NotFound},
		"a folder":    {"folder", nil, fault.Invalid},
		"not allowed": {"folder/one", func(File) error { return no }, fault.Conflict},
		"out of it":   {"folder/../../x", nil, fault.Denied},
	} {
		if err := tree.RemoveFile(c.path, c.allow); fault.KindOf(err) != c.kind {
			t.Errorf("%s: got %v, want %s", name, err, c.kind)
		}
	}
	if err := tree.RemoveFile("folder/one", nil); err != nil {
		t.Error(err)
	}
	wantOnly(t, filepath.Join(dir, "folder"))
}

func TestAStageTakesFilesAwayInOneChange(t *testing.T) {
	dir := t.TempDir()
	var kept [][]string
	tree, err := Open(dir, Options{DiskBytes: 1 << 20, Keep: func(paths []string) error { kept = append(kept, paths); return nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	for _, name := range []string{"a/b/old.txt", "a/b/c/older.txt", "a/stays.txt"} {
		if _, err := tree.Put(name, strings.NewReader("x"), 1); err != nil {
			t.Fatal(err)
		}
	}
	s, err := tree.Stage()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, name := range []string{"a/b/old.txt", "a/b/c/older.txt", "nowhere/there.txt"} {
		if err := s.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Add("a/new.txt", strings.NewReader("new"), 0); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove("../outside"); err == nil {
		t.Error("what is outside is removed")
	}
	if files, _, err := tree.List(t.Context(), ""); err != nil {
		t.Errorf("before: got error %v, want none", err)
	} else if len(files) != 3 {
		t.Errorf("before: len(files): got %d, want 3: %v", len(files), files)
	}
	if err := s.Commit(nil); err != nil {
		t.Fatal(err)
	}
	files, _, err := tree.List(t.Context(), "")
	switch {
	case err != nil:
		t.Error(err)
	case len(files) != 2:
		t.Errorf("len(files) = %d, want 2: %+v", len(files), files)
	case files[0].Path != "a/new.txt":
		t.Errorf(`files[0].Path = %q, want "a/new.txt"`, files[0].Path)
	case files[1].Path != "a/stays.txt":
		t.Errorf(`files[1].Path = %q, want "a/stays.txt"`, files[1].Path)
	case len(kept) != 1:
		t.Errorf("len(kept) = %d, want 1: %+v", len(kept), kept)
	}
	if _, err := os.Stat(filepath.Join(dir, "a", "b")); err == nil {
		t.Error("an empty folder stays")
	}
}
