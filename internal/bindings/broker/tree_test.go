package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/bindings/stub"
)

// contents gives all files beneath a folder, and checks their modes.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o644)
		if e.IsDir() {
			want = 0o755
		}
		if runtime.GOOS != "windows" && info.Mode().Perm() != want {
			t.Errorf("%s has the mode %v", path, info.Mode())
		}
		if e.IsDir() {
			return nil
		}
		text, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		all[filepath.ToSlash(rel)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (c *counterparty) grow(name string) {
	c.add(&mcp.Tool{Name: name}, `{"type":"object"}`, func(json.RawMessage) (*mcp.CallToolResult, error) { return text("done"), nil })
}

func mustProvide(t *testing.T, b *Broker, s Session, dir string) {
	t.Helper()
	if err := b.Provide(t.Context(), s, dir); err != nil {
		t.Fatal(err)
	}
}

// Attack 28: a worker that was taken over may write into its owner's folder, so what lies
// there is nobody else's.
func TestSessionsShareFilesAndEachHasItsFolder(t *testing.T) {
	c := serve(t)
	b := open(t, Config{Servers: []Definition{c.definition("party")}, Dir: t.TempDir()})
	root := t.TempDir()
	one, other := filepath.Join(root, "one"), filepath.Join(root, "other")
	mustProvide(t, b, alice, one)
	mustProvide(t, b, Session{"alice", "s-2"}, other)
	stranger := filepath.Join(root, "stranger")
	mustProvide(t, b, Session{"bob", "s-2"}, stranger)
	first, second := contents(t, one), contents(t, other)
	if len(first) < 10 || fmt.Sprint(first) != fmt.Sprint(second) {
		t.Errorf("they have %d and %d files", len(first), len(second))
	}
	a, err := os.Stat(filepath.Join(one, "party", "echo.py"))
	if err != nil {
		t.Fatal(err)
	}
	if o, err := os.Stat(filepath.Join(other, "party", "echo.py")); err != nil || !os.SameFile(a, o) {
		t.Errorf("the files are not shared: %v", err)
	}
	for path, data := range contents(t, stranger) {
		hers, err := os.Stat(filepath.Join(one, filepath.FromSlash(path)))
		his, otherErr := os.Stat(filepath.Join(stranger, filepath.FromSlash(path)))
		if err != nil || otherErr != nil || os.SameFile(hers, his) || data != first[path] {
			t.Errorf("%s is one file of two owners, or not the same text: %v, %v", path, err, otherErr)
		}
	}
	if got := contents(t, stranger); len(got) != len(first) {
		t.Errorf("another owner has %d files, and not %d", len(got), len(first))
	}
	// One session's end, and the tree's, take nothing from the other.
	if err := errors.Join(os.RemoveAll(one), os.RemoveAll(b.stubs.dir)); err != nil {
		t.Fatal(err)
	}
	if got := contents(t, other); len(got) != len(second) {
		t.Errorf("it has %d files now", len(got))
	}
	mustProvide(t, b, Session{"alice", "s-3"}, filepath.Join(root, "third"))
	if got := contents(t, filepath.Join(root, "third")); len(got) != len(second) {
		t.Errorf("a third one has %d files", len(got))
	}
}

func TestWithoutLinksFilesAreCopied(t *testing.T) {
	c := serve(t)
	b := open(t, Config{Servers: []Definition{c.definition("party")}, Dir: t.TempDir()})
	b.stubs.link = func(string, string) error { return errors.ErrUnsupported }
	dir := filepath.Join(t.TempDir(), "servers")
	mustProvide(t, b, alice, dir)
	if got := contents(t, dir); len(got) < 10 || !strings.Contains(got["party/echo.py"], "def echo") {
		t.Errorf("there are %d files", len(got))
	}
}

func TestAnUnchangedFolderIsLeftAloneAndADamagedOneMadeAgain(t *testing.T) {
	c := serve(t)
	b := open(t, Config{Servers: []Definition{c.definition("party")}, Dir: t.TempDir()})
	dir := filepath.Join(t.TempDir(), "servers")
	mustProvide(t, b, alice, dir)
	whole := contents(t, dir)
	for name, damage := range map[string]func() error{
		"the folder was removed": func() error { return os.RemoveAll(dir) },
		"a server's folder was":  func() error { return os.RemoveAll(filepath.Join(dir, "party")) },
		"something was left by who was killed": func() error {
			return errors.Join(os.Mkdir(filepath.Join(dir, ".new-party"), 0o755), os.WriteFile(filepath.Join(dir, ".new-party", "x"), nil, 0o600),
				os.Rename(filepath.Join(dir, "party"), filepath.Join(dir, ".old-party")))
		},
		"its stamp is gone": func() error {
			return errors.Join(os.Remove(filepath.Join(dir, "party", stamp)), os.WriteFile(filepath.Join(dir, "x"), nil, 0o600))
		},
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		mustProvide(t, b, alice, dir)
		if got := contents(t, dir); fmt.Sprint(got) != fmt.Sprint(whole) {
			t.Errorf("%s: there are %d files, want %d", name, len(got), len(whole))
		}
	}
}

func TestAHalfTreeIsNeverGiven(t *testing.T) {
	c, state := serve(t), t.TempDir()
	config := Config{Servers: []Definition{c.definition("party")}, Dir: state}
	b := open(t, config)
	dir := filepath.Join(t.TempDir(), "servers")
	mustProvide(t, b, alice, dir)
	whole := contents(t, dir)
	trees, err := filepath.Glob(filepath.Join(state, "trees", "*"))
	if err != nil || len(trees) != 1 {
		t.Fatalf("there are the trees %q, %v", trees, err)
	}
	for name, damage := range map[string]func() error{
		"a file is empty": func() error {
			path := filepath.Join(trees[0], "echo.py")
			return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o644)) // as after a loss of power
		},
		"a file is missing":      func() error { return os.Remove(filepath.Join(trees[0], "index.md")) },
		"the stamp is empty":     func() error { return os.Remove(filepath.Join(trees[0], stamp)) },
		"the folder is a folder": func() error { return errors.Join(os.RemoveAll(trees[0]), os.Mkdir(trees[0], 0o755)) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		next := open(t, config)
		fresh := filepath.Join(t.TempDir(), "servers")
		mustProvide(t, next, alice, fresh)
		if got := contents(t, fresh); fmt.Sprint(got) != fmt.Sprint(whole) {
			t.Errorf("%s: there are %d files, want %d", name, len(got), len(whole))
		}
	}
}

