package workspace

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Whoever is told of changes has been told of the last one when a method returns.
func TestChangedIsToldOfTheLastChangeBeforeAMethodReturns(t *testing.T) {
	var g *testTree
	look := func() string {
		var all strings.Builder
		err := filepath.WalkDir(g.dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := e.Info()
			if err == nil {
				fmt.Fprintln(&all, path, info.Mode(), info.ModTime().UnixNano())
			}
			if err == nil && info.Mode().IsRegular() {
				var text []byte
				text, err = os.ReadFile(path)
				fmt.Fprintf(&all, "%q\n", text)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return all.String()
	}
	seen := ""
	g = newTestTree(t, Options{DiskBytes: 1 << 20, Changed: func() { seen = look() }})
	g.plant("kept/file", "text")
	g.plant("gone", "text")
	before, _ := g.capture(nil)
	stage := func(commit bool) error {
		s, err := g.Stage()
		if err != nil {
			return err
		}
		defer s.Close()
		if _, err := s.Add("s/1", strings.NewReader("staged"), 0); err != nil || !commit {
			return err
		}
		if err := s.Remove("gone"); err != nil {
			return err
		}
		return s.Commit(nil)
	}
	for _, c := range []struct {
		name string
		do   func() error
	}{
		{"a write", func() error { _, err := g.Write("a/b", []byte("x")); return err }},
		{"a put", func() error { _, err := g.Put("a/c", strings.NewReader("x"), 1); return err }},
		{"a put that ends early", func() error { _, err := g.Put("z/c", strings.NewReader("x"), 2); return deny(err) }},
		{"an edit", func() error { _, err := g.Edit("a/b", "x", "y", false); return err }},
		{"files that are staged and given up", func() error { return stage(false) }},
		{"files that are staged", func() error { return stage(true) }},
		{"a file that is received", func() error { _, _, err := g.Receive("r", strings.NewReader("x"), -1, nil); return err }},
		{"a file that is too short", func() error { _, _, err := g.Receive("r", strings.NewReader("x"), 2, nil); return deny(err) }},
		{"the removal of a file", func() error { return g.RemoveFile("r", nil) }},
		{"going back", func() error { g.apply(before, nil); return nil }},
		{"a sweep", func() error { g.plant(tempPrefix+"left", ""); return g.Sweep() }},
		{"other files", func() error { return g.empty() }},
		{"another folder", func() error {
			by := filepath.Join(filepath.Dir(g.dir), "by")
			if err := os.Mkdir(by, 0o700); err != nil {
				return err
			}
			return g.Replace(by)
		}},
	} {
		if err := c.do(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if now := look(); now != seen && c.name != "other files" {
			t.Errorf("%s: told was\n%s\nand there is\n%s", c.name, seen, now)
		}
	}
}
