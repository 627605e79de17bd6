package sandboxtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// BuildCache is where make keeps what is slow to build: $PADDOCK_CACHE, or a
// folder of the user's cache.
func BuildCache(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("PADDOCK_CACHE"); dir != "" {
		return dir
	}
	return userCache(t, "paddock-build")
}

// temporary is where it was before any test named another folder.
var temporary = os.TempDir()

// PreparedCache is a cache of prepared guests that all tests share and that is
// kept between runs. Paddock running as root hands its workers to another
// user, who has to be able to read it.
func PreparedCache(t testing.TB) string {
	t.Helper()
	if os.Geteuid() == 0 {
		return filepath.Join(temporary, "paddock-test-cache")
	}
	return userCache(t, "paddock-test")
}

func userCache(t testing.TB, name string) string {
	t.Helper()
	base, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(base, name)
}

// Binary is the built paddock: the one that make built, or a fresh one.
func Binary(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("PADDOCK_BIN"); path != "" {
		return path
	}
	path := filepath.Join(t.TempDir(), "paddock")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, "paddock/cmd/paddock")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0") // as make builds it
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building paddock: %v\n%s", err, out)
	}
	return path
}
