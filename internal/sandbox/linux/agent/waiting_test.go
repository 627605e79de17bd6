//go:build linux

package agent_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
)

const pythonTool = "import asyncio, servers\n@servers.tool('s', 't', {'text': 'text'})\ndef it(text): ''\n"

// leave runs a program, and has it left once it has made so many calls; want is what it
// has printed by then.
func leave(t *testing.T, in *wire.Instance, code string, calls int, want string) sandbox.Exit {
	t.Helper()
	suspend, asked := make(chan struct{}), make(chan struct{}, sandbox.CallsAtOnce)
	go func() {
		for range calls {
			<-asked
		}
		close(suspend)
	}()
	return going(t, in, want, sandbox.Command{Code: code, Suspend: suspend, Call: func(ctx context.Context, c sandbox.Call) []byte {
		asked <- struct{}{}
		<-ctx.Done()
		return nil
	}})
}

// going runs a command, checks what it prints, and gives how it ended.
func going(t *testing.T, in *wire.Instance, want string, cmd sandbox.Command) sandbox.Exit {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	var out, failed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failed
	exit, err := in.Run(ctx, cmd)
	if err != nil {
		t.Fatalf("running it: %v", err)
	}
	if got := strings.TrimSpace(out.String()); got != want {
		t.Errorf("it %v, and printed %q, want %q (stderr %q)", exit.Cause, got, want, failed.String())
	}
	return exit
}

// after continues a program that was left, whose calls are answered with their numbers.
func after(t *testing.T, in *wire.Instance, from sandbox.Exit, want string) sandbox.Exit {
	t.Helper()
	return going(t, in, want, sandbox.Command{
		Continue: &sandbox.Continuation{Calls: from.Calls, Open: from.Open},
		Call:     func(_ context.Context, c sandbox.Call) []byte { return fmt.Appendf(nil, `{"value":%d}`, c.Number) },
	})
}

func TestProgramsAreLeftWhereTheyWaitForCalls(t *testing.T) {
	p, _ := testAgent(t)
	for _, c := range []struct {
		name, runtime, code string
		calls               int
		before, after       string
	}{
		{"a call that blocks", "python", pythonTool + "print('be', end='')\nprint(it('a'))\nprint(it('b'))", 1, "be", "1\n2"},
		{"a call that blocks, in a coroutine", "python", pythonTool + "async def f(): return it('a')\nprint(await f())", 1, "", "1"},
		{"a loop of its own", "python", pythonTool + "async def f(): return await it.aio('a')\nprint(asyncio.run(f()))", 1, "", "1"},
		{"a call that blocks in another thread", "python", pythonTool + "print(await asyncio.gather(asyncio.to_thread(lambda: it('a')), asyncio.sleep(0, 'slept')))", 1, "", "[1, 'slept']"},
		{"a call that blocks in a finally", "python", pythonTool + "try:\n    1 / 0\nexcept ZeroDivisionError:\n    pass\nfinally:\n    print(it('a'))", 1, "", "1"},
		{"some calls, and time", "python", pythonTool + "async def f():\n    await asyncio.sleep(0.3)\n    return 'slept'\nprint(await asyncio.gather(it.aio('a'), asyncio.wait_for(it.aio('b'), 600), f()))", 2, "", "[1, 2, 'slept']"},
		{"when something else has ended", "python", pythonTool + "p = await asyncio.create_subprocess_exec('echo', 'said', stdout=asyncio.subprocess.PIPE)\nasync def f(): print((await p.communicate())[0].decode())\nprint(await asyncio.gather(f(), it.aio('a')))", 1, "said", "[None, 1]"},
		{"calls and a timer", "javascript", "const { call } = await import('servers');\nlet late = 'early';\nsetTimeout(() => { late = 'late'; }, 300);\nconst all = await Promise.all([call('s', 't'), call('s', 't')]);\nawait new Promise((done) => setTimeout(done, 400));\nconsole.log(all, late);", 2, "", "[ 1, 2 ] late"},
		{"when something else has ended", "javascript", "const { call } = await import('servers');\nconst said = new Promise((done) => require('child_process').execFile('echo', ['said'], (_, text) => { console.log(text.trim()); done(); }));\nconsole.log(await Promise.all([call('s', 't'), said]));", 1, "said", "[ 1, undefined ]"},
	} {
		t.Run(c.runtime+": "+c.name, func(t *testing.T) {
			in := startIn(t, p, c.runtime)
			defer in.Close()
			cell{Code: "there = 41"}.Run(t, in)
			left := leave(t, in, c.code, c.calls, c.before)
			if left.Cause != sandbox.Waiting || left.State != sandbox.Kept || left.Code != 0 || len(left.Open) != c.calls {
				t.Fatalf("it %v, %+v", left.Cause, left)
			}
			found, err := in.Inspect(t.Context())
			if err != nil || !strings.Contains(fmt.Sprint(found.Variables), "there") {
				t.Errorf("it holds %v, %v", found.Variables, err)
			}
			if exit := after(t, in, left, c.after); exit.Cause != sandbox.Exited || exit.Error != nil {
				t.Errorf("it %v, %+v", exit.Cause, exit.Error)
			}
			cell{Code: "there + 1", Result: "42"}.Check(t, in)
		})
	}
}

