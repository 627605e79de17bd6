package suite

import "testing"

// Scenario runs one scenario of the official suite that no revision requires: none of its checks may fail, or
// find nothing to look at.
func (p Packages) Scenario(t *testing.T, url, scenario, revision string) {
	t.Helper()
	dir := t.TempDir()
	out, err := p.Program(t.Context(), "conformance", "server", "--url", url, "--scenario", scenario, "--spec-version", revision, "--force", "-o", dir).CombinedOutput()
	if err != nil {
		t.Errorf("the suite ended with %v:\n%s", err, out)
	}
	results := readResults(t, dir)
	if len(results[scenario]) == 0 {
		t.Fatalf("%s did not run:\n%s", scenario, out)
	}
	for _, c := range results[scenario] {
		if c.Status != "SUCCESS" && c.Status != "INFO" {
			t.Errorf("%s: %s: %s", c.ID, c.Status, c.Message)
		}
	}
	t.Logf("%d checks", len(results[scenario]))
}
