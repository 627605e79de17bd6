//go:build native

package worker

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
	"paddock/internal/sandbox/wire/wiretest"
)

var (
	differing = flag.Int("differ", 40, "how many random programs of each language run on both engines")
	differAt  = flag.Uint64("differ-seed", 1, "the first of their seeds")
)

// Random programs print the same, end the same and leave the same memory, byte
// for byte, on both engines. For that they have the same image, time that
// stands still, and the same random numbers.
func TestRandomProgramsAreTheSameOnBothEngines(t *testing.T) {
	loaders := bothEngines(t)
	for _, name := range []string{"python", "javascript"} {
		t.Run(name, func(t *testing.T) {
			errors, both := 0, [2]*program{}
			for i, l := range loaders {
				var err error
				if both[i], err = l.load(t.Context(), name, true); err != nil {
					t.Fatal(err)
				}
			}
			for seed := *differAt; seed < *differAt+uint64(*differing); seed++ {
				code := write(name, seed)
				one, other := behaviour(t, both[0], code), behaviour(t, both[1], code)
				if one != other {
					t.Errorf("seed %d:\n%s\nnative: %s\nwazero: %s", seed, code, one, other)
				}
				if strings.Contains(one, `"error":{"`) {
					errors++
				}
			}
			t.Logf("%d of %d programs end with an error", errors, *differing)
			if *differing >= 20 && (errors == 0 || errors == *differing) {
				t.Error("they are not diverse")
			}
		})
	}
}

// behaviour is everything that can be seen of a program: what it prints, its
// result, and a digest of the memory that it leaves.
func behaviour(t *testing.T, p *program, code string) (seen string) {
	synctest.Test(t, func(t *testing.T) {
		cryptotest.SetGlobalRandom(t, 1)
		printed := &wiretest.Recorder{}
		in := &instance{program: p, worker: &worker{folders: folders{}}}
		in.connect(wire.NewConn(printed))
		if err := in.open(false); err != nil {
			t.Fatal(err)
		}
		defer in.discard()
		in.ends.Control.Begin(0)
		in.begin(wire.RunBody{Limits: sandbox.RunLimits{StdoutBytes: 1 << 20, StderrBytes: 1 << 20}})
		outcome, err := in.runToCompletion(map[string]any{"op": "exec", "code": code, "name": "<cell>", "args": nil})
		in.end()
		answer, _ := json.Marshal(outcome)
		seen = fmt.Sprintf("%q\n%s\n%v\nmemory %d, %x", printed.Bytes(), answer, err, len(in.bytes()), sha256.Sum256(in.bytes()))
	})
	return seen
}

// write makes a program of a seed.
func write(language string, seed uint64) string {
	w := &writer{Rand: rand.New(rand.NewPCG(seed, 7)), speech: pythonSpeech}
	if language == "javascript" {
		w.speech = javascriptSpeech
	}
	var b bytes.Buffer
	b.WriteString(w.begin)
	for range 4 + w.IntN(10) {
		b.WriteString(w.fill(w.pick(w.statements), 4))
		b.WriteByte('\n')
	}
	b.WriteString(w.end)
	return b.String()
}

// speech are a language's pieces. In a statement or expression, E is an
// expression, V a variable, N a small number, S a text.
type speech struct {
	begin, end                   string
	statements, exprs, variables []string
}

type writer struct {
	*rand.Rand
	speech
}

func (w *writer) pick(from []string) string { return from[w.IntN(len(from))] }

// fill replaces the marks in a piece: §E and so on.
func (w *writer) fill(piece string, depth int) string {
	parts := strings.Split(piece, "§")
	var b strings.Builder
	b.WriteString(parts[0])
	for _, p := range parts[1:] {
		switch p[0] {
		case 'E':
			b.WriteString(w.expr(depth - 1))
		case 'V':
			b.WriteString(w.pick(w.variables))
		case 'N':
			fmt.Fprint(&b, 1+w.IntN(40))
		case 'S':
			fmt.Fprintf(&b, "%q", strings.Repeat("aZé7 -"[:1+w.IntN(4)], w.IntN(12)))
		}
		b.WriteString(p[1:])
	}
	return b.String()
}

func (w *writer) expr(depth int) string {
	if depth <= 0 {
		switch w.IntN(4) {
		case 0:
			return w.pick(w.variables)
		case 1:
			return fmt.Sprint(w.IntN(1<<w.IntN(62)) - 50)
		case 2:
			return fmt.Sprintf("%.*g", 1+w.IntN(17), w.NormFloat64()*float64(w.IntN(1000)))
		}
		return w.fill("§S", 0)
	}
	return w.fill(w.pick(w.exprs), depth)
}

