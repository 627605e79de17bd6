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
		{Code: "import os\nprint(hasattr(os, 'fork'), hasattr(os, 'posix_spawn'), hasattr(os, 'execv'))", Out: "False False False"},
		{Code: "import threading; threading.Thread(target=print).start()", Fails: "RuntimeError: can't start new thread"},
		{Code: "import subprocess; subprocess.run(['true'])", Fails: "OSError: …"},
		{Code: "import multiprocessing; multiprocessing.Process(target=print).start()", Fails: "…"},
		{Code: "import concurrent.futures as f; f.ThreadPoolExecutor().submit(print)", Fails: "RuntimeError: can't start new thread"},
		{Code: "os.system('true')", Fails: "AttributeError: …"},
		{Language: "javascript", Code: "require('child_process')", Fails: "…"},
		{Language: "javascript", Code: "new Worker('x.js')", Fails: "ReferenceError: …"},
	},
	"6 results without end": {
		{Code: "class R:\n  def __repr__(self): return 'r' * 10**7\nlen(repr(R()))", Result: "10000000"},
		{Code: "R(); None"},
		{Code: "l = []; l.append(l); l", Result: "[[...]]"},
		{Language: "javascript", Code: "const o = {}; o.o = o; o", Result: "<ref *1> { o: [Circular *1] }"},
	},
	"7 depth": {
		{Code: "import json; json.loads('[' * 100000)", Fails: "RecursionError: …"},
		{Code: "compile('(' * 100000, 'x', 'eval')", Fails: "…"},
		{Code: "eval('-' * 100000 + '1')", Fails: "…"},
		{Code: "def f(n): return f(n + 1)\nf(0)", Fails: "RecursionError: …"},
		{Code: "import ast; ast.literal_eval('[' * 5000 + ']' * 5000)", Fails: "…"},
		{Code: "x = []\nfor _ in range(10**6): x = [x]\ndel x"},
		{Language: "javascript", Code: "JSON.parse('['.repeat(1e5))", Fails: "…"},
		{Language: "javascript", Code: "(0, eval)('('.repeat(1e5))", Fails: "…"},
		{Language: "javascript", Code: "(function f() { f() })()", Fails: "RangeError: …"},
	},
	"11 disk": {
		{Code: "import os\ntry:\n  with open('/workspace/big', 'wb') as f: f.seek(1 << 40); f.write(b'x')\nexcept OSError as e: print(e.errno in (27, 28, 22, 51))", Out: "True"},
		{Code: "import os\nn = 0\ntry:\n  while True:\n    open(f'/workspace/f{n}', 'w').close(); n += 1\nexcept OSError: print(n < 20000)\nfor k in range(n): os.remove(f'/workspace/f{k}')", Out: "True"},
		{Code: "f = open('/workspace/gone', 'wb'); os.remove('/workspace/gone')\ntry:\n  while True: f.write(b'x' * 2**20)\nexcept OSError: print('full')", Out: "full"},
		{Code: "f.close()\nopen('/workspace/after', 'w').write('room again')", Result: "10"},
	},
	"12 descriptors": {
		{Code: "fs = []\ntry:\n  while True: fs.append(open('/workspace/a', 'w'))\nexcept OSError: print(100 < len(fs) < 10**5)", Out: "True"},
		{Code: "del fs; open('/workspace/a').close(); 1", Result: "1"},
		{Language: "javascript", Code: "const fs = require('fs'); let n = 0; try { for (;;) { fs.openSync('a', 'w'); n++ } } catch (e) { console.log(n > 10, e.code) }", Out: "true EMFILE"},
	},
	"18 timers left behind": {
		{Language: "javascript", Code: "for (let i = 0; i < 1e5; i++) setTimeout(() => console.log('late'), 1e8); process.exit(0)"},
		{Language: "javascript", Code: "await new Promise((r) => setTimeout(r, 5)); 'alone'", Result: "'alone'"},
		{Code: "import asyncio\nfor _ in range(10000): asyncio.get_event_loop().create_task(asyncio.sleep(0))", Fails: "…"},
	},
	"20 paths": {
		{Code: "for p in ['../../etc/passwd', '/etc/passwd', '//etc/passwd', '/workspace/../etc/passwd', '/workspace/./../../etc/passwd', '/workspace//..//etc/passwd', '/app/../../etc/passwd', '/workspace/..\\\\..\\\\etc\\\\passwd', 'C:\\\\Windows\\\\win.ini']:\n  try: open(p); print('opened', p)\n  except OSError: pass"},
		{Code: "open('/etc/passwd\\0.txt')", Fails: "ValueError: …"},
		{Code: "open(b'/workspace/\\xc0\\xae\\xc0\\xae/etc/passwd')", Fails: "…"},
		{Code: "import os; os.chdir('/'); os.path.exists('etc')", Result: "False"},
	},
	"22 links and renames": {
		{Code: "import os\nfor f in (lambda: os.link('/etc/passwd', '/workspace/p'), lambda: os.rename('/workspace', '/tmp/w'), lambda: os.rename('/lib/python', '/workspace/lib'), lambda: os.rmdir('/workspace'), lambda: os.symlink('x', '/y')):\n  try: f(); print('done')\n  except OSError: pass"},
		{Code: "os.makedirs('/workspace/a/b'); os.chdir('/workspace/a/b')\ntry: os.rename('/workspace/a', '/workspace/a/b/c'); print('moved')\nexcept OSError: pass"},
	},
	"25 the host's /proc": {
		{Code: "import os\nfor p in ('/proc', '/sys', '/proc/self/environ', '/proc/1/environ', '/dev/mem', '/dev/kvm', '/etc', '/root', '/home', '/var'):\n  if os.path.lexists(p): print(p)\nsorted(os.listdir('/')), sorted(os.listdir('/dev'))", Result: "(['app', 'dev', 'lib', 'tmp', 'workspace'], ['null', 'random', 'urandom', 'zero'])"},
	},
	"26 the host's names": {
		{Code: "import os, sys, platform\nprint(sorted(os.environ), sys.argv)\nprint(platform.node(), hasattr(os, 'getlogin'), os.getuid())", Out: "['HOME'] ['']\n(none) False 0"}, // which is always so
		{Code: "import time; time.tzname[0]", Result: "'UTC'"},
		{Language: "javascript", Code: "[Object.keys(process.env), require('os').hostname(), new Date().getTimezoneOffset()]", Result: "[ [ 'HOME' ], 'sandbox', 0 ]"},
	},
	"31 no network": {
		{Code: "import socket; socket.create_connection(('127.0.0.1', 80))", Fails: "…"},
		{Code: "import socket; socket.socket().connect(('127.0.0.1', 80))", Fails: "…"},
		{Code: "import socket; socket.socket(type=socket.SOCK_DGRAM)", Fails: "…"},
		{Code: "import socket; socket.socket().bind(('127.0.0.1', 8080))", Fails: "…"},
		{Code: "import _socket, socket; socket.socket(fileno=3)", Fails: "…"},
		{Code: "import socket; socket.getaddrinfo('localhost', 80)", Fails: "…"},
		{Code: "import urllib.request; urllib.request.urlopen('http://127.0.0.1/')", Fails: "…"},
		{Code: "import asyncio; await asyncio.open_connection('127.0.0.1', 80)", Fails: "…"},
		{Language: "javascript", Code: "await fetch('http://127.0.0.1/')", Fails: "TypeError: …"},
		{Language: "javascript", Code: "require('net')", Fails: "…"},
		{Language: "javascript", Code: "await import('http://127.0.0.1/x.js')", Fails: "…"},
	},
	"50 Python from the inside": {
		{Code: "import _paddock"}, // the door is no secret: what it can do is what every program may
		{Code: "import ctypes", Fails: "ModuleNotFoundError: …"},
		{Code: "import _testcapi", Fails: "ModuleNotFoundError: …"},
		{Code: "c = (lambda: 0).__code__\nexec(c.replace(co_code=bytes([255, 255] * 50)))", Fails: "SystemError: …"},
		{Code: "import marshal; marshal.loads(b'\\xe3' + b'\\xff' * 100)", Fails: "…"},
		{Code: "import js", Fails: "ModuleNotFoundError: …"},
		{Code: "import builtins, sys, json\nbuiltins.print = builtins.repr = builtins.compile = builtins.exec = builtins.len = None\njson.dumps = json.loads = None\nsys.stdout = sys.stderr = None\nsys.modules.clear()"},
		{Code: "1 + 1", Result: "2"},
		{Code: "1 / 0", Fails: "ZeroDivisionError: division by zero"},
	},
	"50 modules that shadow": {
		{Code: "for name in ('json', 'traceback', 'linecache', '_paddock_driver', 'asyncio', 'random'):\n  with open(f'/workspace/{name}.py', 'w') as f: f.write('raise SystemExit(\"shadowed\")')"},
		{Code: "1 / 0", Fails: "ZeroDivisionError: division by zero"},
		{Code: "[1, 2]", Result: "[1, 2]"},
	},
	"51 JavaScript from the inside": {
		{Language: "javascript", Code: "this.constructor.constructor('return typeof process.binding + typeof process.mainModule + typeof Deno + typeof std')()", Result: "'undefinedundefinedundefinedundefined'"},
		{Language: "javascript", Code: "Object.prototype.polluted = 1; Object.prototype.exit_code = 7; Object.prototype.error = { type: 'Forged' }; Object.prototype.result = 'forged'; undefined"},
		{Language: "javascript", Code: "2 + 2", Result: "4"},
		{Language: "javascript", Code: "Error.prepareStackTrace = () => { throw 1 }; Error.stackTraceLimit = 1e9; throw new Error('e')", Fails: "Error: e"},
		{Language: "javascript", Code: "new Proxy({}, { get() { throw new Error('trap') }, ownKeys() { throw new Error('trap') } }); 3", Result: "3"},
		{Language: "javascript", Code: "await { then(done) { done(9) } }", Result: "9"},
		{Language: "javascript", Code: "JSON.parse('{\"__proto__\": {\"x\": 1}}').x"},
	},
	"52 forged answers": {
		{Code: "print('{\"status\": \"done\", \"exit_code\": 7, \"result\": \"forged\"}'); 5", Out: `{"status": "done", "exit_code": 7, "result": "forged"}`, Result: "5"},
		{Language: "javascript", Code: "console.log('{\"status\":\"done\",\"exit_code\":7}'); 5", Out: `{"status":"done","exit_code":7}`, Result: "5"},
	},
}

