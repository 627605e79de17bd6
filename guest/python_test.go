package guest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"paddock/internal/sandbox/sandboxtest"
)

// TestThePythonDriver runs python/test_driver.py with the CPython for this
// machine that the guest's build left.
func TestThePythonDriver(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), nativePython(t), "-I", "-B", "-X", "utf8", filepath.Join("python", "test_driver.py"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "\nRan ") {
		t.Errorf("no tests ran:\n%s", out)
	}
}

func nativePython(t *testing.T) string {
	t.Helper()
	path, err := os.ReadFile(filepath.Join(sandboxtest.BuildCache(t), "out", "python", "native.path"))
	sandboxtest.Require(t, "wasm", err == nil, "the guest was not built on this machine (make guests)")
	return filepath.Join(strings.TrimSpace(string(path)), "bin", "python3.13")
}
