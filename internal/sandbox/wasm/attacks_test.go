package wasm_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"paddock/internal/sandbox"
)

// attacks are programs that try what SECURITY.md names, by the number there.
// Each cell says what has to come of it.
var attacks = map[string][]cell{
	"1 fork bomb": {
		{code: "import os\nprint(hasattr(os, 'fork'), hasattr(os, 'posix_spawn'), hasattr(os, 'execv'))", out: "False False False"},
		{code: "import threading; threading.Thread(target=print).start()", fails: "RuntimeError: can't start new thread"},
		{code: "import subprocess; subprocess.run(['true'])", fails: "OSError: …"},
		{code: "import multiprocessing; multiprocessing.Process(target=print).start()", fails: "…"},
		{code: "import concurrent.futures as f; f.ThreadPoolExecutor().submit(print)", fails: "RuntimeError: can't start new thread"},
		{code: "os.system('true')", fails: "AttributeError: …"},
		{language: "javascript", code: "require('child_process')", fails: "…"},
		{language: "javascript", code: "new Worker('x.js')", fails: "ReferenceError: …"},
	},
	"6 results without end": {
		{code: "class R:\n  def __repr__(self): return 'r' * 10**7\nlen(repr(R()))", result: "10000000"},
		{code: "R(); None"},
		{code: "l = []; l.append(l); l", result: "[[...]]"},
		{language: "javascript", code: "const o = {}; o.o = o; o", result: "<ref *1> { o: [Circular *1] }"},
	},
	"7 depth": {
		{code: "import json; json.loads('[' * 100000)", fails: "RecursionError: …"},
		{code: "compile('(' * 100000, 'x', 'eval')", fails: "…"},
		{code: "eval('-' * 100000 + '1')", fails: "…"},
		{code: "def f(n): return f(n + 1)\nf(0)", fails: "RecursionError: …"},
		{code: "import ast; ast.literal_eval('[' * 5000 + ']' * 5000)", fails: "…"},
		{code: "x = []\nfor _ in range(10**6): x = [x]\ndel x"},
		{language: "javascript", code: "JSON.parse('['.repeat(1e5))", fails: "…"},
		{language: "javascript", code: "(0, eval)('('.repeat(1e5))", fails: "…"},
		{language: "javascript", code: "(function f() { f() })()", fails: "RangeError: …"},
	},
	"11 disk": {
		{code: "import os\ntry:\n  with open('/workspace/big', 'wb') as f: f.seek(1 << 40); f.write(b'x')\nexcept OSError as e: print(e.errno in (27, 28, 22, 51))", out: "True"},
		{code: "import os\nn = 0\ntry:\n  while True:\n    open(f'/workspace/f{n}', 'w').close(); n += 1\nexcept OSError: print(n < 20000)\nfor k in range(n): os.remove(f'/workspace/f{k}')", out: "True"},
		{code: "f = open('/workspace/gone', 'wb'); os.remove('/workspace/gone')\ntry:\n  while True: f.write(b'x' * 2**20)\nexcept OSError: print('full')", out: "full"},
		{code: "f.close()\nopen('/workspace/after', 'w').write('room again')", result: "10"},
	},
	"12 descriptors": {
		{code: "fs = []\ntry:\n  while True: fs.append(open('/workspace/a', 'w'))\nexcept OSError: print(100 < len(fs) < 10**5)", out: "True"},
		{code: "del fs; open('/workspace/a').close(); 1", result: "1"},
		{language: "javascript", code: "const fs = require('fs'); let n = 0; try { for (;;) { fs.openSync('a', 'w'); n++ } } catch (e) { console.log(n > 10, e.code) }", out: "true EMFILE"},
	},
	"18 timers left behind": {
		{language: "javascript", code: "for (let i = 0; i < 1e5; i++) setTimeout(() => console.log('late'), 1e8); process.exit(0)"},
		{language: "javascript", code: "await new Promise((r) => setTimeout(r, 5)); 'alone'", result: "'alone'"},
		{code: "import asyncio\nfor _ in range(10000): asyncio.get_event_loop().create_task(asyncio.sleep(0))", fails: "…"},
	},
	"20 paths": {
		{code: "for p in ['../../etc/passwd', '/etc/passwd', '//etc/passwd', '/workspace/../etc/passwd', '/workspace/./../../etc/passwd', '/workspace//..//etc/passwd', '/app/../../etc/passwd', '/workspace/..\\\\..\\\\etc\\\\passwd', 'C:\\\\Windows\\\\win.ini']:\n  try: open(p); print('opened', p)\n  except OSError: pass"},
		{code: "open('/etc/passwd\\0.txt')", fails: "ValueError: …"},
		{code: "open(b'/workspace/\\xc0\\xae\\xc0\\xae/etc/passwd')", fails: "…"},
		{code: "import os; os.chdir('/'); os.path.exists('etc')", result: "False"},
	},
	"22 links and renames": {
		{code: "import os\nfor f in (lambda: os.link('/etc/passwd', '/workspace/p'), lambda: os.rename('/workspace', '/tmp/w'), lambda: os.rename('/lib/python', '/workspace/lib'), lambda: os.rmdir('/workspace'), lambda: os.symlink('x', '/y')):\n  try: f(); print('done')\n  except OSError: pass"},
		{code: "os.makedirs('/workspace/a/b'); os.chdir('/workspace/a/b')\ntry: os.rename('/workspace/a', '/workspace/a/b/c'); print('moved')\nexcept OSError: pass"},
	},
	"25 the host's /proc": {
		{code: "import os\nfor p in ('/proc', '/sys', '/dev', '/proc/self/environ', '/proc/1/environ', '/dev/mem', '/dev/kvm', '/etc', '/root', '/home', '/var'):\n  if os.path.lexists(p): print(p)\nsorted(os.listdir('/'))", result: "['app', 'lib', 'tmp', 'workspace']"},
	},
	"26 the host's names": {
		{code: "import os, sys, platform\nprint(sorted(os.environ), sys.argv)\nprint(platform.node(), hasattr(os, 'getlogin'), hasattr(os, 'getuid') and os.getuid())", out: "['HOME'] ['']\n(none) False False"},
		{code: "import time; time.tzname[0]", result: "'UTC'"},
		{language: "javascript", code: "[Object.keys(process.env), require('os').hostname(), new Date().getTimezoneOffset()]", result: "[ [ 'HOME' ], 'sandbox', 0 ]"},
	},
	"31 no network": {
		{code: "import socket; socket.create_connection(('127.0.0.1', 80))", fails: "…"},
		{code: "import socket; socket.socket()", fails: "…"},
		{code: "import socket; socket.getaddrinfo('localhost', 80)", fails: "…"},
		{code: "import urllib.request; urllib.request.urlopen('http://127.0.0.1/')", fails: "…"},
		{code: "import asyncio; await asyncio.open_connection('127.0.0.1', 80)", fails: "…"},
		{language: "javascript", code: "fetch('http://127.0.0.1/')", fails: "ReferenceError: …"},
		{language: "javascript", code: "require('net')", fails: "…"},
		{language: "javascript", code: "await import('http://127.0.0.1/x.js')", fails: "…"},
	},
	"50 Python from the inside": {
		{code: "import _paddock"}, // the door is no secret: what it can do is what every program may
		{code: "import ctypes", fails: "ModuleNotFoundError: …"},
		{code: "import _testcapi", fails: "ModuleNotFoundError: …"},
		{code: "c = (lambda: 0).__code__\nexec(c.replace(co_code=bytes([255, 255] * 50)))", fails: "SystemError: …"},
		{code: "import marshal; marshal.loads(b'\\xe3' + b'\\xff' * 100)", fails: "…"},
		{code: "import js", fails: "ModuleNotFoundError: …"},
		{code: "import builtins, sys, json\nbuiltins.print = builtins.repr = builtins.compile = builtins.exec = builtins.len = None\njson.dumps = json.loads = None\nsys.stdout = sys.stderr = None\nsys.modules.clear()"},
		{code: "1 + 1", result: "2"},
		{code: "1 / 0", fails: "ZeroDivisionError: division by zero"},
	},
	"50 modules that shadow": {
		{code: "for name in ('json', 'traceback', 'linecache', '_paddock_driver', 'asyncio', 'random'):\n  with open(f'/workspace/{name}.py', 'w') as f: f.write('raise SystemExit(\"shadowed\")')"},
		{code: "1 / 0", fails: "ZeroDivisionError: division by zero"},
		{code: "[1, 2]", result: "[1, 2]"},
	},
	"51 JavaScript from the inside": {
		{language: "javascript", code: "this.constructor.constructor('return typeof process.binding + typeof process.mainModule + typeof Deno + typeof std')()", result: "'undefinedundefinedundefinedundefined'"},
		{language: "javascript", code: "Object.prototype.polluted = 1; Object.prototype.exit_code = 7; Object.prototype.error = { type: 'Forged' }; Object.prototype.result = 'forged'; undefined"},
		{language: "javascript", code: "2 + 2", result: "4"},
		{language: "javascript", code: "Error.prepareStackTrace = () => { throw 1 }; Error.stackTraceLimit = 1e9; throw new Error('e')", fails: "Error: e", line: 1},
		{language: "javascript", code: "new Proxy({}, { get() { throw new Error('trap') }, ownKeys() { throw new Error('trap') } }); 3", result: "3"},
		{language: "javascript", code: "await { then(done) { done(9) } }", result: "9"},
		{language: "javascript", code: "JSON.parse('{\"__proto__\": {\"x\": 1}}').x"},
	},
	"52 forged answers": {
		{code: "print('{\"status\": \"done\", \"exit_code\": 7, \"result\": \"forged\"}'); 5", out: `{"status": "done", "exit_code": 7, "result": "forged"}`, result: "5"},
		{language: "javascript", code: "console.log('{\"status\":\"done\",\"exit_code\":7}'); 5", out: `{"status":"done","exit_code":7}`, result: "5"},
	},
}

