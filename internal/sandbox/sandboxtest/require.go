package sandboxtest

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// RequireEnv names the variable that lists, with commas, the features whose
// absence fails a test instead of skipping it. CI sets it.
const RequireEnv = "PADDOCK_TEST_REQUIRE"

// Require skips a test that needs a feature which is not available here, and
// says why; it fails the test when RequireEnv names the feature.
func Require(t testing.TB, feature string, available bool, reason string) {
	t.Helper()
	if available {
		return
	}
	if required(os.Getenv(RequireEnv), feature) {
		t.Fatalf("%s is required by %s and not available: %s", feature, RequireEnv, reason)
	}
	t.Skipf("%s is not available: %s", feature, reason)
}

func required(list, feature string) bool {
	return slices.ContainsFunc(strings.Split(list, ","), func(s string) bool { return strings.TrimSpace(s) == feature })
}
