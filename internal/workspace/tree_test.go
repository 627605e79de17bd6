package workspace_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/workspace"
)

// open gives a tree over a folder of its own, beside a secret that no path
// may reach.
func open(t *testing.T, disk int64) (*workspace.Tree, string) {
	t.Helper()
	parent := t.TempDir()
	if err := os.WriteFile(filepath.Join(parent, "secret"), []byte("outside"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(parent, "workspace")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	tree, err := workspace.Open(dir, workspace.Options{DiskBytes: disk})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	return tree, dir
}

// put writes a file as a guest would: past the Tree.
func put(t *testing.T, dir, name, text string) {
	t.Helper()
	p := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func wantKind(t *testing.T, err error, want fault.Kind) {
	t.Helper()
	if got := fault.KindOf(err); got != want {
		t.Errorf("got the fault %q (%v), want %q", got, err, want)
	}
}

func TestCleanAcceptsWhatModelsWriteAndRefusesTheRest(t *testing.T) {
	for _, c := range []struct {
		name, path, want string
		kind             fault.Kind
	}{
		{"a relative path", "a/b.txt", "a/b.txt", ""},
		{"the guest's absolute path", "/workspace/a.txt", "a.txt", ""},
		{"the alias", "/app/a.txt", "a.txt", ""},
		{"dots and double slashes", "./a//b/./c", "a/b/c", ""},
		{"spaces and other scripts", "año 1/δ.txt", "año 1/δ.txt", ""},
		{"a name that only begins like a device", "console.log", "console.log", ""},
		{"nothing", "", "", fault.Invalid},
		{"the folder itself", "/workspace", "", fault.Invalid},
		{"a dot", ".", "", fault.Invalid},
		{"another absolute path", "/etc/passwd", "", fault.Denied},
		{"a longer name than the folder's", "/workspaces/a", "", fault.Denied},
		{"the parent", "../a", "", fault.Denied},
		{"the parent in the middle", "a/../b", "", fault.Denied},
		{"the parent after the folder", "/workspace/../etc", "", fault.Denied},
		{"a NUL", "a\x00b", "", fault.Invalid},
		{"bytes that are no UTF-8", "a\xff", "", fault.Invalid},
		{"backslashes", `..\..\a`, "", fault.Invalid},
		{"a drive", "C:/a", "", fault.Denied},
		{"a drive without a slash", "c:a", "", fault.Denied},
		{"a device", "NUL", "", fault.Invalid},
		{"a device with an extension in a folder", "x/com1.txt", "", fault.Invalid},
		{"a name that is too long", strings.Repeat("x", 256), "", fault.Invalid},
		{"a path that is too long", strings.Repeat("x/", 2049), "", fault.Invalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := workspace.Clean(c.path)
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			wantKind(t, err, c.kind)
		})
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"a/b", "/workspace/x", "/app/../..", `\\host\c$`, "a:b", "nul .txt", "//"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		p, err := workspace.Clean(name)
		if err != nil {
			return
		}
		if !filepath.IsLocal(filepath.FromSlash(p)) {
			t.Errorf("%q became %q, which is not local", name, p)
		}
		if again, err := workspace.Clean(p); err != nil {
			t.Errorf("%q: got error %v, want none", name, err)
		} else if again != p {
			t.Errorf("%q: got %v, want %v", name, again, p)
		}
	})
}

func TestListGivesTheFilesThatAGlobChooses(t *testing.T) {
	tree, dir := open(t, 1<<20)
	for _, p := range []string{"a.py", "b.txt", "data/c.csv", "data/deep/d.py", "data/deep/e.json"} {
		put(t, dir, p, "x")
	}
	for _, c := range []struct{ name, glob, want string }{
		{"no glob chooses all", "", "a.py b.txt data/c.csv data/deep/d.py data/deep/e.json"},
		{"the folder's own name chooses all", "/workspace", "a.py b.txt data/c.csv data/deep/d.py data/deep/e.json"},
		{"a name's pattern holds in every folder", "*.py", "a.py data/deep/d.py"},
		{"a path's pattern holds from the top", "data/*", "data/c.csv"},
		{"two stars stand for any folders", "data/**/*.py", "data/deep/d.py"},
		{"a folder stands for what is in it", "data/deep", "data/deep/d.py data/deep/e.json"},
		{"a name without a pattern is found anywhere", "d.py", "data/deep/d.py"},
		{"alternatives", "*.{csv,json}", "data/c.csv data/deep/e.json"},
		{"the guest's absolute path", "/app/data/*.csv", "data/c.csv"},
		{"nothing that matches", "*.go", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			files, more, err := tree.List(t.Context(), c.glob)
			if err != nil {
				t.Fatal(err)
			}
			if more {
				t.Fatal("more: got true, want false")
			}
			var got []string
			for _, f := range files {
				got = append(got, f.Path)
			}
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("got %q, want %q", s, c.want)
			}
		})
	}
	for _, bad := range []string{"[", "/etc/*", strings.Repeat("{a,b}", 9), strings.Repeat("*", 300)} {
		if _, _, err := tree.List(t.Context(), bad); fault.KindOf(err) != fault.Invalid && fault.KindOf(err) != fault.Denied {
			t.Errorf("the glob %.20q gave %v", bad, err)
		}
	}
}