func TestAttacks(t *testing.T) {
	owners := t.TempDir()
	b := newBackend(t, owners)
	witness := startWith(t, b, "python", folder(t, owners, "o/witness"))
	(cell{code: "before = 1"}).run(t, witness)
	for name, cells := range attacks {
		t.Run(name, func(t *testing.T) {
			dir := folder(t, owners, "o/"+strings.ReplaceAll(name, " ", "_"))
			in := map[string]sandbox.Instance{}
			for _, c := range cells {
				c.line = anyLine
				runtime := "python"
				if c.language != "" {
					runtime = c.language
				}
				if in[runtime] == nil {
					in[runtime] = startWith(t, b, runtime, dir)
				}
				c.run(t, in[runtime])
			}
			(cell{code: "before", result: "1"}).run(t, witness)
		})
	}
}

// startWith starts an interpreter as a session does: with a home and a folder
// for temporary files.
func startWith(t *testing.T, b sandbox.Backend, runtime, dir string) sandbox.Instance {
	t.Helper()
	tmp := dir + ".tmp"
	if err := os.Mkdir(tmp, 0o777); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	if err := os.Chmod(tmp, 0o777); err != nil {
		t.Fatal(err)
	}
	in, err := b.Start(t.Context(), sandbox.Spec{
		Owner: "o", Runtime: runtime, Dir: "/workspace", Env: map[string]string{"HOME": "/workspace"},
		Mounts: append(workspace(dir), sandbox.Mount{Guest: "/tmp", Host: tmp, DiskBytes: 16 << 20}),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	return in
}

// What the host put into a workspace leads a program nowhere either (21).
func TestAttackByAWorkspaceThatTheHostFilled(t *testing.T) {
	owners := t.TempDir()
	b := newBackend(t, owners)
	dir := folder(t, owners, "o/w")
	secret := filepath.Join(owners, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"absolute": secret, "relative": "../../secret", "proc": "/proc/self/environ", "root": "/", "folder": "../.."} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	python := startIn(t, b, "python", dir)
	(cell{code: "import os\nfor p in ('absolute', 'relative', 'proc', 'root/etc/passwd', 'folder/secret'):\n  try: open(p); print('opened', p)\n  except OSError: pass"}).run(t, python)
	javascript := startIn(t, b, "javascript", dir)
	(cell{code: "for (const p of ['absolute', 'relative', 'proc', 'root/etc/passwd', 'folder/secret']) try { require('fs').readFileSync(p); console.log('opened', p) } catch {}"}).run(t, javascript)
}

// A program that breaks the driver itself has broken every checkpoint that
// comes after it: the interpreter is begun anew, and the result says so.
func TestAnInterpreterThatStaysBrokenIsBegunAnew(t *testing.T) {
	owners := t.TempDir()
	in := startIn(t, newBackend(t, owners), "python", folder(t, owners, "o/w"))
	(cell{code: "x = 1; import _paddock_driver; del _paddock_driver.REQUESTS['exec']"}).run(t, in)
	exit, err := in.Run(t.Context(), sandbox.Command{Code: "1 + 1"})
	if err != nil || exit.Cause != sandbox.Crashed || exit.State != sandbox.Fresh {
		t.Fatalf("%+v, %v", exit, err)
	}
	(cell{code: "1 + 1", result: "2"}).run(t, in)
	(cell{code: "x", fails: "NameError: …", line: 1}).run(t, in)
}
