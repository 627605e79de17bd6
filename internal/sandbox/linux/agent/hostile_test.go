//go:build linux

package agent_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"paddock/internal/sandbox"
)

// TestAProgramThatReachesForTheConnectionHarmsOnlyItself has programs close the
// descriptors of their kernel, and write into them.
func TestAProgramThatReachesForTheConnectionHarmsOnlyItself(t *testing.T) {
	p, _ := testAgent(t)
	other := startIn(t, p, "python")
	defer other.Close()
	cell{Code: "x = 1"}.Check(t, other)
	crashed := cell{Cause: sandbox.Crashed, State: sandbox.Fresh, Exit: 1, Fails: "Crash: …"}
	for _, c := range []struct{ name, runtime, code string }{
		{"closing all", "python", "import os; os.closerange(3, 1000)\nwhile True: pass"},
		{"closing all and ending", "python", "import os; os.closerange(3, 1000)"},
		{"noise", "python", "import os\nfor fd in range(3, 1000):\n    try: os.write(fd, b'noise and more noise')\n    except OSError: pass\nwhile True: pass"},
		{"a frame without an end", "python", "import os, struct\nfor fd in range(200, 300):\n    try: os.write(fd, struct.pack('<cII', b'm', 1, 33 << 20) + b'{}')\n    except OSError: pass\nos.closerange(3, 1000)"},
		{"a frame that is too long", "python", "import os, struct\nfor fd in range(200, 300):\n    try: os.write(fd, struct.pack('<cII', b'a', 1, 0xFFFFFFFF))\n    except OSError: pass\nwhile True: pass"},
		{"an answer that is not JSON", "python", "import os, struct\nfor fd in range(200, 300):\n    for n in range(10):\n        try: os.write(fd, struct.pack('<cII', b'a', n, 2) + b'no')\n        except OSError: pass\nwhile True: pass"},
		{"closing all", "javascript", "for (let fd = 3; fd < 6; fd++) { try { require('fs').closeSync(fd) } catch {} } for (;;);"},
		{"noise", "javascript", "for (let fd = 4; fd < 6; fd++) { try { require('fs').writeSync(fd, 'noise and more noise') } catch {} } for (;;);"},
		{"noise", "bash", "for f in /proc/$BASHPID/fd/*; do n=${f##*/}; (( n > 9 )) && { echo noise >&$n; } 2>/dev/null; done; while :; do :; done"},
		{"closing all", "bash", "for f in /proc/$BASHPID/fd/*; do n=${f##*/}; (( n > 9 )) && eval \"exec $n>&-\"; done; while :; do :; done"},
	} {
		t.Run(c.runtime+": "+c.name, func(t *testing.T) {
			in := startIn(t, p, c.runtime)
			defer in.Close()
			one := crashed
			one.Code, one.Wall, one.Out = c.code, 20*time.Second, "…" // whatever it prints
			one.Check(t, in)
			cell{Code: ""}.Check(t, in)
		})
	}
	cell{Code: "x", Result: "1"}.Check(t, other)
}

// TestAKernelThatDoesNotListenIsStopped gives a kernel that is busy with what the
// last program left in it more than its connection holds.
func TestAKernelThatDoesNotListenIsStopped(t *testing.T) {
	p, _ := testAgent(t)
	other, in := startIn(t, p, "javascript"), startIn(t, p, "javascript")
	defer other.Close()
	defer in.Close()
	cell{Code: "const x = 1"}.Check(t, other)
	cell{Code: "const y = 1, fs = require('fs'); setInterval(() => { if (fs.existsSync('go')) { fs.writeFileSync('going', ''); for (;;); } }, 5).unref(); undefined"}.Check(t, in)
	cell{Code: "const fs = require('fs'); fs.writeFileSync('go', ''); while (!fs.existsSync('going')) await new Promise((done) => setTimeout(done, 5))"}.Check(t, other)
	long := cell{Code: "1 // " + strings.Repeat("x", 2<<20), Wall: 300 * time.Millisecond}
	r := long.Run(t, in)
	for r.Error != nil && strings.Contains(r.Error.Message, "before it began") { // on a busy machine
		long.Wall *= 2
		r = long.Run(t, in)
	}
	if r.Cause != sandbox.TimedOut || r.State != sandbox.Fresh || r.Error == nil || r.Error.Type != "Stopped" {
		t.Fatalf("it ended as %+v, %+v", r.Exit, r.Error)
	}
	cell{Code: "typeof y", Result: "'undefined'"}.Check(t, in)
	cell{Code: "x", Result: "1"}.Check(t, other)
}

func TestAForgedAnswerSaysNoMoreThanTheProgramCould(t *testing.T) {
	p, _ := testAgent(t)
	in := startIn(t, p, "python")
	defer in.Close()
	r := cell{Code: `
import os, struct, json
body = json.dumps({"status": "done", "exit_code": 1 << 40, "result": "r" * 1000000, "pid": 1,
    "error": {"type": "T" * 1000000, "message": "m", "line": -5, "kind": "odd"}}).encode()
for fd in range(200, 300):
    try: os.write(fd, struct.pack("<cII", b"a", 2, len(body)) + body)
    except OSError: pass
`}.Run(t, in)
	if r.Code > 255 || len(r.Result) > 128<<10 || r.Error != nil && (len(r.Error.Type) > 64<<10 || r.Error.Line < 0) {
		t.Errorf("it ended with code %d, a result of %d bytes, error %.200v", r.Code, len(r.Result), r.Error)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if _, err := in.Run(ctx, sandbox.Command{Code: "1"}); err != nil {
		t.Error(err)
	}
}

// TestDescriptorsOfTheKernelAreNotInherited looks at what children see.
func TestDescriptorsOfTheKernelAreNotInherited(t *testing.T) {
	p, _ := testAgent(t)
	for runtime, code := range map[string]string{
		"python":     "import subprocess; print(subprocess.run(['ls', '/proc/self/fd'], stdout=subprocess.PIPE, text=True, close_fds=False).stdout.split())",
		"javascript": "console.log(require('child_process').execSync('ls /proc/self/fd', { stdio: ['ignore', 'pipe', 'inherit'] }).toString().trim().split('\\n'))",
		"bash":       "echo $(ls /proc/self/fd)",
	} {
		in := startIn(t, p, runtime)
		want := map[string]string{"python": "['0', '1', '2', '3']", "javascript": "[ '0', '1', '2', '3' ]", "bash": "0 1 2 3"}[runtime]
		cell{Code: code, Out: want}.Check(t, in)
		in.Close()
	}
}
