package sandboxtest

import (
	"fmt"
	"strconv"
	"strings"

	"paddock/internal/sandbox"
)

// Programs are the snippets of one runtime's language that the suite runs. A
// text or path that goes into one is printable ASCII without quotes and
// backslashes. An empty snippet means that the language has no such thing;
// the tests that need it are skipped by name.
type Programs struct {
	// Set gives a global variable an integer; Show prints it on a line; an
	// unknown name is an uncaught error.
	Set  func(name string, n int) string
	Show func(name string) string
	// Print and PrintErr write a line.
	Print, PrintErr func(text string) string
	// Value ends in an expression whose result is shown as ValueResult.
	Value, ValueResult string
	// Define makes a function that UseDefined calls to print 42; Import loads
	// a module that UseImport needs to print 3.
	Define, UseDefined, Import, UseImport string
	// Raise has an uncaught error of RaiseType in its third line, whose message
	// holds "on purpose".
	Raise, RaiseType string
	// Malformed is not of the language.
	Malformed string
	// Exit ends the program with a code, before the line that prints "unreachable".
	Exit func(code int) string
	// Args prints the arguments on one line, with spaces between them.
	Args string
	// Stdin prints everything there is to read, then a line "end".
	Stdin string
	// Env prints a variable, or an empty line; Envs prints all names, sorted,
	// on a line.
	Env  func(name string) string
	Envs string
	// Read prints a file; Write replaces one; failing is an uncaught error.
	Read  func(path string) string
	Write func(path, text string) string
	// Link makes a symbolic link, and does not mind if it cannot.
	Link func(target, path string) string
	// Fill extends a file until the disk is full; that is an uncaught error.
	Fill func(path string) string
	// Loop never ends; Sleep does nothing for an hour; Stubborn catches
	// whatever can be caught and never ends.
	Loop, Sleep, Stubborn string
	// Alloc takes bytes of memory in one piece or many; Flood prints for ever.
	Alloc func(bytes int) string
	Flood string
	// Connect prints "connected" when a TCP connection can be made, else "refused".
	Connect func(host string, port int) string
	// Proxied connects to the machine's proxy, sends a line, and prints the line that
	// comes back; "refused" when nobody listens.
	Proxied func(text string) string
	// Display shows a text as text/html.
	Display func(text string) string
	// Random prints a number from the language's usual generator, on a line.
	Random string
	// Open opens a file and reads its first four bytes; ReadOn prints what
	// follows them.
	Open   func(path string) string
	ReadOn string
	// Call calls the tool of the server "s" with the argument text and prints the
	// value that it gives; an error is caught, and its kind and message are printed.
	Call func(tool, text string) string
	// CallMany makes n calls at once, with the texts 0, 1, 2 ..., and prints the sum of
	// the numbers that they give; CallFor gives a call up after so many seconds and
	// prints "given up".
	CallMany func(tool string, n int) string
	CallFor  func(tool string, seconds float64) string
}

// Tiny are the snippets of the [Fake]'s language.
func Tiny() Programs {
	return Programs{
		Set:         func(name string, n int) string { return fmt.Sprintf("%s = %d", name, n) },
		Show:        func(name string) string { return fmt.Sprintf("print(%s)", name) },
		Print:       func(text string) string { return fmt.Sprintf("print(%q)", text) },
		PrintErr:    func(text string) string { return fmt.Sprintf("eprint(%q)", text) },
		Value:       "x = 6\nx * 7",
		ValueResult: "42",
		Define:      "def double(n): return n * 2",
		UseDefined:  "print(double(21))",
		Import:      "import three",
		UseImport:   "module = three\nprint(len(\"abc\"))",
		Raise:       "x = 1\n\nraise ValueError(\"on purpose\")",
		RaiseType:   "ValueError",
		Malformed:   "x = = 1",
		Exit:        func(code int) string { return fmt.Sprintf("exit(%d)\nprint(\"unreachable\")", code) },
		Args:        "print(args())",
		Stdin:       "print(input() + \"end\")",
		Env:         func(name string) string { return fmt.Sprintf("print(env(%q))", name) },
		Envs:        "print(envs())",
		Read:        func(path string) string { return fmt.Sprintf("print(read(%q))", path) },
		Write:       func(path, text string) string { return fmt.Sprintf("write(%q, %q)", path, text) },
		Link:        func(target, path string) string { return fmt.Sprintf("symlink(%q, %q)", target, path) },
		Fill:        func(path string) string { return fmt.Sprintf("fill(%q)", path) },
		Loop:        "loop",
		Sleep:       "sleep(3600)",
		Stubborn:    "spin",
		Alloc:       func(bytes int) string { return fmt.Sprintf("alloc(%d)", bytes) },
		Flood:       "flood",
		Connect: func(string, int) string {
			return "print(\"refused\")" // the language has no way to ask
		},
		Proxied: func(text string) string { return fmt.Sprintf("print(proxied(%q))", text) },
		Display: func(text string) string { return fmt.Sprintf("display(\"text/html\", %q)", text) },
		Random:  "print(random())",
		Call:    func(tool, text string) string { return fmt.Sprintf("print(call(%q, %q))", tool, text) },
		CallMany: func(tool string, n int) string {
			return fmt.Sprintf("many = gather(%q, %d)\nprint(many)", tool, n)
		},
	}
}

