package sandboxtest

import (
	"context"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// FakeConfig sets a [Fake] up; the zero FakeConfig is useful.
type FakeConfig struct {
	// Name is the isolation's name; empty: "fake".
	Name string
	// Runtimes are what Start accepts; nil: "python" (language python) and
	// "javascript" (languages javascript and typescript). All of them speak
	// the same tiny language.
	Runtimes []sandbox.Runtime
	// Forced is what becomes of an interpreter whose program was stopped by
	// force: sandbox.Restored (zero as well) or sandbox.Fresh.
	Forced sandbox.State
	// Unavailable, when set, is the Probe's reason why nothing works.
	Unavailable string
	// OnStart, when set, is called at each Start; its error is Start's.
	OnStart func(sandbox.Spec) error
}

// Fake is a backend in memory that passes the suite. Its guests speak a tiny
// language, a statement on each line, whose assignments, integers, strings,
// lists and calls of print look the same in Python and nearly the same in
// JavaScript:
//
//	x = 42                    let and const may stand before it
//	x * 2 + len("abc")        an expression; the last one is the result
//	print(x, "text")          console.log too; eprint and console.error
//	def double(n): return n*2 functions of one expression
//	import math               remembered, for inspections
//	raise ValueError("no")    throw new Error("no") too
//	read(path) write(path, s) files below the mounts; append, remove, symlink, fill
//	env(name) envs() args() input() sum(l) len(l) str(x) random()
//	sleep(seconds) loop flood alloc(bytes) display(mime, data) exit(code)
//	call(tool, text)          asks the host, and waits in it
//	x = gather("tool", n)     n calls at once, and the sum of what they give
//	connect(host, port)       always an error: there is no network
//	proxied(text)             what the machine's proxy answers to a line, or "refused"
//	spin                      runs until it is stopped by force
//	crash                     the interpreter traps and is made again
//	vanish                    the whole instance goes away
//	panic                     a mistake in the backend
type Fake struct {
	config   FakeConfig
	machines bool // it is within FakeMachines

	mu        sync.Mutex // guards what follows
	closed    bool
	instances map[*fakeInstance]bool
}

var _ sandbox.Backend = (*Fake)(nil)

// NewFake makes a backend without instances.
func NewFake(config FakeConfig) *Fake {
	if config.Name == "" {
		config.Name = "fake"
	}
	if config.Runtimes == nil {
		config.Runtimes = []sandbox.Runtime{
			{Name: "python", Languages: []string{"python"}, Version: "1", Description: "a tiny language"},
			{Name: "javascript", Languages: []string{"javascript", "typescript"}, Version: "1", Description: "a tiny language"},
		}
	}
	if config.Forced == 0 {
		config.Forced = sandbox.Restored
	}
	return &Fake{config: config, instances: map[*fakeInstance]bool{}}
}

// Name is the configured one.
func (b *Fake) Name() string { return b.config.Name }

// Probe tells the configured runtimes.
func (b *Fake) Probe(context.Context) sandbox.Probe {
	if b.config.Unavailable != "" {
		return sandbox.Probe{Reason: b.config.Unavailable, Hint: "it is configured so"}
	}
	return sandbox.Probe{Available: true, Engine: fakeEngine, Runtimes: slices.Clone(b.config.Runtimes)}
}

// Live is how many instances have not ended.
func (b *Fake) Live() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.instances)
}

// Start makes an interpreter without variables, or with those of spec.Resume.
func (b *Fake) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error) {
	return b.start(ctx, spec, nil)
}

// start makes an interpreter that begins with a moment of another, if there is
// one.
func (b *Fake) start(ctx context.Context, spec sandbox.Spec, from *fakeMoment) (sandbox.Instance, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if !slices.ContainsFunc(b.config.Runtimes, func(r sandbox.Runtime) bool { return r.Name == spec.Runtime }) {
		return nil, fault.New(fault.Unsupported, "there is no runtime called %q", spec.Runtime)
	}
	if b.config.OnStart != nil {
		if err := b.config.OnStart(spec); err != nil {
			return nil, err
		}
	}
	in := &fakeInstance{backend: b, done: make(chan struct{}), kill: make(chan struct{}), spec: spec}
	in.spec.Env, in.spec.Resume = maps.Clone(spec.Env), nil
	if !b.machines {
		in.spec.Proxy = nil
	}
	in.fakeState = fakeState{vars: map[string]any{}, random: rand.Uint64()}
	if err := in.beginWith(spec, from); err != nil {
		return nil, err
	}
	for _, m := range spec.Mounts {
		root, err := os.OpenRoot(m.Host)
		if err != nil {
			in.release()
			return nil, fault.New(fault.Invalid, "the folder of a mount cannot be opened").WithCause(err)
		}
		in.mounts = append(in.mounts, fakeMount{Mount: m, root: root})
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		in.release()
		return nil, fault.New(fault.Unavailable, "the backend is closed")
	}
	b.instances[in] = true
	return in, nil
}

// Close ends every instance.
func (b *Fake) Close() error {
	b.mu.Lock()
	b.closed = true
	all := slices.Collect(maps.Keys(b.instances))
	b.mu.Unlock()
	for _, in := range all {
		in.Close()
	}
	return nil
}

