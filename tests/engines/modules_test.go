package engines

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

const (
	batch      = 60 // modules that are compiled into one program
	rounds     = 3  // times that each function of a module is called
	hangsAfter = "hangLimitInitializer"
)

// TestRandomModulesDoTheSameOnBothEngines has binaryen make modules out of
// random bytes, and calls what they export, with random arguments, on wazero
// and in the translation. Results, traps, calls of imported functions and at
// the end the memory have to be the same.
//
// Each is translated twice: as guests are, and without the compiler's liberties
// (see strict). Only with them may what follows an access out of bounds differ:
// it need not trap if nobody uses what it loads. NaNs are made zeros in all of
// the modules, since their bits may differ.
//
// It takes a fixed number from a fixed seed. To look for more, with a seed of
// its own each time:
//
//	PADDOCK_FUZZ_MODULES=1000 go test -v -timeout 0 -run RandomModules ./tests/engines
//
// PADDOCK_FUZZ_SEED is where the seeds begin; a difference names its module's.
func TestRandomModulesDoTheSameOnBothEngines(t *testing.T) {
	tr := newTranslation(t)
	count, seed := uint64(batch), uint64(1)
	if many, err := strconv.ParseUint(os.Getenv("PADDOCK_FUZZ_MODULES"), 10, 32); err == nil {
		count, seed = many, rand.Uint64()>>32
		tr.cache = t.TempDir()
	}
	if s, err := strconv.ParseUint(os.Getenv("PADDOCK_FUZZ_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("%d modules from seed %d", count, seed)
	var c comparison
	for first := seed; first < seed+count; first += batch {
		c.modules(t, tr, first, min(batch, seed+count-first))
	}
	t.Logf("%d calls: %d gave results, %d trapped; %d calls of imports; %d modules ran without end, %d showed the compiler's liberties",
		c.calls, c.results, c.traps, c.asked, c.endless, c.liberties)
	switch {
	case c.results == 0:
		t.Errorf("the modules do too little: c.results = %v, want other than 0", c.results)
	case c.traps == 0:
		t.Errorf("the modules do too little: c.traps = %v, want other than 0", c.traps)
	case c.asked == 0:
		t.Errorf("the modules do too little: c.asked = %v, want other than 0", c.asked)
	}
}

// comparison counts what was compared.
type comparison struct{ calls, results, traps, asked, endless, liberties int }

func (c *comparison) modules(t *testing.T, tr *translation, first, number uint64) {
	var all []wasm
	for seed := first; seed < first+number; seed++ {
		all = append(all, randomModule(t, seed))
	}
	for _, free := range []bool{false, true} {
		p := tr.with(strict...).build(t, all)
		if free {
			p = tr.build(t, all)
		}
		for name, why := range p.refused {
			t.Errorf("%s: %s", name, why)
		}
		process := p.start(t)
		for i, m := range all {
			r := rand.New(rand.NewPCG(first+uint64(i), 2))
			if err := c.module(t.Context(), process, i, m, free, r); err != nil {
				t.Errorf("%s, with the compiler's liberties: %t: %v", m.name, free, err)
				keep(t, m)
			}
		}
	}
}

// keep leaves a module that shows a difference.
func keep(t *testing.T, m wasm) {
	if dir := os.Getenv("PADDOCK_FUZZ_KEEP"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, m.name+".wasm"), m.code, 0o644); err != nil {
			t.Error(err)
		}
	}
}

// randomModule is what binaryen makes of the bytes of a seed, with the features
// that the guests' compilers use. Every other one is optimized, and every other
// pair reaches beyond its memory less often. An active segment is spent once
// the module is there, but not on wazero; memory-packing heeds that.
func randomModule(t *testing.T, seed uint64) wasm {
	t.Helper()
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(seed, 1))
	input := make([]byte, 1000+r.IntN(1<<(10+r.IntN(6))))
	for i := range input {
		input[i] = byte(r.Uint32())
	}
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	if err := os.WriteFile(in, input, 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{in, "-o", out, "-ttf", "--enable-bulk-memory", "--enable-sign-ext", "--enable-nontrapping-float-to-int", "--enable-mutable-globals"}
	if seed%4 < 2 {
		args = append(args, "--no-fuzz-oob")
	}
	if seed%2 == 0 {
		args = append(args, "-O2")
	}
	if err := execute(t.Context(), "wasm-opt", append(args, "--memory-packing", "--denan")...); err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return wasm{fmt.Sprintf("seed_%d", seed), code}
}

// module runs one on both; free is with the compiler's liberties.
func (c *comparison) module(ctx context.Context, p *process, slot int, m wasm, free bool, r *rand.Rand) error {
	w, began := newReference(ctx, m.code)
	defer w.runtime.Close(ctx)
	if err := same("instantiating", began, p.newInstance(slot, m.name)); err != nil || began.kind != "ok" {
		return err
	}
	functions := w.module.ExportedFunctionDefinitions()
	delete(functions, hangsAfter)
	strayed := false
	for range rounds {
		for _, name := range slices.Sorted(maps.Keys(functions)) {
			w.call(ctx, hangsAfter, nil)
			p.call(slot, hangsAfter, nil)
			args := arguments(r, functions[name].ParamTypes())
			a, b := w.call(ctx, name, args), p.call(slot, name, args)
			c.count(a)
			if a.kind == "killed" || a.trap() == exhaustion || b.kind == "killed" || b.trap() == exhaustion {
				c.endless++
				return nil // how far it came differs
			}
			strayed = strayed || a.trap() == outOfBounds
			if err := same(fmt.Sprintf("%s(%s)", name, hexWords(args)), a, b); err != nil {
				return c.forgive(err, free && strayed)
			}
		}
		if err := same("memory", w.memory(), p.memory(slot)); err != nil {
			return c.forgive(err, free && strayed)
		}
	}
	return nil
}