// Python are the snippets for CPython.
func Python() Programs {
	return Programs{
		Set:         func(name string, n int) string { return fmt.Sprintf("%s = %d", name, n) },
		Show:        func(name string) string { return fmt.Sprintf("print(%s)", name) },
		Print:       func(text string) string { return fmt.Sprintf("print(%q)", text) },
		PrintErr:    func(text string) string { return fmt.Sprintf("import sys\nprint(%q, file=sys.stderr)", text) },
		Value:       "x = 6\nx * 7",
		ValueResult: "42",
		Define:      "def double(n):\n    return n * 2",
		UseDefined:  "print(double(21))",
		Import:      "import math",
		UseImport:   "print(math.isqrt(9))",
		Raise:       "x = 1\n\nraise ValueError('on purpose')",
		RaiseType:   "ValueError",
		Malformed:   "def (:",
		Exit:        func(code int) string { return fmt.Sprintf("import sys\nsys.exit(%d)\nprint('unreachable')", code) },
		Args:        "import sys\nprint(*sys.argv[1:])",
		Stdin:       "import sys\nprint(sys.stdin.read() + 'end')",
		Env:         func(name string) string { return fmt.Sprintf("import os\nprint(os.environ.get(%q, ''))", name) },
		Envs:        "import os\nprint(*sorted(os.environ))",
		Read:        func(path string) string { return fmt.Sprintf("print(open(%q).read())", path) },
		Write: func(path, text string) string {
			return fmt.Sprintf("with open(%q, 'w') as f:\n    n = f.write(%q)", path, text)
		},
		Link: func(target, path string) string {
			return fmt.Sprintf("import os\ntry:\n    os.symlink(%q, %q)\nexcept OSError:\n    pass", target, path)
		},
		Fill: func(path string) string {
			return fmt.Sprintf("with open(%q, 'wb') as f:\n    while True:\n        n = f.write(b'x' * 65536)", path)
		},
		Loop:     "while True:\n    pass",
		Sleep:    "import time\ntime.sleep(3600)",
		Stubborn: "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass",
		Alloc: func(bytes int) string {
			return fmt.Sprintf("hoard = [bytearray(1 << 20) for _ in range(%d)]", bytes>>20)
		},
		Flood: "while True:\n    print('flood ' * 1000)",
		Connect: func(host string, port int) string {
			return fmt.Sprintf("try:\n    import socket\n    socket.create_connection((%q, %d), 5).close()\n    print('connected')\nexcept Exception:\n    print('refused')", host, port)
		},
		Proxied: func(text string) string {
			return fmt.Sprintf("try:\n    import socket\n    with socket.create_connection(('127.0.0.1', %d), 30) as c:\n        c.sendall(b'%s\\n')\n        print(c.makefile().readline().strip())\nexcept Exception:\n    print('refused')", sandbox.ProxyPort, text)
		},
		Display: func(text string) string {
			return fmt.Sprintf("class Page:\n    def _repr_html_(self):\n        return %q\ndisplay(Page())", text)
		},
		Random: "import random\nprint(random.random())",
		Open:   func(path string) string { return fmt.Sprintf("opened = open(%q)\nfour = opened.read(4)", path) },
		ReadOn: "print(opened.read())",
		Call: func(tool, text string) string {
			return pythonTool(tool) + fmt.Sprintf("try:\n    print(it(text=%q))\nexcept servers.ToolError as error:\n    print(error.kind, error)", text)
		},
		CallMany: func(tool string, n int) string {
			return pythonTool(tool) + fmt.Sprintf("import asyncio\nprint(sum(map(int, await asyncio.gather(*(it.aio(str(n)) for n in range(%d))))))", n)
		},
		CallFor: func(tool string, seconds float64) string {
			return pythonTool(tool) + fmt.Sprintf("import asyncio\ntry:\n    await asyncio.wait_for(it.aio('x'), %f)\nexcept asyncio.TimeoutError:\n    print('given up')", seconds)
		},
	}
}

