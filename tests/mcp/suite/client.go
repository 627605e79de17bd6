package suite

import (
	"path/filepath"
	"testing"
)

// ClientConformance runs the official suite on a client: a program that gets a
// server's URL as its last argument, and the scenario in its environment. What may
// fail is listed in expected/REVISION.yml, and has to.
func (p Packages) ClientConformance(t *testing.T, command, revision, expected string) {
	t.Helper()
	expected = filepath.Join(expected, revision+".yml")
	out, err := p.Program(t.Context(), "conformance", "client", "--command", command, "--requirements", revision, "--expected-failures", expected, "-o", t.TempDir()).CombinedOutput()
	if t.Logf("%s", out); err != nil {
		t.Errorf("the suite ended with %v", err)
	}
}
