package wasm_test

import (
	"strings"
	"testing"
)

// pythonPrograms are those that show what WASI's C library has not, or has otherwise.
var pythonPrograms = map[string][]cell{
	"text without an encoding": {
		{Code: "import csv, json, locale, pathlib, sys, tempfile"},
		{Code: "with open('a', 'w') as f: f.write('ä€😀')\nprint(open('a').read(), open('a', encoding='utf-8').read(), pathlib.Path('a').read_bytes() == 'ä€😀'.encode())", Out: "ä€😀 ä€😀 True"},
		{Code: "pathlib.Path('b').write_text('ä'), pathlib.Path('b').read_text()", Result: "(1, 'ä')"},
		{Code: "with open('c', 'w') as f: json.dump({'ä': 'é'}, f, ensure_ascii=False)\njson.load(open('c'))", Result: "{'ä': 'é'}"},
		{Code: "with open('d', 'w', newline='') as f: csv.writer(f).writerow(['ä', 'ß'])\nlist(csv.reader(open('d')))", Result: "[['ä', 'ß']]"},
		{Code: "with tempfile.NamedTemporaryFile('w+') as f: f.write('ä'); f.seek(0); print(f.read())", Out: "ä"},
		{Code: "locale.getpreferredencoding(), locale.getpreferredencoding(False), locale.getencoding(), sys.flags.utf8_mode", Result: "('utf-8', 'utf-8', 'UTF-8', 1)"},
		{Code: "sys.getdefaultencoding(), sys.getfilesystemencoding(), sys.stdin.encoding, sys.stdout.encoding, sys.stderr.encoding, open('a').encoding", Result: "('utf-8', 'utf-8', 'utf-8', 'utf-8', 'utf-8', 'utf-8')"},
		{Code: "print(input())", Stdin: "grüße\n", Out: "grüße"},
		{Code: "import os; open('ä.txt', 'w').close(); 'ä.txt' in os.listdir()", Result: "True"},
		{Code: "import time; time.strftime('%Y ä', time.gmtime(0))", Result: "'1970 ä'"},
	},
	"descriptors made twice": {
		{Code: "import os\nf = os.open('a', os.O_CREAT | os.O_RDWR); g = os.dup(f); os.write(f, b'one'); os.write(g, b'two'); os.close(f)\nos.lseek(g, 0, 0), os.read(g, 9), os.close(g)", Result: "(0, b'onetwo', None)"},
		{Code: "kept = os.dup(1); f = os.open('out', os.O_CREAT | os.O_WRONLY); os.dup2(f, 1); os.write(1, b'hidden'); os.dup2(kept, 1); os.close(f); os.close(kept); print(open('out').read(), 'shown')", Out: "hidden shown"},
		{Code: "os.mkdir('d'); open('d/x', 'w').close(); n = os.open('d', os.O_RDONLY); m = os.dup(n); os.close(n); os.fstat(m).st_ino == os.stat('d').st_ino, os.close(m)", Result: "(True, None)"},
		{Code: "os.dup(99)", Fails: "OSError: …", Line: 1},
		{Code: "os.dup2(1, -1)", Fails: "OSError: …", Line: 1},
		{Code: "os.umask(0o077), os.umask(0o022), os.getuid() == os.stat('.').st_uid", Result: "(18, 63, True)"},
	},
	"devices": {
		{Code: "import os\nwith open(os.devnull, 'w') as f: print('gone', file=f)\nprint(repr(open('/dev/null').read()), open('/dev/zero', 'rb').read(2), len(open('/dev/urandom', 'rb').read(16)))", Out: "'' b'\\x00\\x00' 16"},
		{Code: "f = os.open(os.devnull, os.O_RDWR); os.write(f, b'abc'), os.read(f, 3), os.isatty(f), os.close(f), os.stat(os.devnull).st_size", Result: "(3, b'', False, None, 0)"},
		{Code: "open('/dev/new', 'w')", Fails: "OSError: …", Line: 1},
	},
	"help": {
		{Code: "help(len)", Out: "Help on built-in function len in module builtins:…"},
		{Code: "help('with')", Out: "The \"with\" statement…"},
		{Code: "def f(x):\n    'what f is for'\nhelp(f)", Out: "Help on function f in module __main__:…"},
	},
}

func TestPythonPrograms(t *testing.T) {
	owners := t.TempDir()
	b := newBackend(t, owners)
	for name, cells := range pythonPrograms {
		t.Run(name, func(t *testing.T) {
			in := startIn(t, b, "python", folder(t, owners, "o/"+strings.ReplaceAll(name, " ", "_")))
			for _, c := range cells {
				c.Check(t, in)
			}
		})
	}
}