// fakeInstance is one interpreter. Its state, and what was kept of it, belong
// to whoever has set busy.
type fakeInstance struct {
	backend *Fake
	spec    sandbox.Spec
	mounts  []fakeMount
	done    chan struct{}
	kill    chan struct{} // closed when the program has to stop at once, for good

	fakeState
	newest  *fakeMoment // that a snapshot was made of; nil: none yet
	written bool        // and its layers lead to it

	mu      sync.Mutex // guards what follows
	busy    bool
	closing bool
	ended   bool
	marks   []fakeMark
}

// fakeState is what an interpreter holds. The values in vars are never changed.
type fakeState struct {
	vars    map[string]any
	imports []string
	extra   int64  // bytes that alloc took
	random  uint64 // where random() is
	// waits is the program that waits for the host; nil: none does. It is never changed.
	waits *fakeWaiting
}

func (s fakeState) clone() fakeState {
	s.vars, s.imports = maps.Clone(s.vars), slices.Clone(s.imports)
	return s
}

var _ sandbox.Instance = (*fakeInstance)(nil)

func (in *fakeInstance) Done() <-chan struct{} { return in.done }

// begin makes the caller the one that is busy with the instance.
func (in *fakeInstance) begin() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case in.closing:
		return fault.New(fault.Unavailable, "the interpreter is gone").WithHint("the next call starts a new one")
	case in.busy:
		return fault.New(fault.Conflict, "the interpreter is busy with another call").WithHint("wait for it, or cancel it")
	}
	in.busy = true
	return nil
}

func (in *fakeInstance) finish() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.busy = false
	if in.closing {
		in.endLocked()
	}
}

func (in *fakeInstance) endLocked() {
	if in.ended {
		return
	}
	in.ended = true
	in.release()
	in.backend.mu.Lock()
	delete(in.backend.instances, in)
	in.backend.mu.Unlock()
	close(in.done)
}

func (in *fakeInstance) release() {
	for _, m := range in.mounts {
		m.root.Close()
	}
}

// stop begins the end: whoever is busy stops and finishes it.
func (in *fakeInstance) stop() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closing {
		return
	}
	in.closing = true
	close(in.kill)
	if !in.busy {
		in.endLocked()
	}
}

// Close stops what runs and waits.
func (in *fakeInstance) Close() error {
	in.stop()
	<-in.done
	return nil
}

// Inspect lists the variables and imports.
func (in *fakeInstance) Inspect(context.Context) (sandbox.Inspection, error) {
	if err := in.begin(); err != nil {
		return sandbox.Inspection{}, err
	}
	defer in.finish()
	return in.inspection(), nil
}

func (in *fakeInstance) inspection() sandbox.Inspection {
	found := sandbox.Inspection{Imports: slices.Clone(in.imports), Memory: in.memory()}
	for _, name := range slices.Sorted(maps.Keys(in.vars)) {
		found.Variables = append(found.Variables, sandbox.Variable{Name: name, Type: typeName(in.vars[name]), Preview: repr(in.vars[name])})
	}
	return found
}

// fakeOwnMemory is what an interpreter needs for itself.
const fakeEngine = "fake"

const fakeOwnMemory = 1 << 20

func (in *fakeInstance) memory() int64 { return fakeOwnMemory + in.extra }

// Run executes a program of the tiny language.
func (in *fakeInstance) Run(ctx context.Context, cmd sandbox.Command) (sandbox.Exit, error) {
	if cmd.Limits.Fuel > 0 && !in.spec.Limits.Metered {
		return sandbox.Exit{}, fault.New(fault.Unsupported, "this instance is not metered")
	}
	if err := in.begin(); err != nil {
		return sandbox.Exit{}, err
	}
	defer in.finish()
	r := &fakeRun{in: in, ctx: ctx, cmd: cmd, from: in.waits}
	in.waits = nil // it goes on, or is given up
	before := in.fakeState.clone()
	exit, err := r.execute()
	if err != nil {
		in.stopLater()
		return sandbox.Exit{}, err
	}
	switch exit.State {
	case sandbox.Restored:
		in.fakeState = before
		in.random = rand.Uint64()
	case sandbox.Fresh:
		in.fakeState = fakeState{vars: map[string]any{}, random: rand.Uint64()}
	}
	exit.Engine, exit.Usage = fakeEngine, sandbox.Usage{Fuel: r.fuel, FuelLimit: cmd.Limits.Fuel, Memory: in.memory()}
	return exit, nil
}

// stopLater lets finish end the instance.
func (in *fakeInstance) stopLater() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.closing {
		in.closing = true
		close(in.kill)
	}
}

// typeName is a value's type in the tiny language.
func typeName(v any) string {
	switch v.(type) {
	case int64:
		return "int"
	case string:
		return "str"
	case []any:
		return "list"
	case *function:
		return "function"
	}
	return "none"
}

// text is a value as print shows it.
func text(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return repr(v)
}

func joinTexts(values []any) string {
	parts := make([]string, len(values))
	for k, v := range values {
		parts[k] = text(v)
	}
	return strings.Join(parts, " ")
}
