package linux

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// endless are programs that keep a variable, tell of themselves and do not end, and
// how the variable is asked for.
var endless = []struct{ name, language, code, ask string }{
	{"a loop of Python's", "python", "x = 41\nprint('begun', flush=True)\nwhile True: pass", "print(x)"},
	{"sleep of Python's", "python", "import time\nx = 41\nprint('begun', flush=True)\ntime.sleep(600)", "print(x)"},
	{"numpy", "python", "import numpy as np\nx = 41\nprint('begun', flush=True)\na = np.ones((700, 700))\nwhile True: a = a @ a / 700", "print(x)"},
	{"await of Python's", "python", "import asyncio\nx = 41\nprint('begun', flush=True)\nawait asyncio.sleep(600)", "print(x)"},
	{"a program that Python waits for", "python", "import subprocess\nx = 41\nprint('begun', flush=True)\nsubprocess.run(['sleep', '600'])", "print(x)"},
	{"a loop of Node's", "javascript", "var x = 41; console.log('begun'); while (true);", "console.log(x)"},
	{"await of Node's", "javascript", "var x = 41; console.log('begun'); await new Promise(done => setTimeout(done, 600_000))", "console.log(x)"},
	{"a loop of bash's", "bash", "x=41; echo begun; while :; do :; done", "echo $x"},
	{"a pipeline of bash's", "bash", "x=41; echo begun; sleep 600 | cat", "echo $x"},
}

func TestATimeoutKeepsWhatWasThere(t *testing.T) {
	c := connect(t, "linux")
	for _, p := range endless {
		t.Run(p.name, func(t *testing.T) {
			if p.name == "numpy" {
				withPackages(t)
				c.run(t, p.language, "import numpy") // which takes seconds on a busy machine
			}
			r := c.run(t, p.language, p.code, "timeout", 2)
			for long := 4; r.Stdout == "" && long < 60; long *= 2 { // it had not begun by then
				r = c.run(t, p.language, p.code, "timeout", long)
			}
			switch {
			case r.StoppedBy != "timeout":
				t.Errorf(`r.StoppedBy = %q, want "timeout"`, r.StoppedBy)
			case r.State != "kept":
				t.Errorf(`r.State = %q, want "kept"`, r.State)
			case r.Success:
				t.Errorf("r.Success = true, want false; stopped by %q, state %q, stdout %q, error %+v, notice %q",
					r.StoppedBy, r.State, r.Stdout, r.Error, r.Notice)
			case r.Stdout != "begun\n":
				t.Errorf("r.Stdout = %q, want %q", r.Stdout, "begun\n")
			case r.Error == nil:
				t.Errorf("r.Error is nil, want a value; stopped by %q, state %q, stdout %q, error %+v, notice %q",
					r.StoppedBy, r.State, r.Stdout, r.Error, r.Notice)
			case r.Error.Hint == "":
				t.Errorf("r.Error.Hint is empty, want a text; stopped by %q, state %q, stdout %q, error %+v, notice %q",
					r.StoppedBy, r.State, r.Stdout, r.Error, r.Notice)
			}
			if r := c.run(t, p.language, p.ask); r.Stdout != "41\n" {
				t.Errorf("then: %q %q", r.Stdout, r.Stderr)
			}
		})
	}
}

// begin starts a program, and gives its call's end once it has told of itself.
func (c *client) begin(t *testing.T, ctx context.Context, language, code string) chan error {
	t.Helper()
	params := &sdk.CallToolParams{Name: "execute_code", Arguments: map[string]any{"language": language, "code": code}}
	params.SetProgressToken(code)
	ended := make(chan error, 1)
	go func() {
		res, err := c.CallTool(ctx, params)
		if err == nil {
			err = fmt.Errorf("it ended: %v", res.StructuredContent)
		}
		ended <- err
	}()
	for message := ""; !strings.Contains(message, "begun"); {
		select {
		case message = <-c.progress:
		case err := <-ended:
			t.Fatalf("before it told of itself: %v", err)
		case <-time.After(timeout):
			t.Fatal("there is no progress")
		}
	}
	return ended
}

