//go:build linux

package agent_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/sandbox/wire"
)

// patience bounds what takes a fraction of a second; the machine may be loaded.
const patience = time.Minute

// cell is one run and what it shows. A text that ends in … is the beginning of one.
type cell struct {
	language, code    string
	stdin             string
	out, err, result  string
	fails, hint       string // the error, "Type: message"
	line, exit        int
	displays          string // their types and contents
	args              []string
	cause             sandbox.Cause // 0: Exited
	needs             string        // a module, without which the whole program is skipped
	wall              time.Duration // after which it is interrupted
	state             sandbox.State // 0: Kept
	errHas, resultHas string
}

// testAgent starts one with the host's files, in an empty folder of its own.
func testAgent(t *testing.T) (p *process, dir string) {
	t.Helper()
	requireRoot(t)
	dir = t.TempDir()
	p, err := startAgent(t.Context(), &root{Mounts: []sandbox.Mount{{Guest: "/workspace", Host: dir}, {Guest: "/tmp", Host: t.TempDir()}}, Private: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.close()
		p.quiet(t)
	})
	return p, dir
}

func startIn(t *testing.T, p *process, runtime string) *wire.Instance {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	in, err := p.client.Start(ctx, wire.StartBody{Runtime: runtime, Dir: "/workspace"})
	if err != nil {
		t.Fatalf("starting %s: %v", runtime, err)
	}
	return in
}

// ran is how a cell ended and what it printed.
type ran struct {
	sandbox.Exit
	out, err, displays string
}

func (c cell) run(t *testing.T, in *wire.Instance) ran {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if c.wall > 0 {
		ctx, cancel = context.WithTimeout(t.Context(), c.wall)
		defer cancel()
	}
	var out, err, shown bytes.Buffer
	cmd := sandbox.Command{
		Code: c.code, Language: c.language, Args: c.args, Stdout: &out, Stderr: &err,
		Display: func(d sandbox.Display) { fmt.Fprintf(&shown, "%s %.40q;", d.MIME, d.Data) },
		Limits:  sandbox.RunLimits{DisplayBytes: 20 << 20, Grace: 2 * time.Second},
	}
	if c.stdin != "" {
		cmd.Stdin = strings.NewReader(c.stdin)
	}
	exit, failed := in.Run(ctx, cmd)
	if failed != nil {
		t.Fatalf("%q: %v", c.code, failed)
	}
	return ran{exit, out.String(), err.String(), shown.String()}
}

func matches(got, want string) bool {
	if begin, ok := strings.CutSuffix(want, "…"); ok {
		return strings.HasPrefix(got, begin)
	}
	return got == want
}

func (c cell) check(t *testing.T, in *wire.Instance) {
	t.Helper()
	r := c.run(t, in)
	failed := ""
	if r.Error != nil {
		failed = r.Error.Type + ": " + r.Error.Message
		if c.line != 0 && r.Error.Line != c.line {
			t.Errorf("%q: the error is in line %d, want %d", c.code, r.Error.Line, c.line)
		}
		if !strings.Contains(r.Error.Hint, c.hint) {
			t.Errorf("%q: the hint is %q, want %q", c.code, r.Error.Hint, c.hint)
		}
	}
	if c.cause == 0 {
		c.cause = sandbox.Exited
	}
	if c.state == 0 {
		c.state = sandbox.Kept
	}
	if c.exit == 0 && c.fails != "" {
		c.exit = r.Code // any
		if r.Code == 0 {
			t.Errorf("%q: it failed with code 0", c.code)
		}
	}
	if r.Cause != c.cause || r.State != c.state || r.Code != c.exit || !matches(failed, c.fails) {
		t.Errorf("%q: it %v with code %d, state %v, error %q (stderr %q); want %v, %d, %v, %q", c.code, r.Cause, r.Code, r.State, failed, r.err, c.cause, c.exit, c.state, c.fails)
	}
	if !matches(strings.TrimRight(r.out, "\n"), c.out) || !matches(r.Result, c.result) || !matches(r.displays, c.displays) {
		t.Errorf("%q: it printed %q, result %q, displays %q; want %q, %q, %q (stderr %q)", c.code, r.out, r.Result, r.displays, c.out, c.result, c.displays, r.err)
	}
	if c.fails == "" && c.errHas == "" && !matches(r.err, c.err) || !strings.Contains(r.err, c.errHas) || !strings.Contains(r.Result, c.resultHas) {
		t.Errorf("%q: stderr %q, result %q", c.code, r.err, r.Result)
	}
}

