//go:build linux

package agent_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/sandbox/wire"
)

// timeout bounds what takes a fraction of a second; the machine may be loaded.
const timeout = time.Minute

type cell = sandboxtest.Cell

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
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	in, err := p.client.Start(ctx, wire.StartBody{Runtime: runtime, Dir: "/workspace"})
	if err != nil {
		t.Fatalf("starting %s: %v", runtime, err)
	}
	return in
}

// testPrograms runs each program's cells in a kernel of its own, all of them in
// one agent, and each in an empty folder.
func testPrograms(t *testing.T, runtime string, programs map[string][]cell) {
	p, dir := testAgent(t)
	for name, cells := range programs {
		t.Run(name, func(t *testing.T) {
			in := startIn(t, p, runtime)
			defer empty(t, dir)
			defer in.Close()
			for _, c := range cells {
				c.Check(t, in)
			}
		})
	}
}

// empty removes what is in a folder.
func empty(t *testing.T, dir string) {
	all, err := os.ReadDir(dir)
	for _, e := range all {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	if err != nil {
		t.Error(err)
	}
}

func TestPythonPrograms(t *testing.T) { testPrograms(t, "python", pythonPrograms) }

func TestJavaScriptPrograms(t *testing.T) {
	testPrograms(t, "javascript", sandboxtest.JavaScriptPrograms)
	testPrograms(t, "javascript", javascriptPrograms)
}

func TestBashPrograms(t *testing.T) { testPrograms(t, "bash", bashPrograms) }

var pythonPrograms = map[string][]cell{
	"values and state": {
		{Code: "x = 6\nx * 7", Result: "42"}, {Code: "_", Result: "42"}, {Code: "x", Result: "6"}, {Code: "None"},
		{Code: "class C: pass\nC", Result: "<class '__main__.C'>"},
		{Code: "import pickle; type(pickle.loads(pickle.dumps(C()))) is C", Result: "True"},
		{Code: "'x' * 100000", Result: "'xxx…", Displays: "text/plain …"},
		{Code: "list(range(100000))", Result: "[0, 1, 2…"},
	},
	"memory that is given back stays with the interpreter, and how is a matter of its own": {
		{Code: "for _ in range(3): big = bytearray(20 << 20); del big"},
		{Code: "a, _, b = next(line for line in open('/proc/self/maps') if '[heap]' in line).split()[0].partition('-')\nint(b, 16) - int(a, 16) > 20 << 20", Result: "True"},
		{Code: "import os, subprocess, sys\n[name for name in os.environ if 'MALLOC' in name], b'MALLOC' in subprocess.run(['env'], capture_output=True).stdout, sys.argv", Result: "([], False, [''])"},
	},
	"tracebacks show the program's lines": {
		{Code: "def f():\n    import json\n    json.loads('{')"},
		{Code: "\nf()", Fails: "JSONDecodeError: …", Line: 2, Err: `File "<cell 1>", line 3, in f`},
		{Code: "1 / 0", Fails: "ZeroDivisionError: division by zero", Line: 1, Err: "Traceback (most recent call last):\n  File \"<cell 3>\", line 1, in <module>\n"},
		{Code: "x = = 1", Fails: "SyntaxError: …", Line: 1},
		{Code: "try:\n    1/0\nexcept Exception as e:\n    raise KeyError('k') from e", Fails: "KeyError: 'k'", Line: 4, Err: "direct cause"},
		{Code: "open('lib.py','w').write('def g():\\n    raise ValueError(1)\\n'); import lib\nlib.g()", Fails: "ValueError: 1", Line: 2, Err: "/workspace/lib.py"},
		{Code: "import nothing_like_it", Fails: "ModuleNotFoundError: …", Hint: "not installed"},
	},
	"await at the top level": {
		{Code: "import asyncio\nasync def f(n):\n    await asyncio.sleep(0.01)\n    return n\nawait f(3)", Result: "3"},
		{Code: "sum(await asyncio.gather(*(f(n) for n in range(5))))", Result: "10"},
		{Code: "task = asyncio.create_task(f(9)); 1", Fails: "RuntimeError: no running event loop", Line: 1, Err: "never awaited"},
		{Code: "await asyncio.sleep(0); task = asyncio.create_task(f(9))"},
		{Code: "await task", Result: "9"},
		{Code: "await asyncio.get_running_loop().run_in_executor(None, lambda: 5)", Result: "5"},
		{Code: "p = await asyncio.create_subprocess_exec('echo', 'child', stdout=asyncio.subprocess.PIPE); (await p.communicate())[0]", Result: `b'child\n'`},
		{Code: "asyncio.run(f(4))", Result: "4"},
		{Code: "await f(5)", Result: "5"},
		{Code: "kept = 1\ntry:\n    print('on')\n    await asyncio.sleep(3600)\nfinally:\n    print('cleaned up')", Told: true, Wall: 100 * time.Millisecond, Cause: sandbox.TimedOut, Fails: "KeyboardInterrupt: …", Out: "on\ncleaned up"},
		{Code: "kept", Result: "1"},
		{Code: "async with asyncio.Lock(): print('locked')", Out: "locked"},
	},
	"interrupts": {
		{Code: "x = 1; print('on')\nwhile True: x += 1", Out: "on", Told: true, Wall: 100 * time.Millisecond, Cause: sandbox.TimedOut, Fails: "KeyboardInterrupt: …", Line: 2},
		{Code: "x > 1", Result: "True"},
		{Code: "import subprocess; subprocess.run(['sleep', '3600'])", Wall: 200 * time.Millisecond, Cause: sandbox.TimedOut, Fails: "KeyboardInterrupt: …"},
		{Code: "import os; os.system('echo on; sleep 3600')", Out: "on", Told: true, Wall: 100 * time.Millisecond, Cause: sandbox.TimedOut, Exit: 1, Result: "2"},
		{Code: "input()", Stdin: "", Fails: "EOFError: …", Hint: "standard input"},
		{Code: "x > 1", Result: "True"},
		{Code: "try:\n    print('on')\n    while True:\n        x += 1\nexcept KeyboardInterrupt:\n    print('caught')", Told: true, Wall: 100 * time.Millisecond, Cause: sandbox.TimedOut, Exit: 1, Out: "on\ncaught"},
	},
	"input": {
		{Code: "a = input('name? '); b = input(); (a, b)", Stdin: "Ann\nBob\nmore", Out: "name? ", Result: "('Ann', 'Bob')"},
		{Code: "import sys; sys.stdin.read()", Result: "''"},
		{Code: "sys.stdin.buffer.read(3)", Stdin: "abcdef", Result: "b'abc'"},
		{Code: "[l for l in sys.stdin]", Stdin: "1\n2\n", Result: `['1\n', '2\n']`},
	},
	"ending": {
		{Code: "import sys; sys.exit(3)", Exit: 3}, {Code: "exit()"}, {Code: "raise SystemExit('why')", Exit: 1, Err: "why\n"},
		{Code: "import os; print('gone', flush=True); os._exit(5)", Exit: 5, Out: "gone", State: sandbox.Fresh},
		{Code: "import os; os.kill(os.getpid(), 11)", Exit: 1, Cause: sandbox.Crashed, State: sandbox.Fresh, Fails: "Crash: the interpreter was ended by the signal SIGSEGV"},
		{Code: "1 + 1", Result: "2"},
	},
	"processes and threads of the program": {
		{Code: "import subprocess; subprocess.run('echo out; echo err >&2', shell=True, check=True).returncode", Out: "out", Err: "err\n", Result: "0"},
		{Code: "import os\npid = os.fork()\nif pid == 0: print('child')\nelse: os.waitpid(pid, 0); print('parent')", Out: "child\nparent"},
		{Code: "if os.fork() == 0:\n    if os.fork() == 0: print('grandchild', flush=True); os._exit(0)\n    os.wait(); os._exit(0)\nos.wait()[1]", Out: "grandchild", Result: "0"},
		{Code: "import multiprocessing as mp\ndef f(x): return x * x\nwith mp.get_context('fork').Pool(2) as p: print(p.map(f, [1, 2, 3]))", Out: "[1, 4, 9]"},
		{Code: "import threading; t = threading.Thread(target=lambda: print('thread')); t.start(); t.join()", Out: "thread"},
		{Code: "import resource; subprocess.run(['bash', '-c', 'ulimit -Sv; ulimit -c'], stdout=subprocess.PIPE, text=True).stdout", Result: `'unlimited\n0\n'`},
		{Code: "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(4) as e: print(sum(e.map(lambda n: n, range(10))))", Out: "45"},
	},
	"what is too much to compile or to nest": {
		{Code: "eval('(' * 100000)", Fails: "SyntaxError: …"}, {Code: "import json; json.loads('[' * 100000)", Fails: "RecursionError: …"},
		{Code: "eval('+'.join('1' * 200000))", Fails: "RecursionError: …"}, {Code: "def f(): f()\nf()", Fails: "RecursionError: …"},
		{Code: "x = []\nfor n in range(100000): x = [x]\nrepr(x)", Fails: "RecursionError: …"}, {Code: "1 + 1", Result: "2"},
	},
	"displays": {
		{Code: "class P:\n    def _repr_png_(self): return b'png'\n    def __repr__(self): return 'P()'\nP()", Result: "P()", Displays: `image/png "png";`},
		{Code: "class H:\n    def _repr_html_(self): return '<b>'\ndisplay(H(), 3)", Out: "3", Displays: `text/html "<b>";`},
		{Code: "class M:\n    def _repr_markdown_(self): return '# t'\nM(); display(M())", Displays: `text/markdown "# t";`},
		{Code: "class J: pass\nJ.__module__ = 'plotly.graph_objs'; J.to_json = lambda self: '{\"data\":[]}'\ndisplay(J())", Displays: `application/vnd.plotly.v1+json "{\"data\":[]}";`},
		{Code: "class A: pass\nA.__module__ = 'altair.vegalite'; A.to_json = lambda self: '{\"$schema\":\"/vega-lite/v4.1\"}'\ndisplay(A())",
			Displays: `application/vnd.vegalite.v4+json "{\"$schema\":\"/vega-lite/v4.1\"}";`},
		{Code: "import importlib, os\nos.mkdir('plotly')\nopen('plotly/__init__.py', 'w').close()\nopen('plotly/basedatatypes.py', 'w').write('class BaseFigure:\\n    def to_json(self): return \"{}\"\\n    def show(self): raise OSError(\"no browser\")\\n')\n" +
			"importlib.invalidate_caches()\nfrom plotly.basedatatypes import BaseFigure\nBaseFigure().show()", Displays: `application/vnd.plotly.v1+json "{}";`},
		{Code: "import sys, types\nm = types.ModuleType('matplotlib.pyplot')\nclass F:\n    def savefig(self, to, format): to.write(b'figure')\nm.get_fignums = lambda: [1]; m.figure = lambda n: F(); m.close = lambda what: setattr(m, 'get_fignums', lambda: [])\nsys.modules[m.__name__] = m; 1", Result: "1", Displays: `image/png "figure";`},
	},
	"matplotlib": {
		{Needs: "matplotlib"},
		{Code: "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()", Displays: `image/png "\x89PNG…`},
		{Code: "plt.get_fignums()", Result: "[]"},
	},
	"pandas": {
		{Needs: "pandas"},
		{Code: "import pandas as pd; pd.DataFrame({'a': [1, 2]})", Result: "   a\n0  1\n1  2", Displays: `text/html "<div…`},
	},
	"pictures": {
		{Needs: "PIL"},
		{Code: "from PIL import Image; Image.new('RGB', (2, 2))", Result: "<PIL.Image.Image image mode=RGB size=2x2…", Displays: `image/png "\x89PNG…`},
	},
	"what a program changes is its own affair": {
		{Code: "import json, builtins, sys; json.dumps = None; builtins.print = None; sys.stdout = None; del builtins.len"},
		{Code: "1 + 1", Result: "2"},
		{Code: "open('json.py', 'w').write('boom'); import os; os.close(1)"},
		{Code: "2 + 2", Result: "4"},
		{Code: "1 / 0", Fails: "ZeroDivisionError: …"},
	},
	"memory that is not there": {
		{Code: "x = 1\nb = bytearray(1 << 45)", Fails: "MemoryError: …", Cause: sandbox.OutOfMemory},
		{Code: "x", Result: "1"},
	},
}

var bashPrograms = map[string][]cell{
	"state": {
		{Code: "cd /tmp; x='a b'; export E=1; f() { echo \"f $1\"; }; arr=(1 2); declare -A m=([k]=v); shopt -s nullglob"},
		{Code: "echo $PWD \"$x\" ${arr[1]} ${m[k]}; f 1; bash -c 'echo $E'", Out: "/tmp a b 2 v\nf 1\n1"},
		{Code: "echo \"$1-$2\"", Args: []string{"a b", "it's"}, Out: "a b-it's"},
		{Code: "(exit 4)", Exit: 4, Fails: "CommandError: the last command ended with status 4"},
		{Code: "echo $?", Out: "0"},
	},
	"ending keeps the state": {
		{Code: "a=1; g() { local l=2; exit 5; }; g; echo no", Exit: 5},
		{Code: "echo $a ${l-unset}", Out: "1 unset"},
		{Code: "b=2; set -euo pipefail; false | true; echo no", Exit: 1, Fails: "CommandError: …"},
		{Code: "echo $b $-; false; echo yes", Out: "2 hB…"},
		{Code: "exec 5>kept; echo into >&5; exit 0"},
		{Code: "echo more >&5; cat kept", Out: "into\nmore"},
		{Code: "trap 'echo at the end' EXIT; echo begin", Out: "begin\nat the end"},
		{Code: "trap 'echo at the end' EXIT; exit 6", Out: "at the end", Exit: 6},
		{Code: "trap -p EXIT | grep -c 'at the end' || true", Out: "0"},
		{Code: "exec true", Exit: 0, State: sandbox.Fresh},
		{Code: "echo ${a-fresh}", Out: "fresh"},
	},
	"errors": {
		{Code: "echo one\n\nnosuchcommand", Out: "one", Exit: 127, Fails: "CommandError: nosuchcommand: command not found", Line: 3},
		{Code: "if then", Fails: "SyntaxError: …", Line: 1},
		{Code: "x=1\nreadonly r=1\nr=2; echo no", Fails: "CommandError: r: readonly variable", Line: 3},
		{Code: "echo 'unfinished", Fails: "SyntaxError: …"},
		{Code: "grep x /dev/null", Exit: 1, Fails: "CommandError: the last command ended with status 1"},
	},
	"interrupts": {
		{Code: "k=1; echo on; sleep 3600; echo no", Out: "on", Told: true, Wall: 100 * time.Millisecond, Cause: sandbox.TimedOut, Fails: "Interrupted: …"},
		{Code: "old=$k; k=2; echo $old; while :; do :; done", Out: "1", Told: true, Wall: 100 * time.Millisecond, Cause: sandbox.TimedOut, Fails: "Interrupted: …"},
		{Code: "echo $k; cat /dev/zero | sleep 3600", Out: "2", Told: true, Wall: 100 * time.Millisecond, Cause: sandbox.TimedOut, Fails: "Interrupted: …"},
		{Code: "read -r l", Stdin: "", Exit: 1, Fails: "CommandError: …"},
		{Code: "echo $k", Out: "2"},
	},
	"input": {
		{Code: "read -r a; echo \"<$a>\"; cat", Stdin: "one\ntwo\nthree", Out: "<one>\ntwo\nthree"},
		{Code: "cat", Out: ""},
		{Code: "wc -c", Stdin: strings.Repeat("x", 300000), Out: "300000"},
		{Code: "head -c 3", Stdin: strings.Repeat("y", 300000), Out: "yyy"},
		{Code: "exit 3", Stdin: "not read", Exit: 3},
		{Code: "wc -c", Stdin: "1", Out: "1"},
	},
	"output": {
		{Code: "echo out; echo err >&2; printf 'a\\0b' | od -An -c", Out: "out\n   a  \\0   b", Err: "err\n"},
		{Code: "exec >/dev/null 2>&1; echo lost"},
		{Code: "echo found", Out: "found"},
		{Code: "seq 1 100000 | tail -1", Out: "100000"},
		{Code: "exec >into 2>&1 <into; echo one; nosuchcommand", Exit: 127, Fails: "CommandError: …"},
		{Code: "cat; wc -l into", Out: "2 into"},
		{Code: "exec 0<&- 1>&- 2>&-; echo lost", Exit: 1, Fails: "CommandError: …"},
		{Code: "echo found; cat; echo too >&2", Out: "found", Err: "too\n"},
		{Code: "exec 1>&-; exit 7", Exit: 7},
		{Code: "cat <&0; echo found", Out: "found"},
		{Code: "exec 200>lock; flock -n 200 && echo locked", Out: "locked"},
		{Code: "echo more >&200; cat lock", Out: "more"},
		{Code: "(flock -n 241; echo inner) 241>lock 240>other; { echo outer; } 240>other", Out: "inner\nouter"},
		{Code: "echo ö" + strings.Repeat("é", 700), Out: "ö" + strings.Repeat("é", 700)},
		{Code: "echo ö" + strings.Repeat("é", 100) + "; echo ü", Out: "ö" + strings.Repeat("é", 100) + "\nü"},
	},
	"what the driver does is not shown": {
		{Code: "set -x; echo 1", Out: "1", Err: "+ echo 1\n"},
		{Code: "set -xu; echo 2", Out: "2", Err: "+ echo 2\n"},
		{Code: "trap 'echo before' DEBUG; echo 3; exit 0", Out: "before\n3\n…"},
		{Code: "echo 4; trap 'echo before' DEBUG; echo 5", Out: "4\nbefore\n…"},
		{Code: "echo 6; trap 'echo woken' USR1; kill -USR1 $BASHPID", Out: "6\nwoken"},
		{Code: "kill -USR1 $BASHPID; echo 7", Out: "woken\n7"},
	},
	"what it inherits": {
		{Code: "ls /proc/self/fd | xargs; (ls /proc/self/fd) <<<x | xargs; exec 6</dev/null; ls /proc/self/fd | xargs; exec 6<&-", Out: "0 1 2 3\n0 1 2 3\n0 1 2 3 6"},
		{Code: "ls /proc/self/fd | xargs", Stdin: "x", Out: "0 1 2 3"},
		{Code: "ls -l /proc/self/fd | sed -n 's/.* \\([0-9]*\\) -> .*/\\1/p' | tr '\\n' ' '", Out: "0 1 2 3 "},
		{Code: "ulimit -c; ulimit -n; grep -c . <(grep SigIgn /proc/self/status)", Out: "0\n1024\n1"},
		{Code: "trap", Out: "…"},
	},
}