// TestAProgramThatIsLeftDoesNothing looks at what another one finds that runs beside it.
func TestAProgramThatIsLeftDoesNothing(t *testing.T) {
	p, _ := testAgent(t)
	for runtime, code := range map[string]string{
		"python":     pythonTool + "async def f():\n    while True:\n        await asyncio.sleep(0.005)\n        open('count', 'a').write('x')\ntask = asyncio.create_task(f())\nprint(await it.aio('a'))\ntask.cancel()",
		"javascript": "const { call } = await import('servers');\nconst timer = setInterval(() => require('fs').appendFileSync('count', 'x'), 5);\nconsole.log(await call('s', 't'));\nclearInterval(timer);",
	} {
		in, other := startIn(t, p, runtime), startIn(t, p, "bash")
		left := leave(t, in, code, 1, "")
		if left.Cause != sandbox.Waiting {
			t.Fatalf("%s: it %v, %+v", runtime, left.Cause, left.Error)
		}
		cell{Code: "touch count; was=$(wc -c < count); sleep 0.3; echo $(( $(wc -c < count) - was ))", Out: "0"}.Check(t, other)
		after(t, in, left, "1")
		in.Close()
		other.Close()
	}
}

func TestWhatIsLeftMayBeGivenUp(t *testing.T) {
	p, _ := testAgent(t)
	for name, c := range map[string]struct{ runtime, code, then, prints string }{
		"a call that blocks":  {"python", pythonTool + "x = 1\ntry:\n    it('a')\nfinally:\n    x = 2", "print(x)", "2"},
		"a coroutine":         {"python", pythonTool + "x = 1\ntry:\n    await it.aio('a')\nfinally:\n    x = 2", "print(x)", "2"},
		"a loop of its own":   {"python", pythonTool + "x = 1\nasync def f(): await it.aio('a')\nasyncio.run(f())", "print(await it.aio('b'))", "1"},
		"a promise, a timer":  {"javascript", "globalThis.n = 0; const { call } = await import('servers'); setInterval(() => { n++; }, 5); await call('s', 't'); n = 'went on';", "const was = n; await new Promise((done) => setTimeout(done, 100)); console.log(n - was);", "0"},
		"what asks once more": {"python", pythonTool + "x = 1\ntry:\n    it('a')\nfinally:\n    try: it('b')\n    except servers.ToolError as error: x = error.kind", "print(x)", "unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			in := startIn(t, p, c.runtime)
			defer in.Close()
			left := leave(t, in, c.code, 1, "")
			if left.Cause != sandbox.Waiting {
				t.Fatalf("it %v", left.Cause)
			}
			exit := going(t, in, c.prints, sandbox.Command{Code: c.then, Call: func(context.Context, sandbox.Call) []byte { return []byte(`{"value":1}`) }})
			if exit.Cause != sandbox.Exited || exit.State != sandbox.Kept || exit.Error != nil {
				t.Errorf("it %v, state %v, %+v", exit.Cause, exit.State, exit.Error)
			}
			if exit := after(t, in, left, ""); exit.Error == nil || !strings.Contains(exit.Error.Message, "no program that waits") {
				t.Errorf("it %v, %+v", exit.Cause, exit.Error)
			}
		})
	}
}

