package linux

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"paddock/internal/mcpserver"
)

// alike are programs that give the same in both isolations: values, output,
// tracebacks, errors with their lines, what stopped them, and what is left after.
// What is inherently otherwise is listed in docs/linux.md.
var alike = map[string][]string{
	"python": {
		"1 + 1",
		"x = 5",
		"x; None",
		"'text', b'bytes', 1.5, None, {1: [2, 3]}, {4}, 5j",
		"print('a', 'b', sep='-')\nprint('é€')\nx",
		"import sys\nprint('out')\nprint('err', file=sys.stderr)",
		"def f(n):\n    return 1 / n\n\nf(0)",
		"nosuchname",
		"[1, 2][5]",
		"{}['missing']",
		"int('ten')",
		"raise ValueError",
		"raise KeyError('k') from TypeError('cause')",
		"try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise RuntimeError('while handling')",
		"assert x == 6, 'not six'",
		"class Own(Exception):\n    pass\n\nraise Own('mine')",
		"import json\njson.loads('{')",
		"def f(:\n    pass",
		"if True:\nprint(1)",
		"'unclosed",
		"x = (1,\n",
		"return 5",
		"import asyncio\nawait asyncio.sleep(0.01, 'slept')",
		"async def boom():\n    await asyncio.sleep(0)\n    raise LookupError('inside')\n\nawait boom()",
		"await asyncio.gather(*[asyncio.sleep(0.01, n) for n in range(3)])",
		"task = asyncio.create_task(asyncio.sleep(0.02, 'task'))",
		"await task",
		"await asyncio.wait_for(asyncio.sleep(10), 0.01)",
		"async for n in (m async for m in agen()):\n    pass",
		"input('? ')",
		"sys.stdin.read()",
		"sys.exit()",
		"sys.exit(3)",
		"sys.exit('a message')",
		"exit(2)",
		"raise SystemExit(True)",
		"import os\nos.getcwd(), sys.argv, __name__, os.environ['HOME'], os.environ['TMPDIR']",
		"open('/workspace/file.txt', 'w').write('12345')",
		"open('/app/file.txt').read()",
		"open('missing.txt')",
		"os.remove('file.txt')",
		"import shutil\nshutil.copytree('/skills/files', 'copied')\nopen('copied/SKILL.md', 'a').write('more'); shutil.rmtree('copied')",
		"import nosuchmodule",
		"_",
		"class Quiet:\n    def __repr__(self):\n        return 'quiet'\n\nQuiet()",
		"class Loud:\n    def __repr__(self):\n        raise ValueError('no repr')\n\nLoud()",
		"class Page:\n    def _repr_html_(self):\n        return '<p>'\n    def __repr__(self):\n        return 'page'\n\nPage()",
		"display(Page(), 5, 'text')",
		"list(range(300))",
		"list(range(20_000))",
		"'z' * 20_000",
		"10 ** 5000",
		"def deep(n):\n    return deep(n + 1)\n\ntry:\n    deep(0)\nexcept RecursionError as e:\n    print('too deep')",
		"import time\ntime.sleep(30)",
		"while True: pass",
		"try:\n    time.sleep(30)\nexcept KeyboardInterrupt:\n    print('cleaned up')\n    raise",
		"await asyncio.sleep(30)",
		"x, task.result()",
		"b'x' * (1500 << 20)",
		"x",
		"print('no newline', end='')",
		"sys.stdout.write('partial')",
		"import warnings\nwarnings.warn('careful')",
		"del x\nx",
		"print = 5",
		"del print\nprint('back')",
		"sum(n * n for n in range(200_000))",
		"import collections, dataclasses\n@dataclasses.dataclass\nclass P:\n    a: int = 1\nP(), collections.Counter('aab')",
	},
	"javascript": {
		"1 + 1",
		"const x = 5; let y = [1, 'two', { three: 3 }];",
		"y",
		"x",
		"const x = 6; x",
		"console.log('a', 1, { b: [1, 2] }); console.error('err')",
		"'text'",
		"[undefined, null, true, 1.5, 10n, Symbol('s')]",
		"({ a: { b: { c: { d: 1 } } } })",
		"new Map([[1, { a: 2 }]])",
		"new Set([1, 'a'])",
		"new Date(0)",
		"/a+/g",
		"[1, 2, 3].map(n => n * 2)",
		"(function named() {})",
		"class Point { constructor() { this.x = 1 } }\nnew Point()",
		"throw new Error('thrown')",
		"function f() {\n  throw new TypeError('in f')\n}\n\nf()",
		"throw 'a text'",
		"nosuchname",
		"await new Promise(done => setTimeout(() => done('later'), 10))",
		"await Promise.reject(new RangeError('rejected'))",
		"await Promise.all([1, 2].map(async n => n + 1))",
		"const v = await 7; v",
		"v",
		"setTimeout(() => console.log('timer'), 10); 'before'",
		"process.exit(3)",
		"process.argv.length",
		"process.cwd()",
		"import fs from 'fs'\nfs.writeFileSync('j.txt', 'abc')",
		"fs.readFileSync('/app/j.txt', 'utf8')",
		"require('path').join('a', '..', 'b')",
		"import { strict } from 'assert'\ntypeof strict",
		"fs.unlinkSync('j.txt')",
		"display({ mime: 'text/html', data: '<p>' })",
		"'z'.repeat(20000)",
		"while (true);",
		"await new Promise(() => setTimeout(() => {}, 30000))",
		"x + v",
		"console.log('%s is %d', 'a', 5)",
		"process.stdout.write('partial')",
		"new Error('a value').message",
		"[3, 1, 2].sort()",
		"JSON.parse('{\"a\": [1]}')",
		"globalThis.shared = 1; shared",
		"let z; z",
		"label: for (;;) { break label }",
	},
	"typescript": {
		"interface A { b: number }\nconst a: A = { b: 2 };\na.b",
		"enum Kind { One = 1, Two }\nKind.Two",
		"\n\nthrow new Error('line three' as string)",
	},
}

