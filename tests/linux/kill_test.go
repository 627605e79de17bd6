//go:build linux

package linux

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"paddock/internal/blob"
	"paddock/internal/history"
)

// A machine that is saved, and then stopped, ends with a server that is killed, and the
// next one has all of it.
func TestAServerThatIsKilledLosesNothingOfAMachineThatNobodyUsed(t *testing.T) {
	t.Setenv("PADDOCK_SANDBOX_SAVE_AFTER_SECONDS", "1")
	t.Setenv("PADDOCK_SANDBOX_POOL", "0")
	c := connectFor(t, "linux", stateTools)
	id := newSession(t, c)
	c.run(t, "python", "import random; x = [41]; open('/workspace/f', 'w').write('text')", "session_id", id)
	c.run(t, "javascript", "var y = new Map([['k', 3]])", "session_id", id)
	c.run(t, "bash", "cd /usr; z=three; echo mine > /dev/shm/file", "session_id", id)
	had := family(c.server.Process.Pid)
	eventually(t, func() string {
		if !slices.ContainsFunc(had, stopped) {
			return "nothing is stopped"
		}
		return ""
	})
	eventually(t, func() string {
		if !savedMachine(t, id) {
			return "it was not saved"
		}
		return ""
	})
	if err := c.server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	eventually(t, func() string {
		if left := living(had); len(left) > 0 {
			return fmt.Sprintf("the processes %v live on", left)
		}
		return ""
	})
	c = connectFor(t, "linux", stateTools)
	for _, p := range [][3]string{
		{"python", "print(x, open('/workspace/f').read())", "[41] text\n"},
		{"javascript", "console.log(y.get('k'))", "3\n"},
		{"bash", "pwd; echo $z; cat /dev/shm/file", "/usr\nthree\nmine\n"},
	} {
		if r := c.run(t, p[0], p[1], "session_id", id); r.Stdout != p[2] || r.Notice != "" {
			t.Errorf("%s has %q (%s), and is told %q", p[0], r.Stdout, r.Stderr, r.Notice)
		}
	}
}

// stopped tells whether a process is.
func stopped(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(text), ") T ")
}

// savedMachine tells whether the newest checkpoint of a session has its machine.
func savedMachine(t *testing.T, session string) bool {
	t.Helper()
	line, err := history.Open(filepath.Join(shared.dir, "state", "checkpoints", "local", session), blob.OS)
	if err != nil {
		t.Fatal(err)
	}
	head, _, err := line.Head(func(*history.Manifest) error { return nil })
	return err == nil && head != nil && head.Machine != nil // it may just be given up for another
}
