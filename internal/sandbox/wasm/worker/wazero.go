package worker

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"paddock/guest"
	"paddock/guest/build/instrument"
	"paddock/internal/sandbox/wasm/linear"
	"paddock/internal/sandbox/wasm/wasi"
)

const wazeroName = "wazero"

// wazeroVersion is the version of the library: its compiled code fits no other.
var wazeroVersion = sync.OnceValue(func() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "github.com/tetratelabs/wazero" {
				return m.Version
			}
		}
	}
	return "unknown"
})

// wazeroEngine compiles guests when they are prepared; it works everywhere.
type wazeroEngine struct {
	runtime wazero.Runtime
	hosts   map[string]bool // import modules that are there; see loader.mu
}

// newWazero keeps compiled code in cacheDir.
func newWazero(ctx context.Context, cacheDir string) (*wazeroEngine, error) {
	cache, err := wazero.NewCompilationCacheWithDir(cacheDir)
	if err != nil {
		return nil, fmt.Errorf("opening the cache of compiled code: %w", err)
	}
	config := wazero.NewRuntimeConfig().WithCompilationCache(cache).WithDebugInfoEnabled(false)
	e := &wazeroEngine{runtime: wazero.NewRuntimeWithConfig(ctx, config), hosts: map[string]bool{}}
	var functions []hostFunc
	for _, f := range wasi.Functions() {
		functions = append(functions, wasiFunc(f))
	}
	return e, e.provide(ctx, functions)
}

// wasiFunc joins a function of the wasi package to an instance: whatever the
// guest did, it is looked for an interrupt afterwards, so that a program that
// does nothing but wait is stopped as well.
func wasiFunc(f wasi.Function) hostFunc {
	call := f.Call
	return hostFunc{wasi.Module, f.Name, valueTypes(f.Params), valueTypes(f.Results), func(in *instance, stack []uint64) {
		call(in.system, in.bytes(), stack)
		in.poll()
	}}
}

// callContext carries the instance to the functions that its guest imports.
type callContext struct {
	context.Context
	in *instance
}

// provide makes functions importable, all of a module at once.
func (e *wazeroEngine) provide(ctx context.Context, functions []hostFunc) error {
	builders := map[string]wazero.HostModuleBuilder{}
	for _, f := range functions {
		if e.hosts[f.module] {
			continue
		}
		b := builders[f.module]
		if b == nil {
			b = e.runtime.NewHostModuleBuilder(f.module)
			builders[f.module] = b
		}
		fn := f.fn
		b.NewFunctionBuilder().WithGoFunction(api.GoFunc(func(ctx context.Context, stack []uint64) {
			fn(ctx.(*callContext).in, stack)
		}), f.params, f.results).Export(f.name)
	}
	for module, b := range builders {
		if _, err := b.Instantiate(ctx); err != nil {
			return fmt.Errorf("providing the imports of %s: %w", module, err)
		}
		e.hosts[module] = true
	}
	return nil
}

// load translates a guest, or takes the translation from the cache.
func (e *wazeroEngine) load(ctx context.Context, g *guest.Guest, imports []hostFunc) (code, error) {
	if err := e.provide(ctx, imports); err != nil {
		return nil, err
	}
	module, err := g.Module()
	if err != nil {
		return nil, err
	}
	compiled, err := e.compile(ctx, module)
	if err != nil {
		return nil, err
	}
	return wazeroCode{e, compiled}, nil
}

func (e *wazeroEngine) compile(ctx context.Context, module []byte) (wazero.CompiledModule, error) {
	ctx = experimental.WithCompilationWorkers(ctx, runtime.GOMAXPROCS(0))
	c, err := e.runtime.CompileModule(ctx, module)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errCompiled, err)
	}
	return c, nil
}

// wazeroCode is a compiled guest.
type wazeroCode struct {
	engine   *wazeroEngine
	compiled wazero.CompiledModule
}

// wazeroModule is an instantiated one.
type wazeroModule struct {
	ctx    *callContext
	module api.Module
	ticks  api.MutableGlobal
	stack  api.MutableGlobal
	idle   map[string][]api.Function // entries of exports that are not active
}

// lent is a memory that outlives the module.
type lent struct{ *linear.Memory }

// Free is what wazero does when the module is closed.
func (lent) Free() {}

func (c wazeroCode) instantiate(in *instance, memory *linear.Memory) (module, error) {
	ctx := &callContext{context.Background(), in}
	give := experimental.MemoryAllocatorFunc(func(_, _ uint64) experimental.LinearMemory { return lent{memory} })
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions()
	instantiated, err := c.engine.runtime.InstantiateModule(experimental.WithMemoryAllocator(ctx, give), c.compiled, config)
	if err != nil {
		return nil, fmt.Errorf("instantiating the guest: %w", err)
	}
	m := &wazeroModule{ctx: ctx, module: instantiated, idle: map[string][]api.Function{}}
	m.ticks, _ = instantiated.ExportedGlobal(instrument.Counter).(api.MutableGlobal)
	m.stack, _ = instantiated.ExportedGlobal("__stack_pointer").(api.MutableGlobal)
	if m.ticks == nil || m.stack == nil {
		m.close()
		return nil, fmt.Errorf("the guest has no global %s or __stack_pointer", instrument.Counter)
	}
	return m, nil
}

func (wazeroCode) reserve(img *linear.Image, limit uint64) (*linear.Memory, error) {
	return linear.New(img, limit)
}

func (*wazeroModule) watchInterrupts(_, _ <-chan struct{}, _ []word) func() bool { return nil }

// call takes an entry that is at rest. An entry has a native stack of its own and
// begins at its top each time: called while it is active, it would write over the
// frames that it is to return to, and what these then do is beyond every wall.
func (m *wazeroModule) call(name string, args ...uint64) (uint64, error) {
	var entry api.Function
	if idle := m.idle[name]; len(idle) > 0 {
		entry, m.idle[name] = idle[len(idle)-1], idle[:len(idle)-1]
	} else if entry = m.module.ExportedFunction(name); entry == nil {
		return 0, fmt.Errorf("the guest has no export %s", name)
	}
	results, err := entry.Call(m.ctx, args...)
	m.idle[name] = append(m.idle[name], entry)
	return first(results, err)
}

func first(results []uint64, err error) (uint64, error) {
	if err != nil || len(results) == 0 {
		return 0, err
	}
	return results[0], nil
}

func (m *wazeroModule) counter() int32           { return int32(uint32(m.ticks.Get())) }
func (m *wazeroModule) setCounter(n int32)       { m.ticks.Set(uint64(uint32(n))) }
func (m *wazeroModule) stackPointer() uint64     { return m.stack.Get() }
func (m *wazeroModule) setStackPointer(v uint64) { m.stack.Set(v) }

// close ends the module. Without an exit code to pass on there is nothing that
// could fail.
func (m *wazeroModule) close() { _ = m.module.Close(m.ctx) }

func valueTypes(names string) []api.ValueType {
	types := make([]api.ValueType, len(names))
	for i, c := range names {
		types[i] = i32
		if c == 'I' {
			types[i] = i64
		}
	}
	return types
}
