//go:build native

package worker

import (
	"context"
	"testing"

	"paddock/internal/sandbox/wire"
)

// moves are programs whose state has to be whole on the other engine: each
// step's last expression, and what it gives there.
var moves = map[string][]struct{ code, want string }{
	"python": {
		{"import re, json, random, decimal\nclass P:\n  def __init__(self): self.seen = {'a': [1, 2.5, None]}\np = P(); random.seed(7)\ndef g():\n  for i in range(1000):\n    yield i * 3\nit = g(); next(it)", "0"},
		{"pattern = re.compile(r'(\\w+)-(\\d+)'); f = open('/tmp/notes', 'w+'); f.write('one two'); p.seen['b'] = 2 ** 200; next(it)", "3"},
		{"f.seek(4); (f.read(), next(it), random.random(), pattern.match('ab-12').groups(), p.seen['b'] % 1000007, str(decimal.Decimal(1) / 3))",
			"('two', 6, 0.32383276483316237, ('ab', '12'), 446616, '0.3333333333333333333333333333')"},
		{"try:\n  p.missing\nexcept AttributeError as e: why = str(e)\n(why, sum(it), json.dumps(p.seen['a']))", "(\"'P' object has no attribute 'missing'\", 1498491, '[1, 2.5, null]')"},
	},
	"javascript": {
		{"let n = 0; const m = new Map([['a', [1, 2.5, null]]]); function* g() { for (;;) yield n++ * 3; } const it = g(); it.next().value", "0"},
		{"const r = /(\\w+)-(\\d+)/g; class P { #x = 2n ** 200n; get x() { return this.#x } } const p = new P(); const later = new Promise(r => globalThis.settle = r); it.next().value", "3"},
		{"settle('done'); [it.next().value, r.exec('ab-12').slice(), p.x % 1000007n, m.get('a'), await later]", "[ 6, [ 'ab-12', 'ab', '12' ], 446616n, [ 1, 2.5, null ], 'done' ]"},
		{"let why; try { undefined.x } catch (e) { why = e.constructor.name } [why, it.next().value, JSON.stringify(Object.fromEntries(m))]", "[ 'TypeError', 9, '{\"a\":[1,2.5,null]}' ]"},
	},
}

// A state that one engine has left goes on in the other, again and again: each
// step runs on the engine that the one before did not run on.
func TestAStateMovesBetweenTheEngines(t *testing.T) {
	loaders := bothEngines(t)
	for name, steps := range moves {
		for first := range loaders {
			t.Run(name+", begun on "+[]string{"native", wazeroName}[first], func(t *testing.T) {
				var in *instance
				for n, step := range steps {
					p, err := loaders[(first+n)%2].load(t.Context(), name, true)
					if err != nil {
						t.Fatal(err)
					}
					if in == nil {
						in = openedIn(t, p, t.TempDir(), &taken{})
					} else {
						in.program = p
						in.drop() // and not renew, which gives it new seeds
						if err := in.instantiate(nil); err != nil {
							t.Fatal(err)
						}
					}
					o, err := in.askWithTimeout(map[string]any{"op": "exec", "code": step.code, "name": "<cell>", "args": nil}, testTime)
					if err != nil || o.Error != nil || o.Result != step.want {
						t.Fatalf("step %d gives %q, not %q: %+v, %v", n, o.Result, step.want, o.Error, err)
					}
					if err := in.take(); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	}
}

// A state that one engine has written goes on in the other as well, layer after
// layer.
func TestLayersMoveBetweenTheEngines(t *testing.T) {
	loaders := bothEngines(t)
	for name, steps := range moves {
		for first := range loaders {
			t.Run(name+", begun on "+[]string{"native", wazeroName}[first], func(t *testing.T) {
				var l taken
				dir := t.TempDir()
				for n, step := range steps {
					p, err := loaders[(first+n)%2].load(t.Context(), name, true)
					if err != nil {
						t.Fatal(err)
					}
					in := openedIn(t, p, dir, &l)
					if got := in.gives(t, step.code); got != step.want {
						t.Fatalf("step %d gives %q, not %q", n, got, step.want)
					}
					in.touched = true
					l.keep(t, in, wire.SnapshotBody{})
				}
				if len(l.layers) != len(steps) {
					t.Errorf("there are %d layers", len(l.layers))
				}
			})
		}
	}
}

// bothEngines gives the native engine and wazero over one cache, so that they
// share the images.
func bothEngines(t *testing.T) [2]*loader {
	t.Helper()
	dir := preparedCache(t)
	compiler, err := newWazero(t.Context(), compiledDir(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { compiler.runtime.Close(context.Background()) })
	return [2]*loader{
		{engine: nativeEngine{}, dir: dir, programs: map[string]*program{}},
		{engine: compiler, dir: dir, programs: map[string]*program{}},
	}
}
