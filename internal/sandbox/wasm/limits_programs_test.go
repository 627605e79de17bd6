package wasm_test

import "paddock/internal/sandbox"

// endless is a program that does not end by itself. One that the gentle
// interrupt ends is given all the time it wants for that, one that it does not
// end hardly any, so that the outcome does not hang on how fast the machine is.
// A stubborn one prints only when an interrupt would find it so.
type endless struct {
	name, code string
	waits      bool // for an input that never comes
	stubborn   bool // only the hard kill helps
	either     bool // it hangs on where it is hit
}

var endlessPrograms = map[string][]endless{
	"python": {
		{name: "an empty loop", code: "while True: pass"},
		{name: "a power of integers", code: "10**10**8"},
		{name: "a text of a large integer", code: "import sys; sys.set_int_max_str_digits(0); str(7**(10**7))"},
		{name: "a catastrophic regular expression", code: "import re; re.match('(a+)+$', 'a'*200 + 'b')"},
		{name: "a sleep", code: "import time; time.sleep(1e9)"},
		{name: "a sleep within a coroutine", code: "import asyncio, time\nasync def f(): time.sleep(1e9)\nawait asyncio.gather(f(), f())"},
		{name: "a sleep of asyncio", code: "import asyncio; await asyncio.sleep(1e9)"},
		{name: "a sleep in a loop of its own", code: "import asyncio; asyncio.run(asyncio.sleep(1e9))"},
		{name: "an endless chain of awaits", code: "import asyncio\nwhile True: await asyncio.sleep(0)"},
		{name: "a recursion without a limit", code: "import sys; sys.setrecursionlimit(10**9); print(1)\ndef f(): f()\nf()", stubborn: true, either: true},
		{name: "an input that never comes", code: "input()", waits: true},
		{name: "a read of all the input that never comes", code: "import sys; sys.stdin.read()", waits: true},
		{name: "a generator without end as the result", code: "import itertools\nclass G:\n  def __repr__(self): return ''.join(str(n) for n in itertools.count() if n < 0)\nG()"},
		{name: "a loop around a loop that catches everything", code: "while True:\n  try:\n    print(1)\n    while True: pass\n  except BaseException: pass", stubborn: true},
		{name: "a generator that swallows the interrupt", code: "def g():\n  while True:\n    try: yield 1\n    except BaseException: pass\nfor _ in g():\n  try:\n    print(1)\n    while True: pass\n  except KeyboardInterrupt: continue", stubborn: true},
		{name: "a finally that loops", code: "try:\n  print(1)\n  while True: pass\nfinally:\n  while True: pass", stubborn: true},
		{name: "a handler that loops within a loop", code: "def f():\n  try:\n    print(1)\n    while True: pass\n  except BaseException: f()\nf()", stubborn: true},
		{name: "a context that loops when it is left", code: "class C:\n  def __enter__(self): pass\n  def __exit__(self, *_):\n    while True: pass\nwith C():\n  print(1)\n  while True: pass", stubborn: true},
		{name: "an error whose text never ends", code: "class E(KeyboardInterrupt):\n  def __str__(self):\n    while True: pass\ntry:\n  print(1)\n  while True: pass\nexcept BaseException:\n  raise E", stubborn: true},
		{name: "a signal handler that swallows the interrupt", code: "import signal; signal.signal(signal.SIGINT, lambda *_: None)\nprint(1)\nwhile True: pass", stubborn: true},
		{name: "a coroutine that swallows its cancellation", code: "import asyncio\nwhile True:\n  try:\n    print(1)\n    await asyncio.sleep(1e9)\n  except BaseException: pass", stubborn: true},
		{name: "hashes of a large text", code: "import hashlib\ndata = bytes(100_000_000)\nwhile True: hashlib.sha256(data)"},
		{name: "a hash without end", code: "import hashlib, itertools\ndata = bytes(100_000_000)\nany(itertools.chain(map(print, [1]), map(hashlib.sha256().update, itertools.repeat(data))))", stubborn: true},
		{name: "a search in C that asks nobody", code: "import itertools; any(itertools.chain(map(print, [1]), itertools.repeat(0)))", stubborn: true},
	},
	"javascript": {
		{name: "an empty loop", code: "for (;;) {}"},
		{name: "a loop around a loop that catches everything", code: "for (;;) { try { for (;;) {} } catch {} }"},
		{name: "a finally that loops", code: "try { for (;;); } finally { for (;;); }"},
		{name: "a generator that swallows its end", code: "function* g() { for (;;) try { yield 1 } finally { for (;;); } }\nfor (const _ of g()) for (;;);"},
		{name: "a catastrophic regular expression", code: "/^(a+)+$/.test('a'.repeat(200) + 'b')"},
		{name: "an endless chain of promises", code: "const again = () => Promise.resolve().then(again); console.log(1); again()", stubborn: true, either: true},
		{name: "an endless chain of promises that catches everything", code: "const on = () => Promise.reject().catch(on).finally(on); on()"},
		{name: "an endless chain of awaits", code: "while (true) await null"},
		{name: "an endless chain of ticks", code: "const tick = () => process.nextTick(tick); tick()"},
		{name: "an endless chain of timers", code: "const beat = () => setImmediate(beat); beat()"},
		{name: "a sleep", code: "await new Promise((r) => setTimeout(r, 1e9))"},
		{name: "an interval", code: "setInterval(() => {}, 1)"},
		{name: "an input that never comes", code: "require('fs').readFileSync(0)", waits: true},
		{name: "a question that nobody answers", code: "await require('readline').createInterface(process.stdin).question('? ')", waits: true},
		{name: "a getter without end in the result", code: "({ get [Symbol.toStringTag]() { for (;;); } })"},
		{name: "integers that grow", code: "for (let n = 3n; ; n = n * n % 2n ** 99n);"},
		{name: "a search in C", code: "[].includes.call({ length: 2 ** 53 - 1 }, 1)"},
		{name: "a sort whose comparison never ends", code: "[2, 1].sort(() => { for (;;); })"},
		{name: "a proxy that never answers", code: "JSON.stringify(new Proxy({}, { ownKeys() { for (;;); } }))"},
		{name: "an integer's text", code: "console.log(1), String(7n ** 370000n)", stubborn: true},
		{name: "a text function that loops when the error is told", code: "String.prototype.split = function () { for (;;); }; console.log(1); for (;;);", stubborn: true},
	},
}

