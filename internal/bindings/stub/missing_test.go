package stub

import (
	"strings"
	"testing"
)

func TestWhyAServerIsMissingIsTextAndNothingElse(t *testing.T) {
	hostile := "\")\nimport os #\u202e\x00${x} `ls` */ \"; evil(); //"
	for _, f := range Missing("x", hostile+strings.Repeat("long ", 1000)) {
		text := string(f.Data)
		begin := map[string]string{"index.js": `export * from "`, "__init__.py": `raise ImportError("`}[f.Path]
		switch code := f.Path != "index.md"; {
		case strings.ContainsAny(text, "\u202e\x00"):
			t.Errorf("%s is %q, want visible characters only", f.Path, text)
		case len(text) > 2*maxWhy:
			t.Errorf("%s has %d bytes, want at most %d: %q", f.Path, len(text), 2*maxWhy, text)
		case code && strings.Count(text, "\n") != 1:
			t.Errorf("%s has %d lines, want 1: %q", f.Path, strings.Count(text, "\n"), text)
		case !strings.HasPrefix(text, begin):
			t.Errorf("%s is %q, want it to begin with %q", f.Path, text, begin)
		case code && strings.Contains(strings.ReplaceAll(text, `\"`, ""), "\"; evil"):
			t.Errorf("%s lets what it says out of its literal: %q", f.Path, text)
		}
	}
}