func TestAttacks(t *testing.T) {
	owners := t.TempDir()
	b := newBackend(t, owners)
	witness := startWith(t, b, "python", folder(t, owners, "o/witness"))
	cell{Code: "before = 1"}.Check(t, witness)
	for name, cells := range attacks {
		t.Run(name, func(t *testing.T) {
			dir := folder(t, owners, "o/"+strings.ReplaceAll(name, " ", "_"))
			in := map[string]sandbox.Instance{}
			for _, c := range cells {
				runtime := "python"
				if c.Language != "" {
					runtime = c.Language
				}
				if in[runtime] == nil {
					in[runtime] = startWith(t, b, runtime, dir)
				}
				c.Check(t, in[runtime])
			}
			cell{Code: "before", Result: "1"}.Check(t, witness)
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
	cell{Code: "import os\nfor p in ('absolute', 'relative', 'proc', 'root/etc/passwd', 'folder/secret'):\n  try: open(p); print('opened', p)\n  except OSError: pass"}.Check(t, python)
	javascript := startIn(t, b, "javascript", dir)
	cell{Code: "for (const p of ['absolute', 'relative', 'proc', 'root/etc/passwd', 'folder/secret']) try { require('fs').readFileSync(p); console.log('opened', p) } catch {}"}.Check(t, javascript)
}

// A program that breaks the driver itself has broken every checkpoint that
// comes after it: the interpreter is begun again, and the result says so.
func TestAnInterpreterThatStaysBrokenIsBegunAnew(t *testing.T) {
	owners := t.TempDir()
	in := startIn(t, newBackend(t, owners), "python", folder(t, owners, "o/w"))
	cell{Code: "x = 1; import _paddock_driver; del _paddock_driver.REQUESTS['exec']"}.Check(t, in)
	exit, err := in.Run(t.Context(), sandbox.Command{Code: "1 + 1"})
	if err != nil || exit.Cause != sandbox.Crashed || exit.State != sandbox.Fresh {
		t.Fatalf("%+v, %v", exit, err)
	}
	cell{Code: "1 + 1", Result: "2"}.Check(t, in)
	cell{Code: "x", Fails: "NameError: …", Line: 1}.Check(t, in)
}
