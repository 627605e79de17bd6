package worker

import (
	"strings"
	"testing"
)

// previewed are values of which a glance is enough.
const previewed = `
var empty = {}, small = { a: 1, "b c": 'text', c: [1, 2, 3], d: { e: 1 } }, list = [1, , 'two', [3, [4]]], none = null, text = "it's", big = 10n, nothing = NaN;
var many = {}; for (let i = 0; i < 5000; i++) many['key' + i] = 'value ' + i;
var long = Array.from({ length: 5000 }, (_, i) => i), deep = Array.from({ length: 100 }, (_, i) => ({ id: i, tags: ['a'] }));
var map = new Map(long.map((i) => ['k' + i, { v: i }])), set = new Set(long), date = new Date(0), regex = /x+/g, failed = new RangeError('no');
var typed = new Float64Array(5000), sparse = [, , 1], named = Object.assign([1, 2], { more: 3 }), bare = Object.create(null), long_text = 'x'.repeat(1e6);
function f(a, b) { return a + b; } var g = class G extends Array {}, h = new (class Point { x = 1; y = 2 })(), symbol = Symbol('s');
var iterator = long[Symbol.iterator](), promise = Promise.resolve(5), getter = { get x() { throw 1 } }, circle = { a: 1 }; circle.self = circle;
var args = (function () { return arguments; })(1, 2), boxed = new String('s');
1`

func TestAPreviewIsTheBeginningOfTheText(t *testing.T) {
	p, err := loaderIn(t, preparedCache(t)).load(t.Context(), "javascript", true)
	if err != nil {
		t.Fatal(err)
	}
	in := alone(t, p)
	in.gives(t, previewed)
	o, err := in.askWithTimeout(map[string]any{"op": "inspect"}, testTime)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, v := range o.Variables {
		found[v.Name] = v.Preview
	}
	if len(found) < 25 {
		t.Errorf("%d variables are told", len(found))
	}
	for name, got := range found {
		in.gives(t, "var whole = require('util').inspect("+name+", { depth: 1, compact: true }); 1")
		if same := in.gives(t, "whole.slice(0, 120) === "+quoted(got)); same != "true" {
			t.Errorf("%s is told as %s, and is %s", name, got, in.gives(t, "whole.slice(0, 120)"))
		}
	}
}

// quoted is a literal of JavaScript.
func quoted(text string) string {
	return "`" + strings.NewReplacer("\\", "\\\\", "`", "\\`", "${", "\\${").Replace(text) + "`"
}

func TestAPreviewLooksAtLittleOfWhatIsLarge(t *testing.T) {
	p, err := loaderIn(t, preparedCache(t)).load(t.Context(), "javascript", true)
	if err != nil {
		t.Fatal(err)
	}
	in := alone(t, p)
	in.gives(t, `
var looked = 0;
const count = (target) => new Proxy(target, {
  get: (o, k) => (looked++, o[k]), has: (o, k) => (looked++, k in o),
  getOwnPropertyDescriptor: (o, k) => (looked++, Reflect.getOwnPropertyDescriptor(o, k)),
});
var list = count(Array.from({ length: 9000 }, (_, i) => i)); 1`)
	if _, err := in.askWithTimeout(map[string]any{"op": "inspect"}, testTime); err != nil {
		t.Fatal(err)
	}
	if got := in.gives(t, "looked > 0 && looked < 500 || looked"); got != "true" {
		t.Errorf("it looked %s times at a list of 9000", got)
	}
}
