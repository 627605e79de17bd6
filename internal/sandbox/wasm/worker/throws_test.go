package worker

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tetratelabs/wazero/api"

	"paddock/guest/build/instrument"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/sandbox/wasm/linear"
)

// TestAModuleThrowsAtRandom runs C++ whose exceptions pass through the host: each
// call that may throw is a call of the host, which calls the guest again, down to 32
// calls of one export within each other. Called through an entry that was active, such
// a module wrote over its own native stack.
func TestAModuleThrowsAtRandom(t *testing.T) {
	run := throwing(t)
	// What the same C++ gives as a native program.
	for seed, want := range []uint64{3241810829, 1805634239, 833944449, 2400771072, 1381391294} {
		got, err := run(uint64(seed + 1))
		if err != nil || got != want {
			t.Errorf("seed %d: %d, %v, want %d", seed+1, got, err, want)
		}
	}
}

var errThrown = errors.New("thrown")

// throwing gives the export run of testdata/throws.cpp.
func throwing(t *testing.T) func(seed uint64) (uint64, error) {
	e, err := newWazero(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.runtime.Close(t.Context()) })
	thrown := 0
	one, two, four := []api.ValueType{i32}, []api.ValueType{i32, i32}, []api.ValueType{i32, i32, i32, i32}
	err = e.provide(t.Context(), []hostFunc{
		{"paddock", "tick", nil, nil, func(in *instance, _ []uint64) { in.vm.setCounter(math.MaxInt32) }},
		{"env", "throw", nil, nil, func(*instance, []uint64) { thrown++; panic(errThrown) }},
		{"env", "invoke_ii", two, one, func(in *instance, stack []uint64) { stack[0] = invoke(in, "dyn_ii", stack[:2]) }},
		{"env", "invoke_viii", four, nil, func(in *instance, stack []uint64) { invoke(in, "dyn_viii", stack[:4]) }},
	})
	if err != nil {
		t.Fatal(err)
	}
	module, err := instrument.Prepare(compiledThrows(t), instrument.Tick{Module: "paddock", Name: "tick"})
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := e.compile(t.Context(), module.Module)
	if err != nil {
		t.Fatal(err)
	}
	memory, err := linear.New(nil, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	in := &instance{}
	if in.vm, err = newVM(in, wazeroCode{e, compiled}, memory); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(in.vm.close)
	copy(memory.Bytes(), module.Memory)
	t.Cleanup(func() {
		if thrown < 1000 {
			t.Errorf("the module threw %d times only", thrown)
		}
	})
	return func(seed uint64) (uint64, error) { return in.vm.call("run", seed) }
}

// invoke calls a function that may throw, and tells the guest when it did.
func invoke(in *instance, door string, args []uint64) uint64 {
	stack := in.vm.stackPointer()
	result, err := in.vm.call(door, args...)
	if err == nil {
		return result
	}
	if errors.Is(err, errThrown) {
		in.vm.setStackPointer(stack)
		_, err = in.vm.call("threw")
	}
	if err != nil {
		panic(err)
	}
	return 0
}

// compiledThrows compiles with the guests' compiler, exceptions made into calls.
func compiledThrows(t *testing.T) []byte {
	_, err := exec.LookPath("clang++-19")
	_, err2 := exec.LookPath("wasm-ld-19")
	sandboxtest.Require(t, "native", err == nil && err2 == nil, "the guests' compiler is not here (make guests)")
	dir := t.TempDir()
	out := filepath.Join(dir, "throws.wasm")
	compile := []string{"clang++-19", "--target=wasm32", "-O2", "-c"}
	lower := []string{"-fexceptions", "-mllvm", "-enable-emscripten-cxx-exceptions"}
	exports := []string{"--export=run", "--export=threw", "--export=breathe", "--export=dyn_ii", "--export=dyn_viii", "--export=__stack_pointer"}
	for _, command := range [][]string{
		append(append(compile[:4:4], lower...), "testdata/throws.cpp", "-o", filepath.Join(dir, "throws.o")),
		append(compile[:4:4], "testdata/throws_runtime.cpp", "-o", filepath.Join(dir, "runtime.o")),
		append(append([]string{"wasm-ld-19", "--no-entry", "--allow-undefined"}, exports...), filepath.Join(dir, "throws.o"), filepath.Join(dir, "runtime.o"), "-o", out),
	} {
		if said, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, said)
		}
	}
	wasm, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return wasm
}