func TestManySessionsAreProvidedAtOnceWhileToolsChange(t *testing.T) {
	c := serve(t)
	b := open(t, Config{Servers: []Definition{c.definition("party"), c.definition("other")}, Dir: t.TempDir()})
	root := t.TempDir()
	var sessions sync.WaitGroup
	for i := range 16 {
		sessions.Go(func() {
			s, dir := Session{"o", fmt.Sprint(i)}, filepath.Join(root, fmt.Sprint(i))
			for n := range 5 {
				if i == 0 {
					c.grow(fmt.Sprint("tool-", n))
				}
				if err := b.Provide(t.Context(), s, dir); err != nil {
					t.Error(err)
				}
				for _, server := range []string{"party", "other"} {
					if _, err := verifyTree(filepath.Join(dir, server), madeOf(filepath.Join(dir, server))); err != nil {
						t.Errorf("%s is not whole: %v", server, err)
					}
				}
			}
		})
	}
	sessions.Wait()
	for i := range 16 {
		s, dir := Session{"o", fmt.Sprint(i)}, filepath.Join(root, fmt.Sprint(i))
		eventually(t, "the last tool's file", func() bool {
			mustProvide(t, b, s, dir)
			_, err := os.Stat(filepath.Join(dir, "party", "tool_4.py"))
			return err == nil
		})
	}
}

func TestOldTreesAreRemoved(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	putTree := func(name string, age time.Duration, size int) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.Mkdir(path, 0o755), put(path, stub.File{Path: stamp, Data: manifest(name, map[string]int64{"x": int64(size)})}), os.Chtimes(path, now.Add(-age), now.Add(-age))); err != nil {
			t.Fatal(err)
		}
	}
	putTree("young", time.Hour, 1)
	putTree("large", 2*time.Hour, maxForest)
	putTree("old", treeAge+time.Hour, 1)
	putTree(".new-x", time.Minute, 1)
	putTree(".old-y", 2*time.Hour, 1)
	var gone []string
	for _, path := range unusedTrees(dir, now) {
		gone = append(gone, filepath.Base(path))
	}
	if got := fmt.Sprint(gone); got != "[.old-y old large]" {
		t.Errorf("it removes %s", got)
	}
}