func TestListIsBounded(t *testing.T) {
	tree, dir := open(t, 1<<30)
	for k := range workspace.MaxFiles + 1 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%05d", k)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files, more, err := tree.List(t.Context(), "")
	switch {
	case err != nil:
		t.Error(err)
	case !more:
		t.Error("more = false, want true")
	case len(files) != workspace.MaxFiles:
		t.Errorf("len(files) = %d, want %v", len(files), workspace.MaxFiles)
	}
	before, err := tree.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, "f00001", "longer")
	if err := os.Remove(filepath.Join(dir, "f00000")); err != nil {
		t.Fatal(err)
	}
	after, err := tree.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	want := []workspace.Change{{Path: "f00001", Change: workspace.Modified, Size: 6}}
	if got := before.Changes(after); !reflect.DeepEqual(got, want) {
		t.Errorf("got the changes %v, want %v", got, want)
	}
}

func TestNothingLeavesTheFolderThroughLinks(t *testing.T) {
	tree, dir := open(t, 1<<20)
	links := map[string]string{"leaf": "../secret", "dir": "..", "absolute": filepath.Join(filepath.Dir(dir), "secret"), "dangling": "../new", "loop": "loop"}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Skip("links cannot be made here:", err)
		}
	}
	for _, p := range []string{"leaf", "dir/secret", "absolute", "loop"} {
		t.Run(p+" is not read, edited or told about", func(t *testing.T) {
			_, err := tree.Read(p, workspace.Range{})
			wantKind(t, err, fault.Denied)
			_, err = tree.Stat(p)
			wantKind(t, err, fault.Denied)
			_, err = tree.Edit(p, "outside", "x", false)
			wantKind(t, err, fault.Denied)
		})
	}
	t.Run("a link is not listed or followed", func(t *testing.T) {
		files, _, err := tree.List(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		if len(files) != 0 {
			t.Errorf("files: got %v, want none", files)
		}
	})
	t.Run("writing through a linked folder is denied", func(t *testing.T) {
		_, err := tree.Write("dir/planted", []byte("x"))
		wantKind(t, err, fault.Denied)
		if err := tree.RemoveFile("dir/secret", nil); fault.KindOf(err) != fault.Denied {
			t.Error(err)
		}
	})
	t.Run("writing to a link replaces the link", func(t *testing.T) {
		for _, p := range []string{"leaf", "dangling", "absolute"} {
			if _, err := tree.Write(p, []byte("mine")); err != nil {
				t.Error(err)
			}
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(dir), "new")); err == nil {
			t.Error("a dangling link was written through")
		}
	})
	t.Run("removing links leaves their targets", func(t *testing.T) {
		for _, p := range []string{"dir", "leaf"} {
			if err := tree.RemoveFile(p, nil); err != nil {
				t.Error(err)
			}
		}
	})
	if got, err := os.ReadFile(filepath.Join(filepath.Dir(dir), "secret")); err != nil {
		t.Errorf("the secret: got error %v, want none", err)
	} else if string(got) != "outside" {
		t.Errorf("the secret: got %q, want %q", string(got), "outside")
	}
}