// forgive drops a difference that may be.
func (c *comparison) forgive(err error, may bool) error {
	if !may {
		return err
	}
	c.liberties++
	return nil
}

func (c *comparison) count(a answer) {
	c.calls++
	c.asked += len(a.asked)
	switch a.kind {
	case "ok":
		c.results++
	case "trap":
		c.traps++
	}
}

func same(what string, reference, translated answer) error {
	if reference.String() != translated.String() {
		return fmt.Errorf("%s: %s on wazero, %s in the translation", what, reference, translated)
	}
	for i := range max(len(reference.asked), len(translated.asked)) {
		if i >= len(reference.asked) || i >= len(translated.asked) || reference.asked[i] != translated.asked[i] {
			return fmt.Errorf("%s: call %d of an import differs", what, i)
		}
	}
	return nil
}

var interesting = []float64{0, math.Copysign(0, -1), 1, -1, 0.5, 1e300, -1e-300, 2147483648, -2147483649, 4294967296, 9.223372036854775807e18, 1.8446744073709552e19, math.Inf(1), math.Inf(-1), math.SmallestNonzeroFloat32, math.MaxFloat32}

// arguments are as likely at the edges of their types as anywhere.
func arguments(r *rand.Rand, types []api.ValueType) []uint64 {
	words := make([]uint64, len(types))
	for i, t := range types {
		f := interesting[r.IntN(len(interesting))]
		if r.IntN(2) == 0 {
			f = r.NormFloat64() * math.Exp(r.NormFloat64()*20)
		}
		switch t {
		case api.ValueTypeF32:
			words[i] = api.EncodeF32(float32(f))
		case api.ValueTypeF64:
			words[i] = api.EncodeF64(f)
		default:
			words[i] = r.Uint64() >> r.IntN(64)
			if r.IntN(2) == 0 {
				words[i] = 1<<r.IntN(64) - uint64(r.IntN(3))
			}
			if t == api.ValueTypeI32 {
				words[i] &= math.MaxUint32
			}
		}
	}
	return words
}

// reference is a module on wazero.
type reference struct {
	runtime wazero.Runtime
	module  api.Module
	asked   []string
}

func newReference(ctx context.Context, code []byte) (*reference, answer) {
	w := &reference{runtime: wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCloseOnContextDone(false))}
	compiled, err := w.runtime.CompileModule(ctx, code)
	if err != nil {
		return w, answer{kind: "error", text: err.Error()}
	}
	builders := map[string]wazero.HostModuleBuilder{}
	for _, f := range compiled.ImportedFunctions() {
		module, name, _ := f.Import()
		if builders[module] == nil {
			builders[module] = w.runtime.NewHostModuleBuilder(module)
		}
		params := f.ParamTypes()
		builders[module].NewFunctionBuilder().WithGoFunction(api.GoFunc(func(_ context.Context, stack []uint64) {
			w.asked = append(w.asked, strings.TrimSpace(named(module)+" "+named(name)+" "+hexWords(narrow(stack, params))))
			clear(stack)
		}), params, f.ResultTypes()).Export(name)
	}
	for _, b := range builders {
		if _, err := b.Instantiate(ctx); err != nil {
			return w, answer{kind: "error", text: err.Error()}
		}
	}
	w.module, err = w.runtime.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithStartFunctions())
	return w, w.answer(nil, err)
}

func (w *reference) call(ctx context.Context, name string, args []uint64) answer {
	f := w.module.ExportedFunction(name)
	words, err := f.Call(ctx, args...)
	return w.answer(narrow(words, f.Definition().ResultTypes()), err)
}

// narrow takes away what wazero leaves beside values of 32 bits.
func narrow(words []uint64, types []api.ValueType) []uint64 {
	values := slices.Clone(words[:min(len(words), len(types))])
	for i := range values {
		if types[i] == api.ValueTypeI32 || types[i] == api.ValueTypeF32 {
			values[i] &= math.MaxUint32
		}
	}
	return values
}

// wazeroTraps are what its errors say.
var wazeroTraps = []struct {
	text string
	trap uint64
}{
	{"out of bounds memory access", outOfBounds}, {"integer overflow", 2}, {"integer divide by zero", 3},
	{"invalid conversion to integer", 4}, {"unreachable", 5}, {"invalid table access", callIndirect},
	{"indirect call type mismatch", callIndirect}, {"stack overflow", exhaustion},
}

func (w *reference) answer(words []uint64, err error) answer {
	a := answer{kind: "ok", words: words, asked: w.asked}
	w.asked = nil
	if err == nil {
		return a
	}
	for _, t := range wazeroTraps {
		if strings.Contains(err.Error(), t.text) {
			return answer{kind: "trap", words: []uint64{t.trap}, asked: a.asked}
		}
	}
	return answer{kind: "error", text: err.Error()}
}

func (w *reference) memory() answer {
	h := fnv.New64a()
	m := w.module.Memory()
	if m == nil {
		return answer{kind: "ok", words: []uint64{0, h.Sum64()}}
	}
	bytes, ok := m.Read(0, m.Size())
	if !ok {
		panic(errors.New("a memory that cannot be read"))
	}
	h.Write(bytes)
	return answer{kind: "ok", words: []uint64{uint64(m.Size()) >> 16, binary.BigEndian.Uint64(h.Sum(nil))}}
}