var pythonSpeech = speech{
	begin: `import math, re, json, hashlib, zlib, itertools, functools, collections, decimal, random, struct, datetime
a, b, c, d = 3, 'text', [1, 2.5, 'x'], {'k': 1, 2: 'two'}
class P:
    n = 0
    def __init__(self, v): self.v = v; P.n += 1
    def __eq__(self, o): return isinstance(o, P) and self.v == o.v
    def __hash__(self): return hash(self.v)
    def __repr__(self): return f'P({self.v!r})'
def show(f):
    try: print(repr(f())[:300])
    except Exception as e: print(type(e).__name__, str(e)[:200])
def f(x, y=2, *z):
    if isinstance(x, int) and 0 < x < 200: return f(x - 1, y, *z) + 1
    return (x, y) if z else 0
`,
	end:       "a, b, c, d\n",
	variables: []string{"a", "b", "c", "d"},
	statements: []string{
		"show(lambda: §E)", "show(lambda: §E)", "show(lambda: §E)",
		"try: §V = §E\nexcept Exception as e: print(type(e).__name__, e)",
		"for i in range(§N):\n    try: a = a + i * §N if isinstance(a, (int, float)) else §E\n    except Exception as e: print(type(e).__name__)",
		"try: c = [§E for i in range(§N)]\nexcept Exception as e: print(e)", "try: d = {str(i): §E for i in range(§N)}\nexcept Exception as e: print(e)",
		"def g(n):\n    for i in range(n): yield §E\nshow(lambda: list(itertools.islice(g(§N), 5)))",
		"try:\n    assert §E, 'no'\nexcept Exception as e: print(repr(e)[:80])\nfinally: b = str(b)[:99] + '!'",
		"async def h(): return §E\nshow(lambda: h().send(None))",
		"match c:\n    case [x, *_]: show(lambda: x)\n    case _: show(lambda: §E)",
		"raise ValueError(§E)",
	},
	exprs: []string{
		"(§E + §E)", "(§E * §N)", "(§E - §E)", "(§E / §E)", "(§E // §N)", "(§E % §E)", "(§N ** §N)", "(§N << §N)", "(§E == §E)", "(§E < §E)",
		"(§E if §E else §E)", "[§E, §E]", "(§E, §E)", "{§E: §E}", "{§E}", "len(§E)", "str(§E)", "repr(§E)", "int(§E)", "float(§E)", "abs(§E)", "hash(§E)",
		"sorted(§E, key=repr)", "sum(§V)", "max(§E, §E)", "round(§E, §N)", "math.sin(§E)", "math.sqrt(abs(§E))", "math.factorial(§N)", "math.fmod(§E, §E)",
		"f'{§E!r:>20}|{§N:08.3f}|{§N:#x}'", "'%s-%5d-%e' % (§E, §N, §N)", "§S.join(map(str, §E))", "str(§E).upper()[::-1]", "str(§E).split('e')",
		"re.findall(r'[a-z]+|\\d+', str(§E))", "re.sub(r'(.)\\1', r'<\\1>', str(§E))", "json.dumps(§E, default=str)", "json.loads(json.dumps(§E))",
		"hashlib.sha256(str(§E).encode()).hexdigest()[:16]", "hashlib.md5(str(§E).encode()).hexdigest()", "zlib.crc32(str(§E).encode())",
		"zlib.decompress(zlib.compress(str(§E).encode() * §N))[:40]", "functools.reduce(lambda x, y: (x, y), §E, §N)", "collections.Counter(str(§E)).most_common(3)",
		"decimal.Decimal(§N) / decimal.Decimal(§N)", "decimal.Decimal(str(§E)).sqrt()", "random.Random(§N).random()", "random.Random(§N).sample(range(100), 5)",
		"struct.unpack('<I', struct.pack('<f', §E))", "struct.pack('>qd', §E, §E)", "datetime.datetime(2020, 1, 1) + datetime.timedelta(days=§E)",
		"P(§E)", "{P(§E): §E}", "(lambda x: §E)(§E)", "f(§N, §E)", "f(§E, *§V)", "[x for x in §V if x]", "§V[§E]", "(§E)[0]", "(not §E)", "(§E and §E)", "(§E or §E)",
		"complex(§E, §N) ** 2", "bytes(str(§E), 'utf8').hex()", "list(zip(§V, §V))", "dict(enumerate(§E))", "type(§E).__name__", "(~int(§E)) & 0xffff", "pow(§N, §N, §N)",
		"eval(repr(§E))", "[*range(§N)][::-§N]", "bin(§N)", "isinstance(§E, (int, str))", "set(str(§E)) & set('abc')", "memoryview(str(§E).encode())[1:].tobytes()",
	},
}