func TestAProgramThatDoesNotLetItselfBeGivenUpIsStopped(t *testing.T) {
	p, _ := testAgent(t)
	in := startIn(t, p, "python")
	defer in.Close()
	leave(t, in, pythonTool+"while True:\n    try:\n        it('a')\n        break\n    except BaseException:\n        while True: pass", 1, "")
	cell{Code: "1", Cause: sandbox.Crashed, State: sandbox.Fresh, Fails: "Crash: …"}.Check(t, in)
	cell{Code: "1", Result: "1"}.Check(t, in)
}

func TestWhatGoesOnIsInterrupted(t *testing.T) {
	p, _ := testAgent(t)
	for runtime, code := range map[string]string{
		"python":     pythonTool + "x = 41\nawait asyncio.gather(it.aio('a'), it.aio('b'))",
		"javascript": "globalThis.x = 41;\nconst { call } = await import('servers');\nawait Promise.all([call('s', 't'), call('s', 't')]);",
		"blocks":     pythonTool + "x = 41\nimport threading\ndef f():\n    try: it('b')\n    except servers.ToolError: pass\nthreading.Thread(target=f).start()\nit('a')",
	} {
		t.Run(runtime, func(t *testing.T) {
			in := startIn(t, p, strings.Replace(runtime, "blocks", "python", 1))
			defer in.Close()
			left := leave(t, in, code, 2, "")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			exit, err := in.Run(ctx, sandbox.Command{Continue: &sandbox.Continuation{Calls: left.Calls, Open: left.Open}, Call: func(ctx context.Context, _ sandbox.Call) []byte {
				cancel()
				<-ctx.Done()
				return nil
			}})
			if err != nil || exit.Cause != sandbox.Cancelled || exit.State != sandbox.Kept {
				t.Errorf("it %v, state %v, %+v, %v", exit.Cause, exit.State, exit.Error, err)
			}
			cell{Code: "x + 1", Result: "42"}.Check(t, in)
		})
	}
}

// TestWhatAThreadAsksWhileItsProgramIsLeft is answered when that goes on.
func TestWhatAThreadAsksWhileItsProgramIsLeft(t *testing.T) {
	p, _ := testAgent(t)
	in, other := startIn(t, p, "python"), startIn(t, p, "bash")
	defer in.Close()
	defer other.Close()
	left := leave(t, in, pythonTool+`import os, threading, time
def f():
    global x
    while not os.path.exists('go'): time.sleep(0.01)
    open('gone', 'w').close()
    x = it('b')
one = threading.Thread(target=f)
one.start()
y = it('a')
one.join()
print(x, y)`, 1, "")
	if left.Cause != sandbox.Waiting || len(left.Open) != 1 {
		t.Fatalf("it %v, %+v", left.Cause, left.Open)
	}
	cell{Code: "touch go; while [ ! -e gone ]; do sleep 0.01; done"}.Check(t, other)
	after(t, in, left, "2 1")
}

func TestAProgramCannotSayByItselfThatItIsLeft(t *testing.T) {
	p, _ := testAgent(t)
	in := startIn(t, p, "python")
	defer in.Close()
	cell{Code: `
import os, struct
body = b'{"status":"waiting"}'
for fd in range(200, 300):
    for n in range(10):
        try: os.write(fd, struct.pack("<cII", b"a", n, len(body)) + body)
        except OSError: pass
while True: pass`, Cause: sandbox.Crashed, State: sandbox.Fresh, Fails: "Crash: …"}.Check(t, in)
	cell{Code: "1", Result: "1"}.Check(t, in)
}
