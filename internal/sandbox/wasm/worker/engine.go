package worker

import (
	"context"
	"fmt"
	"runtime"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"paddock/guest/build/instrument"
	"paddock/internal/sandbox/wasm/linear"
	"paddock/internal/sandbox/wasm/wasi"
)

// engineName is the engine in the names of captured images.
const engineName = "wazero"

// engine is wazero, holding the compiled guests. It is safe for concurrent
// use.
type engine struct {
	runtime wazero.Runtime
	hosts   map[string]bool // import modules that are there; see loader.mu
}

// newEngine keeps compiled code in cacheDir.
func newEngine(ctx context.Context, cacheDir string) (*engine, error) {
	cache, err := wazero.NewCompilationCacheWithDir(cacheDir)
	if err != nil {
		return nil, fmt.Errorf("opening the cache of compiled code: %w", err)
	}
	config := wazero.NewRuntimeConfig().WithCompilationCache(cache).WithDebugInfoEnabled(false)
	e := &engine{runtime: wazero.NewRuntimeWithConfig(ctx, config), hosts: map[string]bool{}}
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
func (e *engine) provide(ctx context.Context, functions []hostFunc) error {
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

// compile translates a guest, or takes the translation from the cache.
func (e *engine) compile(ctx context.Context, module []byte) (wazero.CompiledModule, error) {
	ctx = experimental.WithCompilationWorkers(ctx, runtime.GOMAXPROCS(0))
	c, err := e.runtime.CompileModule(ctx, module)
	if err != nil {
		return nil, fmt.Errorf("compiling the guest: %w", err)
	}
	return c, nil
}

// vm is one instantiated module over one memory.
type vm struct {
	ctx     *callContext
	module  api.Module
	memory  *linear.Memory
	counter api.MutableGlobal
	stack   api.MutableGlobal
	exports map[string]api.Function
}

// instantiate makes a vm over memory, which it owns from then on.
func (e *engine) instantiate(in *instance, compiled wazero.CompiledModule, memory *linear.Memory) (*vm, error) {
	ctx := &callContext{context.Background(), in}
	give := experimental.MemoryAllocatorFunc(func(_, _ uint64) experimental.LinearMemory { return memory })
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions()
	module, err := e.runtime.InstantiateModule(experimental.WithMemoryAllocator(ctx, give), compiled, config)
	if err != nil {
		memory.Free()
		return nil, fmt.Errorf("instantiating the guest: %w", err)
	}
	m := &vm{ctx: ctx, module: module, memory: memory, exports: map[string]api.Function{}}
	m.counter, _ = module.ExportedGlobal(instrument.Counter).(api.MutableGlobal)
	m.stack, _ = module.ExportedGlobal("__stack_pointer").(api.MutableGlobal)
	if m.counter == nil || m.stack == nil {
		m.close()
		return nil, fmt.Errorf("the guest has no global %s or __stack_pointer", instrument.Counter)
	}
	return m, nil
}

func (m *vm) bytes() []byte { return m.memory.Bytes() }

func (m *vm) call(name string, args ...uint64) (uint64, error) {
	f := m.exports[name]
	if f == nil {
		if f = m.module.ExportedFunction(name); f == nil {
			return 0, fmt.Errorf("the guest has no export %s", name)
		}
		m.exports[name] = f
	}
	results, err := f.Call(m.ctx, args...)
	if err != nil || len(results) == 0 {
		return 0, err
	}
	return results[0], nil
}

// close ends the module and frees its memory.
func (m *vm) close() {
	// Without an exit code to pass on there is nothing that could fail.
	_ = m.module.Close(m.ctx)
	m.memory.Free()
}

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
