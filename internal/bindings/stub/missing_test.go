package stub

import (
	"strings"
	"testing"
)

func TestWhyAServerIsMissingIsTextAndNothingElse(t *testing.T) {
	hostile := "\")\nimport os #\u202e\x00${x} `ls` */ \"; evil(); //"
	for _, f := range Missing("x", hostile+strings.Repeat("long ", 1000)) {
		if text := string(f.Data); f.Path != "index.md" && strings.Count(text, "\n") != 1 || strings.ContainsAny(text, "\u202e\x00") || len(text) > 2*maxWhy {
			t.Errorf("%s: %q", f.Path, text)
		} else if f.Path == "index.js" && !strings.HasPrefix(text, "export * from \"") || f.Path == "__init__.py" && !strings.HasPrefix(text, "raise ImportError(\"") {
			t.Errorf("%s: %q", f.Path, text)
		} else if f.Path != "index.md" && strings.Contains(strings.ReplaceAll(text, `\"`, ""), "\"; evil") {
			t.Errorf("%s lets what it says out of its literal: %q", f.Path, text)
		}
	}
}
