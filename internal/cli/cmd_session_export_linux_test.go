package cli

import (
	"crypto/rand"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

// TestAnExportToAFullDiskLeavesWhatWasThere fills a small file system of its own.
func TestAnExportToAFullDiskLeavesWhatWasThere(t *testing.T) {
	err := exec.Command("unshare", "-rm", "mount", "-t", "tmpfs", "none", t.TempDir()).Run()
	sandboxtest.Require(t, "mounts", err == nil, "no file system can be mounted here")
	state, full := t.TempDir(), t.TempDir()
	backend := sandboxtest.NewFake(sandboxtest.FakeConfig{Name: "wasm"})
	defer backend.Close()
	m, err := session.New(session.Config{Dir: state, Backends: []sandbox.Backend{backend}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, err := m.Create(t.Context(), session.Local, "large", session.Settings{}); err != nil {
		t.Fatal(err)
	}
	tree, done, err := m.Files(session.Local, "large")
	if err != nil {
		t.Fatal(err)
	}
	noise := make([]byte, 256<<10)
	rand.Read(noise) // never fails
	if _, err := tree.Write("noise", noise); err != nil {
		t.Fatal(err)
	}
	done()
	m.Close()

	file := filepath.Join(full, "archive")
	cmd := paddock(t, true, "session", "export", "large", file, "--state-dir", state)
	script := `mount -t tmpfs -o size=64k none "$0" && echo before > "$0/archive" || exit 9
self=$1; shift
(exec -a paddock "$self" "$@"); code=$?
cat "$0/archive"; ls -A "$0"; exit $code`
	inside := exec.CommandContext(t.Context(), "unshare", append([]string{"-rm", "bash", "-c", script, full, cmd.Path}, cmd.Args[1:]...)...)
	inside.Env = cmd.Env
	var stderr strings.Builder
	inside.Stderr = &stderr
	out, err := inside.Output()
	if inside.ProcessState == nil {
		t.Fatalf("the program did not run: %v", err)
	}
	if inside.ProcessState.ExitCode() != exitFailed {
		t.Errorf("inside.ProcessState.ExitCode(): got %v, want %v", inside.ProcessState.ExitCode(), exitFailed)
	}
	if string(out) != "before\narchive\n" {
		t.Errorf("there is %q", out)
	}
	if want := "paddock: error: there is no room for " + file + "\npaddock: hint: free some, or write it elsewhere\n"; stderr.String() != want {
		t.Errorf("it says %q, want %q", stderr.String(), want)
	}
}