var javascriptSpeech = speech{
	begin: `let a = 3, b = 'text', c = [1, 2.5, 'x'], d = { k: 1, 2: 'two' };
const show = (f) => { try { console.log(String(JSON.stringify(f(), (k, v) => typeof v === 'bigint' ? v + 'n' : v))?.slice(0, 300)) } catch (e) { console.log(e.name, e.message.slice(0, 200)) } };
class P { #v; static n = 0; constructor(v) { this.#v = v; P.n++ } get v() { return this.#v } toJSON() { return { P: this.#v } } }
function f(x, y = 2, ...z) { return typeof x === 'number' && x > 0 && x < 200 ? f(x - 1, y, ...z) + 1 : z.length ? [x, y] : 0 }
`,
	end:       "[a, b, c, d]\n",
	variables: []string{"a", "b", "c", "d"},
	statements: []string{
		"show(() => §E);", "show(() => §E);", "show(() => §E);",
		"try { §V = §E } catch (e) { console.log(e.name, e.message) }",
		"for (let i = 0; i < §N; i++) { try { a = typeof a === 'number' ? a + i * §N : §E } catch (e) { console.log(e.name) } }",
		"try { c = Array.from({ length: §N }, (_, i) => §E) } catch (e) { console.log(e.name) }", "try { d = Object.fromEntries([...'abc'].map((k, i) => [k, §E])) } catch (e) { console.log(e.name) }",
		"{ function* g(n) { for (let i = 0; i < n; i++) yield §E } show(() => [...g(§N)].slice(0, 5)) }",
		"try { if (!§E) throw new RangeError('no') } catch (e) { console.log(String(e)) } finally { b = String(b).slice(0, 99) + '!' }",
		"await (async () => { try { console.log(typeof await §E) } catch (e) { console.log(e.name) } })();",
		"{ const { k, ...rest } = d ?? {}; show(() => [k, rest, §E]) }",
		"throw new TypeError(§E);",
	},
	exprs: []string{
		"(§E + §E)", "(§E * §N)", "(§E - §E)", "(§E / §E)", "(§E % §E)", "(§N ** §N)", "(§E << §N)", "(§E >>> §N)", "(§E | §E)", "(§E ^ §E)", "(§E === §E)", "(§E < §E)",
		"(§E ? §E : §E)", "[§E, §E]", "({ p: §E, q: §E })", "new Set([§E, §E]).size", "[...new Map([[§E, §E]])]", "String(§E)", "Number(§E)", "parseInt(§E, §N)", "(+§E).toFixed(§N % 20)",
		"(§E).toString(2 + §N % 30)", "Math.sin(§E)", "Math.sqrt(Math.abs(§E))", "Math.hypot(§E, §N)", "Math.max(...§V)", "Math.round(§E)", "BigInt(§N) ** BigInt(§N)", "BigInt.asIntN(§N, BigInt(§N) << 70n)",
		"`${§E}-${§E}`", "§S.padStart(§N, '.-')", "String(§E).toUpperCase().split('').reverse().join('')", "String(§E).split('e')", "String(§E).match(/[a-z]+|\\d+/g)", "String(§E).replace(/(.)\\1/gu, '<$1>')",
		"JSON.stringify(§E)", "JSON.parse(JSON.stringify(§E))", "structuredClone?.(§E)", "[...String(§E)].sort()", "c.map?.((x) => §E)", "c.reduce?.((x, y) => [x, y], §E)", "Object.entries(§E)", "Object.keys(§V)",
		"new Uint8Array(new Float64Array([§E]).buffer).join()", "new Float32Array([§E, §E])[0]", "new DataView(new ArrayBuffer(8)).getInt16(§N)", "new Date(§N * 1e9).toISOString()",
		"new P(§E)", "new P(§E).v", "((x) => §E)(§E)", "f(§N, §E)", "f(§E, ...§V)", "§V[§E]", "§V?.[§N]", "(!§E)", "(§E && §E)", "(§E || §E)", "(§E ?? §E)", "typeof §E", "(§E instanceof Object)",
		"eval(JSON.stringify(§E))", "isNaN(§E)", "encodeURIComponent(§E)", "String.raw`x${§E}`", "Symbol.for(§S).description", "Reflect.ownKeys(Object(§E)).slice(0, 5)", "new Error(§E).message", "[§E, §E].flat(2)", "~~§E",
	},
}
