package suite

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Revisions are those of the protocol whose requirements are checked: the last
// with sessions, and the first without.
var Revisions = []string{"2025-11-25", "2026-07-28"}

// check is one thing that the suite looked at.
type check struct {
	ID      string `json:"id"`
	Status  string `json:"status"`
	Message string `json:"errorMessage"`
}

func (c check) failed() bool { return c.Status == "FAILURE" || c.Status == "WARNING" }

// Conformance runs the official suite: all that a revision requires of a server,
// and what it reports without requiring it. A check may fail only if
// expected/REVISION.yml names its scenario, or scenario:check; and everything
// that is named there has to fail.
func (p Packages) Conformance(t *testing.T, url, revision, expected string) {
	t.Helper()
	expected = filepath.Join(expected, revision+".yml")
	dir := t.TempDir()
	out, err := p.Program(t.Context(), "conformance", "server", "--url", url, "--requirements", revision, "--expected-failures", expected, "-o", dir).CombinedOutput()
	if _, verdict, found := strings.Cut(string(out), "=== SUMMARY ==="); found {
		out = []byte(verdict)
	}
	if t.Logf("%s", out); err != nil {
		t.Errorf("the suite ended with %v", err)
	}
	results := readResults(t, dir)
	for _, scenario := range p.required(t, revision) {
		if len(results[scenario]) == 0 {
			t.Errorf("%s did not run", scenario)
		}
	}
	for _, wrong := range mistakes(results, entries(t, expected)) {
		t.Error(wrong)
	}
}

// readResults gives the checks by their scenario.
func readResults(t *testing.T, dir string) map[string][]check {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "checks.json"))
	if err != nil {
		t.Fatal(err)
	}
	results := map[string][]check{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var checks []check
		if err := json.Unmarshal(data, &checks); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		scenario := resultFolder.FindStringSubmatch(filepath.Base(filepath.Dir(file)))
		if scenario == nil {
			t.Fatalf("the folder %s has no scenario's name", filepath.Dir(file))
		}
		results[scenario[1]] = append(results[scenario[1]], checks...)
	}
	return results
}

// resultFolder is a scenario and when it ran.
var resultFolder = regexp.MustCompile(`^server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z$`)

// mistakes holds results against what is expected to fail.
func mistakes(results map[string][]check, expected []string) (wrong []string) {
	seen := map[string]bool{}
	for scenario, checks := range results {
		for _, c := range checks {
			one := scenario + ":" + c.ID
			switch {
			case !c.failed():
			case slices.Contains(expected, one):
				seen[one] = true
			case slices.Contains(expected, scenario):
				seen[scenario] = true
			default:
				wrong = append(wrong, fmt.Sprintf("%s: %s: %s", one, c.Status, c.Message))
			}
		}
	}
	for _, e := range expected {
		if !seen[e] {
			wrong = append(wrong, e+" passes, or did not run: it is not to be expected to fail any more")
		}
	}
	return wrong
}

// required are the scenarios that a revision requires of a server.
func (p Packages) required(t *testing.T, revision string) []string {
	t.Helper()
	all := entries(t, filepath.Join(p.Dir, "node_modules", "@modelcontextprotocol", "conformance", "requirements", revision+".yaml"))
	if len(all) < 20 {
		t.Fatalf("the suite requires %d scenarios only: %v", len(all), all)
	}
	return all
}

// entries reads the list below "server" of a YAML file that is as plain as
// theirs.
func entries(t *testing.T, file string) (all []string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	below := false
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(line, "#")
		item, isItem := strings.CutPrefix(strings.TrimSpace(line), "- ")
		switch {
		case strings.TrimSpace(line) == "":
		case isItem && below:
			all = append(all, item)
		case !isItem:
			below = strings.HasPrefix(line, "server:")
		}
	}
	return all
}