func TestACancelledCallAndACancelledExecutionKeepWhatWasThere(t *testing.T) {
	c := connect(t, "linux")
	for _, p := range endless {
		t.Run(p.name, func(t *testing.T) {
			if p.name == "numpy" {
				withPackages(t)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := c.begin(t, ctx, p.language, p.code)
			cancel()
			<-ended
			if r := c.run(t, p.language, p.ask); r.Stdout != "41\n" {
				t.Errorf("after a cancelled call: %q %q", r.Stdout, r.Stderr)
			}
			ended = c.begin(t, t.Context(), p.language, p.code)
			var out struct{ Cancelled bool }
			if c.call(t, "cancel_execution", nil, &out); !out.Cancelled {
				t.Error("nothing was cancelled")
			}
			if err := <-ended; !strings.Contains(err.Error(), "stopped_by:cancelled") || !strings.Contains(err.Error(), "state:kept") {
				t.Error(err)
			}
			if r := c.run(t, p.language, p.ask); r.Stdout != "41\n" {
				t.Errorf("after a cancelled execution: %q %q", r.Stdout, r.Stderr)
			}
		})
	}
}

func TestAProcessInTheBackgroundOutlivesItsCall(t *testing.T) {
	c := connect(t, "linux")
	for _, p := range []struct{ name, language, start, look, stop, gone string }{
		{"of Python", "python", "import subprocess\np = subprocess.Popen('while :; do date +%s%N > tick; sleep 0.05; done', shell=True)\nimport os, time\nwhile not os.path.exists('tick'): time.sleep(0.02)", "before = open('tick').read()\nwhile open('tick').read() in (before, ''): time.sleep(0.02)\np.poll()", "p.kill()\np.wait()", "p.poll()"},
		{"of bash", "bash", "while :; do date +%s%N > tock; sleep 0.05; done & pid=$!; until [ -s tock ]; do sleep 0.02; done", "before=$(cat tock); while [ \"$(cat tock)\" = \"$before\" ]; do sleep 0.02; done; kill -0 $pid && echo lives", "kill $pid; wait $pid 2>/dev/null", "kill -0 $pid 2>/dev/null || echo gone"},
	} {
		t.Run(p.name, func(t *testing.T) {
			c.run(t, p.language, p.start)
			if r := c.run(t, p.language, p.look); !r.Success || r.Stdout != map[string]string{"bash": "lives\n"}[p.language] {
				t.Errorf("it does not go on: %+v", r.Execution)
			}
			c.run(t, p.language, p.stop)
			if r := c.run(t, p.language, p.gone); r.Result != map[string]string{"python": "-9"}[p.language] || r.Stdout != map[string]string{"bash": "gone\n"}[p.language] {
				t.Errorf("it is not gone: %+v", r.Execution)
			}
		})
	}
}

func TestWhatWorksInTheBackgroundIsListedReadAndStopped(t *testing.T) {
	c := connect(t, "linux")
	r := c.run(t, "bash", "(while :; do echo tick; sleep 0.05; done) & sleep 0.2; echo pid $!")
	_, pid, _ := strings.Cut(r.Stdout, "pid ")
	pid, _, _ = strings.Cut(pid, "\n")
	type info struct {
		Processes []struct {
			PID     int
			Command string
		}
		Printed string `json:"background_output"`
	}
	look := func() (i info) {
		c.call(t, "get_workspace_info", nil, &i)
		return i
	}
	i := look()
	for !strings.Contains(i.Printed, "tick") { // the test has a deadline
		i = look()
	}
	if len(i.Processes) == 0 {
		t.Fatalf("nothing is listed: %+v", i)
	}
	id := string(r.SessionID)
	switch out, err := paddock(t, "session", "ps", id).CombinedOutput(); {
	case err != nil:
		t.Errorf("a person sees: %v", err)
	case !strings.Contains(string(out), pid):
		t.Errorf("a person sees: out = %q, want %q in it", string(out), pid)
	case pid == "":
		t.Errorf("a person sees: pid is empty, want a text: %s", out)
	}
	if out, err := paddock(t, "session", "logs", id).CombinedOutput(); err != nil || !strings.Contains(string(out), "tick\n") {
		t.Errorf("a person reads %s, %v", out, err)
	}
	if out, err := paddock(t, "session", "kill", "--signal", "KILL", id, pid).CombinedOutput(); err != nil {
		t.Errorf("a person cannot stop it: %s, %v", out, err)
	}
	if r := c.run(t, "bash", "wait; jobs; echo all"); !strings.HasSuffix(r.Stdout, "all\n") || !strings.Contains(r.Stdout+r.Stderr, "Killed") && strings.Contains(r.Stdout, "Running") {
		t.Errorf("then: %q", r.Stdout)
	}
}

func TestUsageIsTold(t *testing.T) {
	c := connect(t, "linux")
	r := c.run(t, "python", "n = 0\nfor k in range(3_000_000): n += k\nblob = bytearray(64 << 20)")
	switch {
	case r.Usage.CPUMS < 10:
		t.Errorf("r.Usage.CPUMS = %v, want at least 10: %+v, %v",
			r.Usage.CPUMS, r.Usage, r.ExecutionTimeMS)
	case r.Usage.MemoryBytes < 64<<20:
		t.Errorf("r.Usage.MemoryBytes = %v, want at least %v: %+v, %v",
			r.Usage.MemoryBytes, 64<<20, r.Usage, r.ExecutionTimeMS)
	case r.ExecutionTimeMS < r.Usage.CPUMS/2:
		t.Errorf("r.ExecutionTimeMS = %v, want at least %v: %+v",
			r.ExecutionTimeMS, r.Usage.CPUMS/2, r.Usage)
	}
	r = c.run(t, "python", "bytearray(2 << 30)")
	switch {
	case r.StoppedBy != "memory":
		t.Errorf(`beyond its memory: r.StoppedBy = %q, want "memory"`, r.StoppedBy)
	case r.State != "kept":
		t.Errorf(`beyond its memory: r.State = %q, want "kept"`, r.State)
	case r.Error == nil:
		t.Errorf("beyond its memory: r.Error is nil, want a value: %+v", r.Execution)
	case r.Error.Type != "MemoryError":
		t.Errorf(`beyond its memory: r.Error.Type = %q, want "MemoryError"`, r.Error.Type)
	}
	if r := c.run(t, "python", "len(blob)"); r.Result != fmt.Sprint(64<<20) {
		t.Errorf("after it: %+v", r.Execution)
	}
}
