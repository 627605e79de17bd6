package agent

import (
	"strings"
	"testing"
)

func TestWhatAnInterpreterSaysAsItFailsIsOneLine(t *testing.T) {
	for printed, want := range map[string]string{
		"": "", "not found\n": "not found",
		"Traceback (most recent call last):\n  File \"<string>\", line 1\nModuleNotFoundError: No module named 'json'\n": "ModuleNotFoundError: No module named 'json'",
		"node:internal:1\n\nError: Cannot find module 'fs'\n    at x\n\nNode.js v20.1.0\n":                               "Error: Cannot find module 'fs'",
		"a\xff": "a\uFFFD", strings.Repeat("ä", 600): strings.Repeat("ä", 512),
	} {
		if got := lastErrorLine(printed); got != want {
			t.Errorf("%q is told as %q", printed, got)
		}
	}
}