// pythonTool makes the function "it" of a tool.
func pythonTool(tool string) string {
	return fmt.Sprintf("import servers\n@servers.tool('s', %q, {'text': 'text'})\ndef it(text): ''\n", tool)
}

// JavaScript are the snippets for QuickJS with the driver's modules.
func JavaScript() Programs {
	return Programs{
		Set:         func(name string, n int) string { return fmt.Sprintf("globalThis.%s = %d;", name, n) },
		Show:        func(name string) string { return fmt.Sprintf("console.log(%s);", name) },
		Print:       func(text string) string { return fmt.Sprintf("console.log(%q);", text) },
		PrintErr:    func(text string) string { return fmt.Sprintf("console.error(%q);", text) },
		Value:       "const x = 6;\nx * 7",
		ValueResult: "42",
		Define:      "function double(n) { return n * 2; }",
		UseDefined:  "console.log(double(21));",
		Import:      "const path = require('path');",
		UseImport:   "console.log(path.join('a', 'b').length);",
		Raise:       "const y = 1;\n\nthrow new TypeError('on purpose');",
		RaiseType:   "TypeError",
		Malformed:   "function (",
		Exit:        func(code int) string { return fmt.Sprintf("process.exit(%d);\nconsole.log('unreachable');", code) },
		Args:        "console.log(process.argv.slice(2).join(' '));",
		Stdin:       "console.log(require('fs').readFileSync(0, 'utf8') + 'end');",
		Env:         func(name string) string { return fmt.Sprintf("console.log(process.env[%q] ?? '');", name) },
		Envs:        "console.log(Object.keys(process.env).sort().join(' '));",
		Read: func(path string) string {
			return fmt.Sprintf("console.log(require('fs').readFileSync(%q, 'utf8'));", path)
		},
		Write: func(path, text string) string {
			return fmt.Sprintf("require('fs').writeFileSync(%q, %q);", path, text)
		},
		Link: func(target, path string) string {
			return fmt.Sprintf("try { require('fs').symlinkSync(%q, %q); } catch (e) {}", target, path)
		},
		Fill: func(path string) string {
			return fmt.Sprintf("for (;;) require('fs').appendFileSync(%q, 'x'.repeat(65536));", path)
		},
		Loop:     "for (;;) {}",
		Sleep:    "await new Promise((done) => setTimeout(done, 3600000));",
		Stubborn: "for (;;) { try { for (;;) {} } catch (e) {} finally { continue; } }",
		Alloc: func(bytes int) string {
			return fmt.Sprintf("globalThis.hoard = []; for (let i = 0; i < %d; i++) hoard.push(new Uint8Array(1 << 20).fill(1));", bytes>>20)
		},
		Flood: "for (;;) console.log('flood '.repeat(1000));",
		Connect: func(host string, port int) string {
			url := fmt.Sprintf("http://%s:%d/", host, port)
			return strings.ReplaceAll("try { await fetch('URL'); console.log('connected'); } catch (e) { console.log('refused'); }", "URL", url)
		},
		Proxied: func(text string) string {
			return strings.NewReplacer("TEXT", text, "PORT", strconv.Itoa(sandbox.ProxyPort)).Replace(`console.log(await new Promise((done) => {
  let net, all = '';
  try { net = require('net'); } catch (e) { return done('refused'); }
  const c = net.connect(PORT, '127.0.0.1', () => c.write('TEXT\n'));
  c.on('data', (d) => { all += d; if (all.endsWith('\n')) { c.destroy(); done(all.trim()); } });
  c.on('error', () => done('refused')).on('end', () => done(all));
}));`)
		},
		Display: func(text string) string { return fmt.Sprintf("display({ mime: 'text/html', data: %q });", text) },
		Random:  "console.log(Math.random());",
		Open: func(path string) string {
			return fmt.Sprintf("globalThis.opened = require('fs').openSync(%q); require('fs').readSync(opened, new Uint8Array(4));", path)
		},
		ReadOn: "{ const b = new Uint8Array(100); const n = require('fs').readSync(opened, b); console.log(new TextDecoder().decode(b.subarray(0, n))); }",
		Call: func(tool, text string) string {
			return fmt.Sprintf("try {\n  console.log(await (await import('servers')).tool('s', %q)({ text: %q }));\n} catch (error) {\n  console.log(error.kind, error.message);\n}", tool, text)
		},
		CallMany: func(tool string, n int) string {
			return fmt.Sprintf("import { call } from 'servers';\nconst all = await Promise.all(Array.from({ length: %d }, (_, n) => call('s', %q, { text: `${n}` })));\nconsole.log(all.reduce((a, b) => a + Number(b), 0));", n, tool)
		},
	}
}