// testPrograms runs each program's cells in a kernel of its own, all of them in
// one agent.
func testPrograms(t *testing.T, runtime string, programs map[string][]cell) {
	p, _ := testAgent(t)
	for name, cells := range programs {
		t.Run(name, func(t *testing.T) {
			in := startIn(t, p, runtime)
			defer in.Close()
			for _, c := range cells {
				if c.needs != "" {
					r := cell{code: "import " + c.needs}.run(t, in)
					sandboxtest.Require(t, "packages", r.Code == 0, "there is no "+c.needs)
					continue
				}
				c.check(t, in)
			}
		})
	}
}

func TestPythonPrograms(t *testing.T) { testPrograms(t, "python", pythonPrograms) }

func TestJavaScriptPrograms(t *testing.T) { testPrograms(t, "javascript", javascriptPrograms) }

func TestBashPrograms(t *testing.T) { testPrograms(t, "bash", bashPrograms) }

var pythonPrograms = map[string][]cell{
	"values and state": {
		{code: "x = 6\nx * 7", result: "42"}, {code: "_", result: "42"}, {code: "x", result: "6"}, {code: "None"},
		{code: "class C: pass\nC", result: "<class '__main__.C'>"},
		{code: "import pickle; type(pickle.loads(pickle.dumps(C()))) is C", result: "True"},
		{code: "'x' * 100000", result: "'xxx…", displays: "text/plain …"},
		{code: "list(range(100000))", result: "[0, 1, 2…"},
	},
	"tracebacks show the program's lines": {
		{code: "def f():\n    import json\n    json.loads('{')"},
		{code: "\nf()", fails: "JSONDecodeError: …", line: 2, errHas: `File "<cell 1>", line 3, in f`},
		{code: "1 / 0", fails: "ZeroDivisionError: division by zero", line: 1, errHas: "Traceback (most recent call last):\n  File \"<cell 3>\", line 1, in <module>\n"},
		{code: "x = = 1", fails: "SyntaxError: …", line: 1},
		{code: "try:\n    1/0\nexcept Exception as e:\n    raise KeyError('k') from e", fails: "KeyError: 'k'", line: 4, errHas: "direct cause"},
		{code: "open('lib.py','w').write('def g():\\n    raise ValueError(1)\\n'); import lib\nlib.g()", fails: "ValueError: 1", line: 2, errHas: "/workspace/lib.py"},
		{code: "import nothing_like_it", fails: "ModuleNotFoundError: …", hint: "not installed"},
	},
	"await at the top level": {
		{code: "import asyncio\nasync def f(n):\n    await asyncio.sleep(0.01)\n    return n\nawait f(3)", result: "3"},
		{code: "sum(await asyncio.gather(*(f(n) for n in range(5))))", result: "10"},
		{code: "task = asyncio.create_task(f(9)); 1", fails: "RuntimeError: no running event loop", line: 1, errHas: "never awaited"},
		{code: "await asyncio.sleep(0); task = asyncio.create_task(f(9))"},
		{code: "await task", result: "9"},
		{code: "await asyncio.get_running_loop().run_in_executor(None, lambda: 5)", result: "5"},
		{code: "p = await asyncio.create_subprocess_exec('echo', 'child', stdout=asyncio.subprocess.PIPE); (await p.communicate())[0]", result: `b'child\n'`},
		{code: "asyncio.run(f(4))", result: "4"},
		{code: "await f(5)", result: "5"},
		{code: "kept = 1\ntry:\n    await asyncio.sleep(3600)\nfinally:\n    print('cleaned up')", wall: 300 * time.Millisecond, cause: sandbox.TimedOut, fails: "KeyboardInterrupt: …", out: "cleaned up"},
		{code: "kept", result: "1"},
		{code: "async with asyncio.Lock(): print('locked')", out: "locked"},
	},
	"interrupts": {
		{code: "x = 1\nwhile True: x += 1", wall: 200 * time.Millisecond, cause: sandbox.TimedOut, fails: "KeyboardInterrupt: …", line: 2},
		{code: "x > 1", result: "True"},
		{code: "import subprocess; subprocess.run(['sleep', '3600'])", wall: 200 * time.Millisecond, cause: sandbox.TimedOut, fails: "KeyboardInterrupt: …"},
		{code: "import os; os.system('sleep 3600')", wall: 200 * time.Millisecond, cause: sandbox.TimedOut, exit: 1, result: "2"},
		{code: "input()", stdin: "", fails: "EOFError: …", hint: "standard input"},
		{code: "x > 1", result: "True"},
		{code: "try:\n    while True:\n        x += 1\nexcept KeyboardInterrupt:\n    print('caught')", wall: 200 * time.Millisecond, cause: sandbox.TimedOut, exit: 1, out: "caught"},
	},
	"input": {
		{code: "a = input('name? '); b = input(); (a, b)", stdin: "Ann\nBob\nmore", out: "name? ", result: "('Ann', 'Bob')"},
		{code: "import sys; sys.stdin.read()", result: "''"},
		{code: "sys.stdin.buffer.read(3)", stdin: "abcdef", result: "b'abc'"},
		{code: "[l for l in sys.stdin]", stdin: "1\n2\n", result: `['1\n', '2\n']`},
	},
	"ending": {
		{code: "import sys; sys.exit(3)", exit: 3}, {code: "exit()"}, {code: "raise SystemExit('why')", exit: 1, err: "why\n"},
		{code: "import os; print('gone', flush=True); os._exit(5)", exit: 5, out: "gone", state: sandbox.Fresh},
		{code: "import os; os.kill(os.getpid(), 11)", exit: 1, cause: sandbox.Crashed, state: sandbox.Fresh, fails: "Crash: the interpreter was ended by the signal SIGSEGV"},
		{code: "1 + 1", result: "2"},
	},
	"processes and threads of the program": {
		{code: "import subprocess; subprocess.run('echo out; echo err >&2', shell=True, check=True).returncode", out: "out", err: "err\n", result: "0"},
		{code: "import os\npid = os.fork()\nif pid == 0: print('child')\nelse: os.waitpid(pid, 0); print('parent')", out: "child\nparent"},
		{code: "import multiprocessing as mp\ndef f(x): return x * x\nwith mp.get_context('fork').Pool(2) as p: print(p.map(f, [1, 2, 3]))", out: "[1, 4, 9]"},
		{code: "import threading; t = threading.Thread(target=lambda: print('thread')); t.start(); t.join()", out: "thread"},
		{code: "import resource; subprocess.run(['bash', '-c', 'ulimit -Sv; ulimit -c'], stdout=subprocess.PIPE, text=True).stdout", result: `'unlimited\n0\n'`},
		{code: "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(4) as e: print(sum(e.map(lambda n: n, range(10))))", out: "45"},
	},
	"displays": {
		{code: "class P:\n    def _repr_png_(self): return b'png'\n    def __repr__(self): return 'P()'\nP()", result: "P()", displays: `image/png "png";`},
		{code: "class H:\n    def _repr_html_(self): return '<b>'\ndisplay(H(), 3)", out: "3", displays: `text/html "<b>";`},
		{code: "class M:\n    def _repr_markdown_(self): return '# t'\nM(); display(M())", displays: `text/markdown "# t";`},
		{code: "class J: pass\nJ.__module__ = 'plotly.graph_objs'; J.to_json = lambda self: '{\"data\":[]}'\ndisplay(J())", displays: `application/vnd.plotly.v1+json "{\"data\":[]}";`},
		{code: "import sys, types\nm = types.ModuleType('matplotlib.pyplot')\nclass F:\n    def savefig(self, to, format): to.write(b'figure')\nm.get_fignums = lambda: [1]; m.figure = lambda n: F(); m.close = lambda what: setattr(m, 'get_fignums', lambda: [])\nsys.modules[m.__name__] = m; 1", result: "1", displays: `image/png "figure";`},
	},
	"matplotlib": {
		{needs: "matplotlib"},
		{code: "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()", displays: `image/png "\x89PNG…`},
		{code: "plt.get_fignums()", result: "[]"},
	},
	"pandas": {
		{needs: "pandas"},
		{code: "import pandas as pd; pd.DataFrame({'a': [1, 2]})", result: "   a\n0  1\n1  2", displays: `text/html "<div…`},
	},
	"pictures": {
		{needs: "PIL"},
		{code: "from PIL import Image; Image.new('RGB', (2, 2))", result: "<PIL.Image.Image image mode=RGB size=2x2…", displays: `image/png "\x89PNG…`},
	},
	"what a program changes is its own affair": {
		{code: "import json, builtins, sys; json.dumps = None; builtins.print = None; sys.stdout = None; del builtins.len"},
		{code: "1 + 1", result: "2"},
		{code: "open('json.py', 'w').write('boom'); import os; os.close(1)"},
		{code: "2 + 2", result: "4"},
		{code: "1 / 0", fails: "ZeroDivisionError: …"},
	},
	"memory that is not there": {
		{code: "x = 1\nb = bytearray(1 << 45)", fails: "MemoryError: …", cause: sandbox.OutOfMemory},
		{code: "x", result: "1"},
	},
}

