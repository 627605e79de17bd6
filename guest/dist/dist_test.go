package dist

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A clone that make has not run in has this folder without the guests.
func TestABuildWithoutGuestsSaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	source, err := os.ReadFile("dist.go")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"dist.go": string(source), "go.mod": "module clone\n\ngo 1.26.0\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", ".")
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), "GOFLAGS=", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err == nil || strings.Count(strings.TrimSpace(string(out)), "\n") != 0 || !strings.Contains(string(out), "the guests are not built: run make in paddock's source folder") {
		t.Errorf("go build prints %q (%v)", out, err)
	}
}
