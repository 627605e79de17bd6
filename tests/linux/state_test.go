package linux

import (
	"strings"
	"testing"
)

// remembered are a variable for each language, and how it is asked for. Python holds
// 64 MiB, has a file open and a process in the background.
var remembered = []struct{ language, set, ask, want string }{
	{"python", `import numpy as np, subprocess, uuid
a = np.arange(8 << 20); x = {"k": [1, 2]}
f = open("/workspace/log", "w"); f.write("one\n"); f.flush()
p = subprocess.Popen(["sleep", "1000"])`, `print(a[-1], x, p.poll(), open("/workspace/log").read().strip())`, "8388607 {'k': [1, 2]} None one\n"},
	{"javascript", "var y = new Map([['k', 3]]); class C { constructor() { this.v = 7 } }", "console.log(y.get('k'), new C().v)", "3 7\n"},
	{"bash", "cd /usr; z=three; f() { echo $z; }; echo mine > /dev/shm/file", "pwd; f; cat /dev/shm/file", "/usr\nthree\nmine\n"},
}

func remember(t *testing.T, c *client, session string) {
	t.Helper()
	for _, r := range remembered {
		if got := c.run(t, r.language, r.set, "session_id", session); !got.Success {
			t.Fatalf("%s: %+v %s", r.language, got.Error, got.Stderr)
		}
	}
}

// remembers checks that all of it is there, and that nobody is told otherwise.
func remembers(t *testing.T, c *client, session string) {
	t.Helper()
	for _, r := range remembered {
		got := c.run(t, r.language, r.ask, "session_id", session)
		if got.Stdout != r.want || got.Notice != "" && !strings.HasPrefix(got.Notice, "The server ended unexpectedly: files") {
			t.Errorf("%s has %q (%s), and is told %q", r.language, got.Stdout, got.Stderr, got.Notice)
		}
	}
}

func newSession(t *testing.T, c *client) string {
	t.Helper()
	var made struct {
		SessionID string `json:"session_id"`
	}
	c.call(t, "create_session", map[string]any{"isolation": "linux"}, &made)
	return made.SessionID
}

const stateTools = "core,files,history"

func TestAMachineIsThereAgainInTheNextServer(t *testing.T) {
	withPackages(t)
	c := connectFor(t, "linux", stateTools)
	id := newSession(t, c)
	remember(t, c, id)
	if err := c.Close(); err != nil {
		t.Log(err)
	}
	c = connectFor(t, "linux", stateTools)
	remembers(t, c, id)
	// What was written since the checkpoint is lost with a killed server.
	c.call(t, "checkpoint_session", map[string]any{"session_id": id, "label": "mine"}, nil)
	if err := c.server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	c = connectFor(t, "linux", stateTools)
	remembers(t, c, id)
	c.run(t, "python", "x = 2; f.write('two\\n'); f.flush()", "session_id", id)
	c.run(t, "bash", "rm /dev/shm/file; z=four; cd /", "session_id", id)
	c.call(t, "restore_session", map[string]any{"session_id": id, "checkpoint": "mine"}, nil)
	remembers(t, c, id)
}

func TestForksGoOnFromOneMachineAndDrawOtherNumbers(t *testing.T) {
	withPackages(t)
	c := connectFor(t, "linux", stateTools)
	id := newSession(t, c)
	remember(t, c, id)
	var forked struct {
		Forks []string `json:"forks"`
	}
	c.call(t, "fork_session", map[string]any{"session_id": id, "count": 2}, &forked)
	if len(forked.Forks) != 2 {
		t.Fatalf("%+v", forked)
	}
	seen := map[string]bool{}
	for _, one := range append(forked.Forks, id) {
		remembers(t, c, one)
		for _, p := range [][2]string{
			{"python", "import random; print(uuid.uuid4(), random.random(), np.random.random())"},
			{"javascript", "console.log(require('crypto').randomUUID(), Math.random())"},
		} {
			for _, word := range strings.Fields(c.run(t, p[0], p[1], "session_id", one).Stdout) {
				if seen[word] {
					t.Errorf("two drew %s", word)
				}
				seen[word] = true
			}
		}
	}
}
