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

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/linkfarm"
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
			t.Errorf("%s has the mode %v, want %v", path, info.Mode().Perm(), want)
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
// there is shared with no other owner.
func TestSessionsShareFilesAndEachHasItsFolder(t *testing.T) {
	c, state := serve(t), t.TempDir()
	b := open(t, Config{Servers: []Definition{c.definition("party")}, Dir: state})
	root := t.TempDir()
	one, other := filepath.Join(root, "one"), filepath.Join(root, "other")
	mustProvide(t, b, alice, one)
	mustProvide(t, b, Session{"alice", "s-2"}, other)
	stranger := filepath.Join(root, "stranger")
	mustProvide(t, b, Session{"bob", "s-2"}, stranger)
	want := contents(t, one)
	if len(want) < 10 {
		t.Errorf("a session has %d files, want 10 or more", len(want))
	}
	wantContents(t, "the owner's other session", other, want)
	if mine, its := filepath.Join(one, "party", "echo.py"), filepath.Join(other, "party", "echo.py"); !sameFile(t, mine, its) {
		t.Error("the files of one owner's sessions are not shared")
	}
	wantContents(t, "another owner's session", stranger, want)
	for path := range want {
		if sameFile(t, filepath.Join(one, filepath.FromSlash(path)), filepath.Join(stranger, filepath.FromSlash(path))) {
			t.Errorf("%s is one file of two owners", path)
		}
	}
	// One session's end, and the tree's, take nothing from the other.
	if err := errors.Join(os.RemoveAll(one), os.RemoveAll(filepath.Join(state, "trees"))); err != nil {
		t.Fatal(err)
	}
	wantContents(t, "the other session, after the first one's end", other, want)
	third := filepath.Join(root, "third")
	mustProvide(t, b, Session{"alice", "s-3"}, third)
	wantContents(t, "a third session, after the trees are gone", third, want)
}

// wantContents compares the files beneath a folder.
func wantContents(t *testing.T, what, dir string, want map[string]string) {
	t.Helper()
	got := contents(t, dir)
	for path, text := range want {
		if other, there := got[path]; !there {
			t.Errorf("%s: %s is missing", what, path)
		} else if other != text {
			t.Errorf("%s: %s is %q, want %q", what, path, other, text)
		}
	}
	for path := range got {
		if _, wanted := want[path]; !wanted {
			t.Errorf("%s: %s is there, want no such file", what, path)
		}
	}
}

func sameFile(t *testing.T, a, b string) bool {
	t.Helper()
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	return os.SameFile(infoA, infoB)
}

func TestWithoutLinksFilesAreCopied(t *testing.T) {
	c, state := serve(t), t.TempDir()
	b := open(t, Config{Servers: []Definition{c.definition("party")}, Dir: state})
	b.stubs = linkfarm.NewStore(filepath.Join(state, "trees"), func(string, string) error { return errors.ErrUnsupported })
	dir := filepath.Join(t.TempDir(), "servers")
	mustProvide(t, b, alice, dir)
	got := contents(t, dir)
	if len(got) < 10 {
		t.Errorf("there are %d files, want 10 or more", len(got))
	}
	if text := got["party/echo.py"]; !strings.Contains(text, "def echo") {
		t.Errorf("party/echo.py is %q, want a function echo", text)
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
			return errors.Join(os.Remove(filepath.Join(dir, "party", linkfarm.Stamp)), os.WriteFile(filepath.Join(dir, "x"), nil, 0o600))
		},
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		mustProvide(t, b, alice, dir)
		wantContents(t, name, dir, whole)
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
	if err != nil {
		t.Fatalf("there are the trees: got error %v, want none", err)
	}
	if len(trees) != 1 {
		t.Fatalf("there are the trees: len(trees) = %d, want 1: %q", len(trees), trees)
	}
	for name, damage := range map[string]func() error{
		"a file is empty": func() error {
			path := filepath.Join(trees[0], "echo.py")
			return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o644)) // as after a loss of power
		},
		"a file is missing":    func() error { return os.Remove(filepath.Join(trees[0], "index.md")) },
		"the stamp is missing": func() error { return os.Remove(filepath.Join(trees[0], linkfarm.Stamp)) },
		"the folder is empty":  func() error { return errors.Join(os.RemoveAll(trees[0]), os.Mkdir(trees[0], 0o755)) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		next := open(t, config)
		fresh := filepath.Join(t.TempDir(), "servers")
		mustProvide(t, next, alice, fresh)
		wantContents(t, name, fresh, whole)
	}
}

// wantWhole compares a server's folder with its stamp, which has a line for each file.
func wantWhole(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, linkfarm.Stamp))
	if err != nil {
		t.Error(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) < 10 {
		t.Errorf("the stamp of %s has %d lines, want 10 or more", dir, len(lines))
	}
	for _, line := range lines[1:] {
		size, path, _ := strings.Cut(line, " ")
		info, err := os.Stat(filepath.Join(dir, filepath.FromSlash(path)))
		if err != nil {
			t.Error(err)
		} else if got := fmt.Sprint(info.Size()); got != size {
			t.Errorf("%s has %s bytes, want %s", path, got, size)
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
					wantWhole(t, filepath.Join(dir, server))
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
