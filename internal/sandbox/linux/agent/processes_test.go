//go:build linux

package agent_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/sandbox/wire"
)

// until asks again and again until the answer is yes.
func until(t *testing.T, what string, yes func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(timeout)
	for !yes() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s did not happen", what)
		}
	}
}

func listOf(t *testing.T, in *wire.Instance) []sandbox.Process {
	t.Helper()
	list, err := in.Overseer().Processes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// find gives the process whose command begins with text, once it is there.
func find(t *testing.T, in *wire.Instance, text string) (found sandbox.Process) {
	t.Helper()
	until(t, "the process "+text, func() bool {
		for _, p := range listOf(t, in) {
			if strings.HasPrefix(p.Command, text) {
				found = p
				return true
			}
		}
		return false
	})
	return found
}

func gone(t *testing.T, in *wire.Instance, pid int) {
	t.Helper()
	until(t, "the end of the process", func() bool {
		for _, p := range listOf(t, in) {
			if p.PID == pid {
				return false
			}
		}
		return true
	})
}

func TestProcessesThatAProgramLeavesAreListedReadAndStopped(t *testing.T) {
	p, _ := testAgent(t)
	for runtime, start := range map[string]string{
		"bash":       "sleep 1111 & while sleep 0.01; do echo tick; done & disown -a",
		"python":     "import subprocess\nfor c in 'exec sleep 1111', 'while sleep 0.01; do echo tick; done': p = subprocess.Popen(c, shell=True)",
		"javascript": "const { spawn } = require('child_process'); for (const c of ['exec sleep 1111', 'while sleep 0.01; do echo tick; done']) spawn('sh', ['-c', c], { stdio: 'inherit', detached: true }).unref();",
	} {
		t.Run(runtime, func(t *testing.T) {
			in := startIn(t, p, runtime)
			defer in.Close()
			if list := listOf(t, in); len(list) != 0 {
				t.Errorf("at first there are %+v", list)
			}
			cell{Code: start, Out: "…"}.Check(t, in) // on a busy machine it ticks before it ends
			sleeper := find(t, in, "sleep 1111")
			if sleeper.Detached || time.Since(sleeper.Started) > timeout || time.Since(sleeper.Started) < -time.Second {
				t.Errorf("it is %+v", sleeper)
			}
			var said sandbox.Printed
			until(t, "output between runs", func() bool {
				var err error
				if said, err = in.Overseer().Printed(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
				return bytes.Contains(said.Data, []byte("tick\n"))
			})
			if more, err := in.Overseer().Printed(t.Context(), said.From+int64(len(said.Data))); err != nil || more.From < said.From+int64(len(said.Data)) {
				t.Errorf("what follows is %+v, %v", more, err)
			}
			if err := in.Overseer().Signal(t.Context(), sleeper.PID, "TERM"); err != nil {
				t.Error(err)
			}
			gone(t, in, sleeper.PID)
			for _, wrong := range []struct {
				pid    int
				signal string
				kind   fault.Kind
			}{{sleeper.PID, "TERM", fault.NotFound}, {1, "KILL", fault.NotFound}, {os.Getpid(), "KILL", fault.NotFound}, {sleeper.PID, "NOPE", fault.Invalid}} {
				if err := in.Overseer().Signal(t.Context(), wrong.pid, wrong.signal); fault.KindOf(err) != wrong.kind {
					t.Errorf("signalling %+v: %v", wrong, err)
				}
			}
		})
	}
}

func TestACopyOfAnInterpreterIsCalledOne(t *testing.T) {
	p, _ := testAgent(t)
	for runtime, program := range map[string]struct{ code, listed string }{
		"bash":   {"while sleep 0.1; do :; done &", "bash (forked)"},
		"python": {"import os, time\nif os.fork() == 0:\n    time.sleep(1000)", "python3 (forked)"},
	} {
		t.Run(runtime, func(t *testing.T) {
			in := startIn(t, p, runtime)
			defer in.Close()
			cell{Code: program.code}.Check(t, in)
			find(t, in, program.listed)
		})
	}
}

func TestWhatLeftItsSessionIsListedAsLoose(t *testing.T) {
	p, _ := testAgent(t)
	in := startIn(t, p, "bash")
	cell{Code: "(setsid setsid sleep 2222 &) ; (setsid -f sleep 3333)"}.Check(t, in)
	loose := find(t, in, "sleep 3333")
	if err := in.Overseer().Signal(t.Context(), loose.PID, "KILL"); err != nil {
		t.Error(err)
	}
	gone(t, in, loose.PID)
	in.Close()
}

// told is a writer that calls it when something is printed.
type told func()

func (f told) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

func TestAStoppedRunTakesWhatItStartedAndLeavesTheRest(t *testing.T) {
	p, _ := testAgent(t)
	in := startIn(t, p, "bash")
	defer in.Close()
	cell{Code: "sleep 4444 & disown"}.Check(t, in)
	before := find(t, in, "sleep 4444")
	time.Sleep(20 * time.Millisecond) // the kernel counts starts in hundredths
	ctx, pass := sandboxtest.Deadline(t.Context())
	exit, err := in.Run(ctx, sandbox.Command{Code: "trap '' INT; (trap '' INT; echo on; sleep 5555) & while :; do :; done", Stdout: told(pass), Limits: sandbox.RunLimits{Grace: 100 * time.Millisecond}})
	if err != nil || exit.Cause != sandbox.TimedOut || exit.State != sandbox.Fresh {
		t.Fatalf("it ended as %+v, %v", exit, err)
	}
	cell{Code: "echo on", Out: "on"}.Check(t, in)
	if p := find(t, in, "sleep 4444"); p.PID != before.PID {
		t.Errorf("it is %+v", p)
	}
	for _, p := range listOf(t, in) {
		if strings.Contains(p.Command, "5555") {
			t.Errorf("%+v is left", p)
		}
	}
}

func TestClosingAnInstanceEndsItsProcessesAndNoOthers(t *testing.T) {
	p, _ := testAgent(t)
	a, b := startIn(t, p, "bash"), startIn(t, p, "python")
	cell{Code: "for n in 1 2 3 4 5; do (while :; do sleep 0.01; done) & done; sleep 6666 & disown -a; exit 0"}.Check(t, a)
	cell{Code: "import subprocess; p = subprocess.Popen(['sleep', '7777'])"}.Check(t, b)
	find(t, a, "sleep 6666")
	other := find(t, b, "sleep 7777")
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	list := listOf(t, b)
	if len(list) != 1 || list[0].PID != other.PID {
		t.Errorf("left are %+v", list)
	}
	cell{Code: "p.poll() is None", Result: "True"}.Check(t, b)
	p.close()
	if _, err := os.Stat("/proc/" + strconv.Itoa(other.PID)); err == nil {
		t.Error("a process outlived the agent")
	}
}

func TestAForkBombEndsWithItsInstance(t *testing.T) {
	p, _ := testAgent(t)
	in := startIn(t, p, "bash")
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	// Each has two others, until there are too many; they live on when it ends.
	exit, err := in.Run(ctx, sandbox.Command{Code: "ulimit -u 1000; b() { [[ $1 -gt 6 ]] || { b $(($1 + 1)) & b $(($1 + 1)) & }; sleep 8888; }; b 0"})
	if err != nil || exit.Cause != sandbox.TimedOut {
		t.Errorf("it ended as %+v, %v", exit, err)
	}
	in.Close()
	other := startIn(t, p, "bash")
	defer other.Close()
	if list := listOf(t, other); len(list) != 0 {
		t.Errorf("%d are left", len(list))
	}
}

func TestCommands(t *testing.T) {
	p, _ := testAgent(t)
	ctx := t.Context()
	in, err := p.client.Start(ctx, wire.StartBody{Runtime: "command", Dir: "/tmp", Env: map[string]string{"A": "b c"}})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for _, c := range []cell{
		{Code: "echo", Args: []string{"a  b", "*"}, Out: "a  b *"},
		{Code: "sh", Args: []string{"-c", "pwd; echo $A; echo err >&2; exit 3"}, Out: "/tmp\nb c", Err: "err\n", Exit: 3},
		{Code: "cat", Stdin: "some\ninput", Out: "some\ninput"},
		{Code: "wc", Args: []string{"-c"}, Stdin: strings.Repeat("x", 1<<20), Out: "1048576"},
		{Code: "true", Stdin: strings.Repeat("x", 1<<20)},
		{Code: "cat"},
		{Code: "/bin/true"},
		{Code: "no-such-program", Exit: 127, Fails: "NotFound: there is no no-such-program in the image \"tested\""},
		{Code: "./nothing", Exit: 127, Fails: "NotFound: …"},
		{Code: "sh", Args: []string{"-c", "kill -SEGV $$"}, Exit: 139, Fails: "Signal: the program was ended by the signal SIGSEGV"},
		{Code: "sleep", Args: []string{"3600"}, Wall: 200 * time.Millisecond, Cause: sandbox.TimedOut, Exit: 130, Fails: "Signal: …"},
		{Code: "sh", Args: []string{"-c", "sleep 9999 & echo started"}, Out: "started"},
	} {
		c.Check(t, in)
	}
	if left := find(t, in, "sleep 9999"); left.PID == 0 {
		t.Error("what it left is not there")
	}
	if exit, err := in.Run(ctx, sandbox.Command{Code: "sh", Args: []string{"-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"}}); err != nil || exit.Usage.CPU <= 0 || exit.Usage.Wall < exit.Usage.CPU/4 || exit.Usage.Memory <= 0 {
		t.Errorf("it cost %+v, %v", exit.Usage, err)
	}
}

func TestManyInstancesShareAnAgent(t *testing.T) {
	p, _ := testAgent(t)
	var all sync.WaitGroup
	for n := range 12 {
		all.Go(func() {
			runtime := []string{"python", "bash", "javascript"}[n%3]
			in := startIn(t, p, runtime)
			defer in.Close()
			for i := range 5 {
				set := []string{"x = %d", "x=%d", "globalThis.x = %d; undefined"}[n%3]
				show := []string{"print(x)", "echo $x", "console.log(x)"}[n%3]
				cell{Code: fmt.Sprintf(set, 10*n+i)}.Check(t, in)
				cell{Code: show, Out: fmt.Sprint(10*n + i)}.Check(t, in)
			}
		})
	}
	all.Wait()
}

func TestAKernelThatEndedBetweenRunsIsTold(t *testing.T) {
	p, _ := testAgent(t)
	in := startIn(t, p, "python")
	defer in.Close()
	cell{Code: "x = 1\nimport os, threading\nthreading.Timer(0.05, lambda: os._exit(3)).start()"}.Check(t, in)
	until(t, "its end", func() bool { _, err := in.Inspect(t.Context()); return err != nil })
	cell{Code: "print('not run')", Cause: sandbox.Crashed, State: sandbox.Fresh, Exit: 1, Fails: "Crash: the interpreter ended after the last call…"}.Check(t, in)
	cell{Code: "'x' in globals()", Result: "False"}.Check(t, in)
}

func TestMemoryBeyondTheLimitEndsTheKernelAndNotTheAgent(t *testing.T) {
	p, _ := testAgent(t)
	for runtime, code := range map[string]string{
		"javascript": "const all = []; for (;;) all.push(new Uint8Array(1 << 20).fill(1))",
		"bash":       "x=$(head -c 300000000 /dev/zero | tr '\\0' x); sleep 1; echo no; false",
	} {
		t.Run(runtime, func(t *testing.T) {
			in, err := p.client.Start(t.Context(), wire.StartBody{Runtime: runtime, MemoryBytes: 200 << 20})
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			r := cell{Code: code}.Run(t, in)
			if r.Cause != sandbox.OutOfMemory || r.Code == 0 || r.Error == nil {
				t.Errorf("it ended as %+v, error %+v, printed %q", r.Exit, r.Error, r.Out)
			}
			r = cell{Code: ""}.Run(t, in)
			if r.Cause != sandbox.Exited {
				t.Errorf("then it ended as %+v, error %+v", r.Exit, r.Error)
			}
		})
	}
}

func TestUsageIsTold(t *testing.T) {
	p, _ := testAgent(t)
	in := startIn(t, p, "python")
	defer in.Close()
	r := cell{Code: "import time\nt = time.process_time()\nwhile time.process_time() - t < 0.05: pass\nb = bytearray(50 << 20); time.sleep(0.1); del b"}.Run(t, in)
	if u := r.Usage; u.CPU < 40*time.Millisecond || u.Wall < 100*time.Millisecond || u.Memory < 5<<20 || u.Peak < 50<<20 || u.Peak < u.Memory {
		t.Errorf("it cost %+v", u)
	}
	r = cell{Code: "import subprocess; subprocess.run(['sh', '-c', 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'])"}.Run(t, in)
	if r.Usage.CPU < 30*time.Millisecond {
		t.Errorf("a child's time is not counted: %+v", r.Usage)
	}
	r = cell{Code: "1"}.Run(t, in)
	if r.Usage.CPU > 30*time.Millisecond {
		t.Errorf("the next run cost %+v", r.Usage)
	}
}

func TestAnImageWithoutTheInterpreterIsToldAsSuch(t *testing.T) {
	p, _ := testAgent(t)
	_, err := p.client.Start(t.Context(), wire.StartBody{Runtime: "python", Env: map[string]string{"PATH": "/workspace"}})
	f := fault.Of(err)
	if f.Kind != fault.Unsupported || f.Retryable() || !strings.Contains(f.Message, `no python3 in the image "tested"`) || f.Hint == "" {
		t.Errorf("it is told as %+v", f)
	}
}

func TestAnInterpreterWithoutAllOfItsLibraryIsToldAsSuch(t *testing.T) {
	p, dir := testAgent(t)
	if err := os.WriteFile(dir+"/json.py", []byte("raise ModuleNotFoundError(\"No module named 'json'\")"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := p.client.Start(t.Context(), wire.StartBody{Runtime: "python", Env: map[string]string{"PYTHONPATH": "/workspace"}})
	if f := fault.Of(err); f.Kind != fault.Unsupported || !strings.Contains(f.Message, `No module named 'json'`) || !strings.Contains(f.Message, `"tested"`) {
		t.Errorf("it is told as %+v", f)
	}
}

// Not every python3 has the module resource.
func TestAPythonThatCannotSetLimitsRunsPrograms(t *testing.T) {
	p, dir := testAgent(t)
	if err := os.WriteFile(dir+"/resource.py", []byte("raise ImportError('there is none')"), 0o644); err != nil {
		t.Fatal(err)
	}
	in, err := p.client.Start(t.Context(), wire.StartBody{Runtime: "python", MemoryBytes: 256 << 20, Env: map[string]string{"PYTHONPATH": "/workspace"}})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	cell{Code: "import resource", Fails: "ImportError: there is none"}.Check(t, in)
	cell{Code: "import os, subprocess; subprocess.run(['echo', 'started']); os.system('echo too')", Out: "started\ntoo", Result: "0"}.Check(t, in)
	cell{Code: "pid = os.fork()\nif pid == 0: print('child')\nelse: os.waitpid(pid, 0); print('parent')", Out: "child\nparent"}.Check(t, in)
	cell{Code: "b = bytearray(1 << 30)", Fails: "MemoryError: …", Cause: sandbox.OutOfMemory}.Check(t, in)
}
