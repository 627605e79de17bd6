package crash

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
)

// state is what a session holds, as far as the tests have put it there.
type state struct {
	python, javascript interpreter
	files              map[string]content // by guest path
}

// interpreter is what one of the languages knows: every operation that it has
// seen, and with what the last of them filled a megabyte.
type interpreter struct {
	log   []int
	block int
}

// content is that of a file: the number of an operation, many times.
type content struct{ op, times int }

func (c content) text() string { return strings.Repeat(fmt.Sprintf("%d ", c.op), c.times) }

func empty() *state { return &state{files: map[string]content{}} }

func (s *state) clone() *state {
	c := *s
	c.python.log, c.javascript.log, c.files = slices.Clone(s.python.log), slices.Clone(s.javascript.log), maps.Clone(s.files)
	return &c
}

// after is the state when an operation has been done in it.
func (s *state) after(do func(*state)) *state {
	c := s.clone()
	do(c)
	return c
}

// seen is what a program tells of the session it runs in: its own interpreter,
// and files where it is Python.
type seen struct {
	Log   []int
	Block int // -1: not the same everywhere
	Files map[string]string
	Drawn []string // random numbers, none of which may ever come again
}

func (i interpreter) String() string {
	return fmt.Sprintf("%d%v, block %d", len(i.log), tail(i.log), i.block)
}

// tail is the end of a log: enough to tell two apart by eye.
func tail(log []int) []int { return log[max(0, len(log)-8):] }

func (i interpreter) is(s seen) bool { return slices.Equal(i.log, s.Log) && i.block == s.Block }

// listing is what files are, with their lengths and checksums.
func listing(files map[string]content) map[string]string {
	l := map[string]string{}
	for path, c := range files {
		text := c.text()
		l[path] = fmt.Sprintf("%d %08x", len(text), crc32.ChecksumIEEE([]byte(text)))
	}
	return l
}

// differ tells what of a state's Python and files is otherwise; empty: nothing.
func (s *state) differ(python seen) string {
	var parts []string
	if !s.python.is(python) {
		parts = append(parts, fmt.Sprintf("python is %v and not %v", interpreter{python.Log, python.Block}, s.python))
	}
	want := listing(s.files)
	for _, path := range slices.Sorted(maps.Keys(want)) {
		switch got, there := python.Files[path]; {
		case !there:
			parts = append(parts, path+" is missing")
		case got != want[path]:
			parts = append(parts, fmt.Sprintf("%s is %s and not %s", path, got, want[path]))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(python.Files)) {
		if _, there := want[path]; !there {
			parts = append(parts, path+" is too many")
		}
	}
	if len(parts) > 8 {
		parts = append(parts[:8], fmt.Sprintf("and %d more", len(parts)-8))
	}
	return strings.Join(parts, "; ")
}

// pythonTells prints what Python sees, as seen. Its files are looked at first:
// to import takes none of them.
const pythonTells = `
import json, os, random, secrets, time, uuid, zlib
if 'log' not in globals():
    log = []
    block = bytearray(1 << 20)
def put(path, op, times):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w') as f:
        f.write(f'{op} ' * times)
def tell():
    files = {}
    for root in '/workspace', '/tmp':
        for folder, _, names in os.walk(root):
            for name in names:
                with open(folder + '/' + name, 'rb') as f:
                    data = f.read()
                files[folder + '/' + name] = f'{len(data)} {zlib.crc32(data):08x}'
    values = set(block[::4096])
    drawn = [uuid.uuid4().hex, uuid.uuid1().hex, repr(random.random()), secrets.token_hex(8)]
    print(json.dumps({'Log': log, 'Block': values.pop() if len(values) == 1 else -1, 'Files': files, 'Drawn': drawn}))
`

const javascriptTells = `
globalThis.log ??= []
globalThis.block ??= new Uint8Array(1 << 20)
globalThis.tell = () => {
  const values = new Set()
  for (let i = 0; i < block.length; i += 4096) values.add(block[i])
  console.log(JSON.stringify({Log: log, Block: values.size === 1 ? block[0] : -1, Drawn: [String(Math.random()), crypto.randomUUID()]}))
}
`

// told reads what a program printed.
func told(a *answer) (s seen, err error) {
	if err := json.Unmarshal([]byte(a.Stdout), &s); err != nil {
		return s, fmt.Errorf("it printed %.300q, and %.1000q: %w", a.Stdout, a.Stderr, err)
	}
	return s, nil
}

// python is a program that notes an operation, and does more before it tells.
func python(op int, more string) string {
	return fmt.Sprintf("%slog.append(%d)\n%s\ntell()\n", pythonTells, op, more)
}

func javascript(op int, more string) string {
	return fmt.Sprintf("%slog.push(%d)\n%s\ntell()\n", javascriptTells, op, more)
}

// execution are the arguments of execute_code.
func execution(id, language, code string) map[string]any {
	return map[string]any{"session_id": id, "language": language, "code": code, "timeout": 30}
}