// otherwise are differences that come from the interpreters themselves: by the
// program, which of the fields may differ.
var otherwise = map[string]string{
	"import nosuchmodule": "hint", // an image has packages
}

// versions make output alike where Python 3.13 and 3.11, QuickJS and V8, or WASI and
// Linux, say the same in different words: the marks below a line, columns, and the
// numbers of errors.
var versions = []struct {
	found *regexp.Regexp
	alike string
}{
	{regexp.MustCompile(`(?m)^ +[~^]+\n`), ""},
	{regexp.MustCompile(`at <eval> \((.*)\)`), "at $1"},
	{regexp.MustCompile(`(?m)( at .*:\d+):\d+(\)?)$`), "$1$2"},
	{regexp.MustCompile(`\[Errno 44\]`), "[Errno 2]"},
	{regexp.MustCompile(`(?:/lib/python/)?_paddock_driver.py:\d+: `), ""},
	{regexp.MustCompile(`  return self.fail\(error\)\n`), ""},
}

// endlessly is in those programs that do not end.
var endlessly = regexp.MustCompile(`sleep\(30\)|30000|while True: pass|while \(true\)`)

func TestBothIsolationsGiveTheSame(t *testing.T) {
	for language, programs := range alike {
		t.Run(language, func(t *testing.T) {
			wasm, linux := connect(t, "wasm"), connect(t, "linux")
			for _, code := range programs {
				var limit []any // none for what ends by itself, whatever the machine does besides
				if endlessly.MatchString(code) {
					limit = []any{"timeout", 1}
				}
				w, l := view(wasm.run(t, language, code, limit...)), view(linux.run(t, language, code, limit...))
				for k := range w {
					if w[k].value != l[k].value && !strings.Contains(otherwise[code], w[k].field) {
						t.Errorf("%q: %s is\n%.600s in wasm, and\n%.600s in linux", code, w[k].field, w[k].value, l[k].value)
					}
				}
			}
			if w, l := holds(t, wasm), holds(t, linux); w != l || len(w) < 20 {
				t.Errorf("what is left is\n%.2000s in wasm, and\n%.2000s in linux", w, l)
			}
		})
	}
}

// holds is what get_workspace_info tells of the variables.
func holds(t *testing.T, c *client) string {
	var info struct {
		Variables []struct{ Name, Type, Preview string }
		Imports   []string
	}
	c.call(t, "get_workspace_info", nil, &info)
	return strings.ReplaceAll(fmt.Sprintf("%q", info), "} {", "}\n{")
}

type looked struct{ field, value string }

// view is what has to be the same of a run.
func view(r ran) []looked {
	e := r.Error
	if e == nil {
		e = &mcpserver.ProgramError{}
	}
	var files []string
	for _, f := range r.FilesChanged {
		files = append(files, fmt.Sprint(f.Change, " ", f.Path, " ", f.Size))
	}
	var displays []string
	for _, d := range r.Displays {
		displays = append(displays, fmt.Sprint(d.MIMEType, " ", d.Text, " ", d.Problem))
	}
	stderr, message := r.Stderr, e.Message
	for _, v := range versions {
		stderr, message = v.found.ReplaceAllString(stderr, v.alike), v.found.ReplaceAllString(message, v.alike)
	}
	return []looked{
		{"stdout", r.Stdout}, {"stderr", stderr}, {"result", r.Result}, {"exit_code", fmt.Sprint(r.ExitCode)}, {"success", fmt.Sprint(r.Success)},
		{"type", e.Type}, {"message", message}, {"line", fmt.Sprint(e.Line)}, {"hint", e.Hint},
		{"stopped_by", r.StoppedBy}, {"state", r.State}, {"notice", r.Notice}, {"files", strings.Join(files, ", ")}, {"displays", strings.Join(displays, ", ")},
	}
}
