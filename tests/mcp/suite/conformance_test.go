package suite

import (
	"slices"
	"testing"
)

// The comparison is what a broken server or an outdated list would slip through.
func TestResultsAreHeldAgainstWhatIsExpectedToFail(t *testing.T) {
	results := map[string][]check{
		"good": {{ID: "a", Status: "SUCCESS"}, {ID: "b", Status: "SKIPPED"}},
		"bad":  {{ID: "a", Status: "SUCCESS"}, {ID: "b", Status: "WARNING"}},
	}
	for name, c := range map[string]struct {
		expected []string
		fails    bool
	}{
		"a check that nobody expected": {nil, true},
		"its scenario":                 {[]string{"bad"}, false},
		"the check alone":              {[]string{"bad:b"}, false},
		"another check of it":          {[]string{"bad:a"}, true},
		"a scenario that passes":       {[]string{"bad", "good"}, true},
		"a scenario that did not run":  {[]string{"bad", "other"}, true},
		"a check and the whole of it":  {[]string{"bad", "bad:b"}, true},
	} {
		if wrong := mistakes(results, c.expected); (len(wrong) > 0) != c.fails {
			t.Errorf("%s: %q", name, slices.Sorted(slices.Values(wrong)))
		}
	}
}