// wall is a program that ends by itself, with an error of type fails. One that
// leaves the memory full is taken back: nothing could run after it.
type wall struct {
	name, code string
	cause      sandbox.Cause
	fails      string
	full       bool
}

var walls = map[string][]wall{
	"python": {
		{"a text beyond all addresses", "'x' * 10**12", sandbox.Exited, "OverflowError", false},
		{"a text beyond the memory", "'x' * 10**9", sandbox.OutOfMemory, "MemoryError", false},
		{"a list that doubles", "l = [0]\nwhile True: l += l", sandbox.OutOfMemory, "MemoryError", false},
		{"small objects without end", "d = None\nwhile True: d = [d]", sandbox.OutOfMemory, "MemoryError", true},
		{"memory that is taken while memory is short", "l = []\nwhile True:\n  try: l.append(bytearray(10**6))\n  except MemoryError: m = [bytearray(10**5) for _ in range(10**4)]", sandbox.OutOfMemory, "MemoryError", true},
		{"a recursion", "def f(): f()\nf()", sandbox.Exited, "RecursionError", false},
		{"a recursion through __repr__", "class R:\n  def __repr__(self): return repr([self])\nrepr(R())", sandbox.Exited, "RecursionError", false},
		{"a recursion through __repr__ without a limit", "import sys; sys.setrecursionlimit(10**9)\nclass R:\n  def __repr__(self): return repr([self])\nrepr(R())", sandbox.Exited, "RecursionError", false},
		{"a recursion through comparison", "a = []; b = []\na.append(b); b.append(a)\na == b", sandbox.Exited, "RecursionError", false},
		{"a recursion through __getattr__", "class A:\n  def __getattr__(self, n): return getattr(self, n + 'x')\nA().x", sandbox.Exited, "RecursionError", false},
		{"JSON within JSON", "import json; json.loads('[' * 10**6)", sandbox.Exited, "RecursionError", false},
		{"JSON of an object without end", "import json; json.dumps(1j, default=lambda o: [o * 2 + 1])", sandbox.Exited, "RecursionError", false},
		{"a pickle of a deep list", "import pickle\nl = []\nfor _ in range(10**5): l = [l]\npickle.dumps(l)", sandbox.Exited, "RecursionError", false},
		{"parentheses within parentheses", "eval('(' * 10**5)", sandbox.Exited, "MemoryError", false},
		{"an expression of a hundred thousand signs", "eval('-' * 10**5 + '1')", sandbox.Exited, "MemoryError", false},
	},
	"javascript": {
		{"a text that doubles", "let s = 'x'; for (;;) s += s + s.charCodeAt(0)", sandbox.OutOfMemory, "InternalError", false},
		{"a list that doubles", "let l = [0]; for (;;) l = l.concat(l)", sandbox.OutOfMemory, "InternalError", false},
		{"small objects without end", "const m = new Map(); for (;;) m.set(m.size, [m.size])", sandbox.OutOfMemory, "MemoryError", true},
		{"memory that is taken while memory is short", "const t = []; for (;;) try { t.push(new Uint8Array(1e6)) } catch { for (;;) t.push(new Uint8Array(1e5)) }", sandbox.OutOfMemory, "InternalError", true},
		{"an array beyond the memory", "new Uint8Array(2 ** 31)", sandbox.Exited, "RangeError", false},
		{"a recursion", "const f = () => f() + 1; f()", sandbox.Exited, "RangeError", false},
		{"a recursion through toString", "const o = { toString() { return `${o}` } }; `${o}`", sandbox.Exited, "RangeError", false},
		{"a recursion through toJSON", "const j = { toJSON: () => JSON.stringify(j) }; JSON.stringify(j)", sandbox.Exited, "RangeError", false},
		{"a recursion through a getter", "const g = { get x() { return g.x } }; g.x", sandbox.Exited, "RangeError", false},
		{"a recursion through a proxy", "const p = new Proxy({}, { get: (t, k, r) => r[k] }); p.x", sandbox.Exited, "RangeError", false},
		{"JSON within JSON", "JSON.parse('['.repeat(1e6))", sandbox.Exited, "RangeError", false},
		{"parentheses within parentheses", "eval('('.repeat(1e6))", sandbox.Exited, "RangeError", false},
		{"a regular expression within itself", "new RegExp('('.repeat(1e6))", sandbox.Exited, "SyntaxError", false},
	},
}

// floods print for ever.
var floods = map[string][]struct{ name, code string }{
	"python": {
		{"lines on stderr", "import sys\nwhile True: print('flood ' * 100, file=sys.stderr)"},
		{"tiny lines", "while True: print()"},
		{"one line without end", "while True: print('x' * 10**5, end='')"},
		{"both at once", "import sys\nwhile True: print(1); print(2, file=sys.stderr)"},
		{"bytes past sys.stdout", "import os\nwhile True: os.write(1, b'x' * 10**5)"},
		{"a text of many megabytes", "print('x' * 10**7)\nwhile True: pass"},
	},
	"javascript": {
		{"lines on stderr", "for (;;) console.error('flood '.repeat(100))"},
		{"tiny lines", "for (;;) console.log()"},
		{"one line without end", "for (;;) process.stdout.write('x'.repeat(1e5))"},
		{"both at once", "for (;;) { console.log(1); console.error(2) }"},
		{"lines from promises", "for (;;) await console.log('x'.repeat(1000))"},
		{"a text of many megabytes", "console.log('x'.repeat(1e7)); for (;;);"},
	},
}
