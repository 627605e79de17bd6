package cli

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"paddock/internal/audit"
	"paddock/internal/auth"
	"paddock/internal/sandbox/sandboxtest"
)

func TestAuditFindsWhatATokenDidByItsName(t *testing.T) {
	state := t.TempDir()
	_, made, err := auth.OpenTokens(state).Create(auth.Token{Name: "laptop"})
	if err != nil {
		t.Fatal(err)
	}
	log := audit.New(audit.Config{Dir: filepath.Join(state, "audit"), Transport: "http"})
	for _, by := range []string{auth.OfToken + made.ID, "token:other", auth.Local} {
		if err := log.Write(t.Context(), audit.Record{Action: audit.FileRead, Principal: by, Outcome: audit.Success}); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{"laptop", made.ID, auth.OfToken + made.ID} {
		r := command(t, newFake, "audit", "ls", "--principal", who, "--state-dir", state)
		if r.code != 0 {
			t.Errorf("by %s: r.code: got %v, want 0: %s", who, r.code, r.stderr)
		}
		if strings.Count(r.stdout, "file_read") != 1 {
			t.Errorf(`by %s: strings.Count(r.stdout, "file_read"): got %v, want 1`,
				who, strings.Count(r.stdout, "file_read"))
		}
		if !strings.Contains(r.stdout, auth.OfToken+made.ID) {
			t.Errorf("by %s: r.stdout: got %q, want %q in it", who, r.stdout, auth.OfToken+made.ID)
		}
	}
}

// TestRootLeavesTheFolderOfAnotherAlone: the service could not go on with files
// that root makes there.
func TestRootLeavesTheFolderOfAnotherAlone(t *testing.T) {
	sandboxtest.Require(t, "root", runtime.GOOS != "windows" && os.Geteuid() == 0, "only root gives folders away")
	state := t.TempDir()
	if err := os.Chown(state, 4321, 4321); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"token", "create", "laptop"}, {"token", "ls"}, {"session", "rm", "one"}} {
		r := command(t, newFake, append(args, "--state-dir", state)...)
		if r.code != exitFailed {
			t.Errorf("%q: r.code: got %v, want %v: %s", args, r.code, exitFailed, r.stderr)
		}
		if !strings.HasPrefix(r.stderr, "paddock: error: the state folder belongs to the user 4321") {
			t.Errorf("%q: r.stderr: got %q, want it to begin with %q",
				args, r.stderr, "paddock: error: the state folder belongs to the user 4321")
		}
		if !strings.Contains(r.stderr, "runuser -u 4321") {
			t.Errorf("%q: r.stderr: got %q, want %q in it", args, r.stderr, "runuser -u 4321")
		}
	}
	for _, name := range []string{"tokens.json", "auth.lock", "audit"} {
		if _, err := os.Stat(filepath.Join(state, name)); err == nil {
			t.Errorf("%s was made", name)
		}
	}
}

func TestAPersonReadsHowOften(t *testing.T) {
	if got := about(audit.Record{Target: "192.0.2.1", Count: 25}); got != "192.0.2.1 (25 times)" {
		t.Errorf("about gives %q, want %q", got, "192.0.2.1 (25 times)")
	}
}