func TestALinkSwappedDuringUseLeadsNowhere(t *testing.T) {
	tree, dir := open(t, 1<<30)
	put(t, dir, "real/secret", "inside")
	link := filepath.Join(dir, "d")
	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for k := 0; ; k++ {
			select {
			case <-stop:
				return
			default:
			}
			os.Remove(link)
			os.Symlink([]string{"real", ".."}[k%2], link)
		}
	})
	for range 2000 {
		c, err := tree.Read("d/secret", workspace.Range{})
		if err == nil && string(c.Data) != "inside" {
			t.Errorf("read %q", c.Data)
			break
		}
		if _, _, err := tree.List(t.Context(), "**/secret"); err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	swapping.Wait()
}

func TestSpecialFilesAreNeitherOpenedNorListed(t *testing.T) {
	tree, dir := open(t, 1<<20)
	if err := mkfifo(filepath.Join(dir, "pipe")); err != nil {
		t.Skip("FIFOs cannot be made here:", err)
	}
	_, err := tree.Read("pipe", workspace.Range{})
	wantKind(t, err, fault.Denied)
	_, err = tree.Edit("pipe", "a", "b", false)
	wantKind(t, err, fault.Denied)
	if files, _, err := tree.List(t.Context(), ""); err != nil {
		t.Error(err)
	} else if len(files) != 0 {
		t.Errorf(`tree.List(t.Context(), ""): got %v, want none`, files)
	}
}

func TestAClosedTreeSaysThatItIsGone(t *testing.T) {
	tree, _ := open(t, 1<<20)
	tree.Close()
	_, err := tree.Write("a", nil)
	wantKind(t, err, fault.NotFound)
	_, err = tree.Stat("a")
	wantKind(t, err, fault.NotFound)
	_, _, err = tree.List(t.Context(), "")
	wantKind(t, err, fault.NotFound)
}

func TestANewFileBelongsToTheOwnerThatWasGiven(t *testing.T) {
	if runtime.GOOS == "windows" || os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	_, dir := open(t, 0)
	tree, err := workspace.Open(dir, workspace.Options{DiskBytes: 1 << 20, UID: 4321, GID: 1234})
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	if _, err := tree.Write("d/e/f", []byte("x")); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"d", "d/e", "d/e/f"} {
		info, err := os.Stat(filepath.Join(dir, p))
		if err != nil {
			t.Fatal(err)
		}
		if uid, gid := ownerOf(info); uid != 4321 {
			t.Errorf("%s belongs: uid: got %v, want 4321", p, uid)
		} else if gid != 1234 {
			t.Errorf("%s belongs: gid: got %v, want 1234", p, gid)
		}
	}
}

func TestChangesTellWhatBecameOfEachFile(t *testing.T) {
	tree, dir := open(t, 1<<20)
	for _, p := range []string{"same", "touched", "replaced", "removed", "d/moved"} {
		put(t, dir, p, "12345")
	}
	before, err := tree.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, "touched", "longer than it was")
	if _, err := tree.Write("replaced", []byte("54321")); err != nil {
		t.Fatal(err)
	}
	put(t, dir, "new/one", "")
	err = errors.Join(os.Remove(filepath.Join(dir, "removed")), os.Rename(filepath.Join(dir, "d/moved"), filepath.Join(dir, "d/here")))
	if err != nil {
		t.Fatal(err)
	}
	after, err := tree.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	want := []workspace.Change{
		{Path: "d/here", Change: "added", Size: 5}, {Path: "d/moved", Change: "removed"}, {Path: "new/one", Change: "added"},
		{Path: "removed", Change: "removed"}, {Path: "replaced", Change: "modified", Size: 5}, {Path: "touched", Change: "modified", Size: 18},
	}
	if got := before.Changes(after); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	if got := after.Changes(after); got != nil {
		t.Errorf("nothing changed, but %v", got)
	}
}