// Bash are the snippets for GNU bash with coreutils. What a program holds in
// memory is not bash's.
func Bash() Programs {
	return Programs{
		Set:        func(name string, n int) string { return fmt.Sprintf("%s=%d", name, n) },
		Show:       func(name string) string { return fmt.Sprintf("echo \"${%s?is not set}\"", name) },
		Print:      func(text string) string { return fmt.Sprintf("echo '%s'", text) },
		PrintErr:   func(text string) string { return fmt.Sprintf("echo '%s' >&2", text) },
		Define:     "double() { echo $(( $1 * 2 )); }",
		UseDefined: "double 21",
		Import:     "source <(echo 'three() { echo 3; }')",
		UseImport:  "three",
		Raise:      "y=1\n\n: \"${missing?on purpose}\"",
		RaiseType:  "CommandError",
		Malformed:  "if then",
		Exit:       func(code int) string { return fmt.Sprintf("exit %d\necho unreachable", code) },
		Args:       "echo \"$@\"",
		Stdin:      "cat; echo end",
		Env:        func(name string) string { return fmt.Sprintf("echo \"${%s-}\"", name) },
		Envs:       "compgen -e | sort | tr '\\n' ' '",
		Read:       func(path string) string { return fmt.Sprintf("cat '%s'", path) },
		Write:      func(path, text string) string { return fmt.Sprintf("printf %%s '%s' > '%s'", text, path) },
		Link:       func(target, path string) string { return fmt.Sprintf("ln -s '%s' '%s' || true", target, path) },
		Fill: func(path string) string {
			return fmt.Sprintf("while head -c 65536 /dev/zero >> '%s'; do :; done; false", path)
		},
		Loop:     "while :; do :; done",
		Sleep:    "sleep 3600",
		Stubborn: "trap '' INT; while :; do :; done",
		Flood:    "while :; do echo 'flood flood flood flood flood flood flood flood'; done",
		Connect: func(host string, port int) string {
			return fmt.Sprintf("if (exec 3<>/dev/tcp/%s/%d) 2>/dev/null; then echo connected; else echo refused; fi", host, port)
		},
		Proxied: func(text string) string {
			return fmt.Sprintf("(exec 9<>/dev/tcp/127.0.0.1/%d && echo '%s' >&9 && read -r line <&9 && echo \"$line\") 2>/dev/null || echo refused", sandbox.ProxyPort, text)
		},
		Random: "echo $RANDOM$RANDOM$RANDOM",
		Open:   func(path string) string { return fmt.Sprintf("exec 7< '%s'; read -r -N 4 four <&7", path) },
		ReadOn: "cat <&7",
	}
}