var bashPrograms = map[string][]cell{
	"state": {
		{code: "cd /tmp; x='a b'; export E=1; f() { echo \"f $1\"; }; arr=(1 2); declare -A m=([k]=v); shopt -s nullglob"},
		{code: "echo $PWD \"$x\" ${arr[1]} ${m[k]}; f 1; bash -c 'echo $E'", out: "/tmp a b 2 v\nf 1\n1"},
		{code: "echo \"$1-$2\"", args: []string{"a b", "it's"}, out: "a b-it's"},
		{code: "(exit 4)", exit: 4, fails: "CommandError: the last command ended with status 4"},
		{code: "echo $?", out: "0"},
	},
	"ending keeps the state": {
		{code: "a=1; g() { local l=2; exit 5; }; g; echo no", exit: 5},
		{code: "echo $a ${l-unset}", out: "1 unset"},
		{code: "b=2; set -euo pipefail; false | true; echo no", exit: 1, fails: "CommandError: …"},
		{code: "echo $b $-; false; echo yes", out: "2 hB…"},
		{code: "exec 5>kept; echo into >&5; exit 0"},
		{code: "echo more >&5; cat kept", out: "into\nmore"},
		{code: "trap 'echo at the end' EXIT; echo begin", out: "begin\nat the end"},
		{code: "trap 'echo at the end' EXIT; exit 6", out: "at the end", exit: 6},
		{code: "trap -p EXIT | grep -c 'at the end' || true", out: "0"},
		{code: "exec true", exit: 0, state: sandbox.Fresh},
		{code: "echo ${a-fresh}", out: "fresh"},
	},
	"errors": {
		{code: "echo one\n\nnosuchcommand", out: "one", exit: 127, fails: "CommandError: nosuchcommand: command not found", line: 3},
		{code: "if then", fails: "SyntaxError: …", line: 1},
		{code: "x=1\nreadonly r=1\nr=2; echo no", fails: "CommandError: r: readonly variable", line: 3},
		{code: "echo 'unfinished", fails: "SyntaxError: …"},
		{code: "grep x /dev/null", exit: 1, fails: "CommandError: the last command ended with status 1"},
	},
	"interrupts": {
		{code: "k=1; sleep 3600; echo no", wall: 200 * time.Millisecond, cause: sandbox.TimedOut, fails: "Interrupted: …"},
		{code: "echo $k; k=2; while :; do :; done", out: "1", wall: 200 * time.Millisecond, cause: sandbox.TimedOut, fails: "Interrupted: …"},
		{code: "echo $k; cat /dev/zero | sleep 3600", out: "2", wall: 300 * time.Millisecond, cause: sandbox.TimedOut, fails: "Interrupted: …"},
		{code: "read -r l", stdin: "", exit: 1, fails: "CommandError: …"},
		{code: "echo $k", out: "2"},
	},
	"input": {
		{code: "read -r a; echo \"<$a>\"; cat", stdin: "one\ntwo\nthree", out: "<one>\ntwo\nthree"},
		{code: "cat", out: ""},
		{code: "wc -c", stdin: strings.Repeat("x", 300000), out: "300000"},
		{code: "head -c 3", stdin: strings.Repeat("y", 300000), out: "yyy"},
		{code: "exit 3", stdin: "not read", exit: 3},
		{code: "wc -c", stdin: "1", out: "1"},
	},
	"output": {
		{code: "echo out; echo err >&2; printf 'a\\0b' | od -An -c", out: "out\n   a  \\0   b", err: "err\n"},
		{code: "exec >/dev/null 2>&1; echo lost"},
		{code: "echo found", out: "found"},
		{code: "seq 1 100000 | tail -1", out: "100000"},
	},
	"what it inherits": {
		{code: "ls -l /proc/self/fd | sed -n 's/.* \\([0-9]*\\) -> .*/\\1/p' | tr '\\n' ' '", out: "0 1 2 3 "},
		{code: "ulimit -c; ulimit -n; grep -c . <(grep SigIgn /proc/self/status)", out: "0\n1024\n1"},
		{code: "trap", out: "…"},
	},
}
