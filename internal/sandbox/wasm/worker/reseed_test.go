package worker

import (
	"io"
	"testing"
	"time"
)

// alone makes an interpreter that has no server and no folders.
func alone(t *testing.T, p *program) *instance {
	t.Helper()
	in := &instance{program: p, log: io.Discard}
	in.connect(nil)
	t.Cleanup(in.drop)
	if err := in.open(false); err != nil {
		t.Fatal(err)
	}
	return in
}

// testTime bounds what a test asks a driver for, on a machine that does much else.
const testTime = time.Minute

// exec executes code until it ends or waits.
func (in *instance) exec(code string) (outcome, error) {
	return in.askWithTimeout(map[string]any{"op": "exec", "code": code, "name": "<cell>", "args": nil}, testTime)
}

// gives executes code, until nothing of it waits, and gives its last value.
func (in *instance) gives(t *testing.T, code string) string {
	t.Helper()
	o, err := in.exec(code)
	for n := 0; err == nil && o.Status == "waiting"; n++ {
		if n == 1000 {
			t.Fatalf("it still waits: %s", code)
		}
		time.Sleep(time.Duration(*o.Timeout * float64(time.Second)))
		o, err = in.askWithTimeout(map[string]any{"op": "resume"}, testTime)
	}
	if err != nil || o.Error != nil {
		t.Fatalf("%s\n%v %+v", code, err, o.Error)
	}
	return o.Result
}

// awake sends the request awaken.
func (in *instance) awake(t *testing.T) {
	t.Helper()
	o, err := in.askWithTimeout(map[string]any{"op": "awaken", "seed": newSeed()}, testTime)
	if err != nil || o.Status != "ok" {
		t.Fatalf("%v %+v", err, o)
	}
}

// draws are expressions that no two interpreters may have one value of.
var draws = map[string][]string{
	"python": {
		"import random; random.random()", "random.gauss()", "import secrets; secrets.token_hex()", "import os; os.urandom(8).hex()",
		"import uuid; uuid.uuid4().hex", "uuid.getnode()", "uuid.uuid1().hex", "import tempfile; next(tempfile._get_candidate_names())",
		"import sqlite3; sqlite3.connect(':memory:').execute('select hex(randomblob(8)), random()').fetchone()",
		"random.SystemRandom().random()",
	},
	"javascript": {
		"Math.random()", "crypto.randomUUID()", "crypto.getRandomValues(new Uint32Array(2)).join()",
		"require('crypto').randomBytes(8).toString('hex')", "require('crypto').randomInt(2 ** 40)",
	},
}

// Interpreters are copies of one image, and may be copies of one another.
func TestNoTwoCopiesDrawTheSame(t *testing.T) {
	for name, expressions := range draws {
		t.Run(name, func(t *testing.T) {
			p, err := loaderIn(t, preparedCache(t)).load(t.Context(), name, true)
			if err != nil {
				t.Fatal(err)
			}
			seen := map[string]bool{}
			draw := func(in *instance) {
				t.Helper()
				for _, e := range expressions {
					v := e + " = " + in.gives(t, e)
					if seen[v] {
						t.Errorf("drawn twice: %s", v)
					}
					seen[v] = true
				}
			}
			one, two := alone(t, p), alone(t, p)
			draw(one)
			draw(two)
			memory := append([]byte(nil), one.bytes()...)
			for range 3 { // three copies of one
				copy(one.bytes(), memory)
				one.awake(t)
				draw(one)
			}
			copy(one.bytes(), memory)
			before := one.gives(t, expressions[0])
			copy(one.bytes(), memory)
			if again := one.gives(t, expressions[0]); again != before {
				t.Errorf("a copy that goes on draws %s, not %s", again, before)
			}
		})
	}
}

// What waits in one is not done by the other as well.
func TestWhatWaitsIsGivenUpInACopy(t *testing.T) {
	for name, test := range map[string]struct{ leave, look, want string }{
		"python": {
			"import asyncio\nlog = []\nasync def later(): await asyncio.sleep(0.1); log.append('task')\ntasks = [asyncio.create_task(later())]\nasyncio.get_running_loop().call_later(0.1, log.append, 'timer')\nawait asyncio.sleep(0)",
			"await asyncio.sleep(0.2); log", "[]"},
		"javascript": {
			"globalThis.log = []; setInterval(() => log.push('timer'), 100); AbortSignal.timeout(100).onabort = () => log.push('abort'); await new Promise((r) => setTimeout(r, 1e6)); log.push('went on')",
			"await new Promise((r) => setTimeout(r, 200)); log", "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := loaderIn(t, preparedCache(t)).load(t.Context(), name, true)
			if err != nil {
				t.Fatal(err)
			}
			in := alone(t, p)
			if o, err := in.exec(test.leave); err != nil || o.Error != nil {
				t.Fatalf("%v %+v", err, o.Error)
			}
			in.awake(t)
			if got := in.gives(t, test.look); got != test.want {
				t.Errorf("it gives %s, want %s", got, test.want)
			}
		})
	}
}

// A program that breaks what the driver needs breaks its own session at most.
func TestAJavaScriptProgramCannotKeepItsCopyFromAwakening(t *testing.T) {
	p, err := loaderIn(t, preparedCache(t)).load(t.Context(), "javascript", true)
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range []string{
		"delete String.prototype.slice; delete Array.prototype.slice; delete Map.prototype.clear; globalThis.parseInt = null; Math.imul = null; JSON.parse = JSON.stringify = null",
		"Object.defineProperty(Object.prototype, 'op', { set() { throw 1 }, get() { throw 2 } }); Object.defineProperty(Array.prototype, '0', { set() { throw 3 } })",
		"process = null; setTimeout = null; Reflect.apply = null; Function.prototype.apply = Function.prototype.call = null",
	} {
		in := alone(t, p)
		in.gives(t, "const random = Math.random; let last; "+code+"; 1")
		memory := append([]byte(nil), in.bytes()...)
		before := in.gives(t, "random()")
		copy(in.bytes(), memory)
		in.awake(t)
		if after := in.gives(t, "random()"); after == before {
			t.Errorf("after %s it draws %s again", code, after)
		}
	}
	in := alone(t, p)
	in.gives(t, "Math.random = () => 0.5")
	in.awake(t)
	if got := in.gives(t, "Math.random()"); got != "0.5" {
		t.Errorf("the program's own generator gives %s", got)
	}
}
