package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	named   = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`)
	defined = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Za-z0-9_]+)\(`)
)

// TestWhatSecurityNamesIsThere finds each test that SECURITY.md names.
func TestWhatSecurityNamesIsThere(t *testing.T) {
	text, err := os.ReadFile("../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	err = filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") && !strings.Contains(path, "sandboxtest/") {
			return err
		}
		code, err := os.ReadFile(path)
		if d.IsDir() {
			return nil
		}
		for _, m := range defined.FindAllSubmatch(code, -1) {
			there[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	names := named.FindAllString(string(text), -1)
	for _, name := range names {
		if !there[name] {
			t.Errorf("there is no %s", name)
		}
	}
	if len(names) < 50 {
		t.Errorf("only %d tests are named", len(names))
	}
}
