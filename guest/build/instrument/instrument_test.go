package instrument

import (
	"bytes"
	"context"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// module is a guest small enough to be read: it imports t.tick, has a memory
// with "hi" at 4 and "x" at 70,000, and exports spin(n), which goes round a
// loop n times.
var module = []byte{
	0, 'a', 's', 'm', 1, 0, 0, 0,
	0, 5, 4, 'n', 'o', 't', 'e', // a custom section
	1, 8, 2, 0x60, 0, 0, 0x60, 1, 0x7f, 0, // types: () and (i32)
	2, 10, 1, 1, 't', 4, 't', 'i', 'c', 'k', 0, 0,
	3, 2, 1, 1, // one function of type 1
	5, 3, 1, 0, 2, // memory of two pages
	6, 6, 1, 0x7f, 1, 0x41, 7, 0x0b, // a mutable global of its own
	7, 17, 2, 4, 's', 'p', 'i', 'n', 0, 1, 6, 'm', 'e', 'm', 'o', 'r', 'y', 2, 0,
	10, 18, 1, 16, 0, // one body, no locals
	0x03, 0x40, 0x20, 0, 0x41, 1, 0x6b, 0x22, 0, 0x0d, 0, 0x0b, // loop: n = n-1, again unless zero
	0x01, 0x01, 0x0b, // nop nop end
	11, 16, 2, 0, 0x41, 4, 0x0b, 2, 'h', 'i', 0, 0x41, 0xf0, 0xa2, 4, 0x0b, 1, 'x',
}

func TestPreparedModuleTicksAndHasNoMemoryOfItsOwn(t *testing.T) {
	r, err := Prepare(module, Tick{Module: "t", Name: "tick"})
	if err != nil {
		t.Fatal(err)
	}
	if r.Sites != 2 {
		t.Errorf("it counts at %d places, want 2: the function's entry and the loop", r.Sites)
	}
	if len(r.Memory) != 70001 || string(r.Memory[4:6]) != "hi" || r.Memory[70000] != 'x' {
		t.Errorf("the initial memory has %d bytes", len(r.Memory))
	}
	if bytes.Contains(r.Module, []byte("note")) {
		t.Error("a custom section is still there")
	}

	ctx := context.Background()
	runtime := wazero.NewRuntime(ctx)
	defer runtime.Close(ctx)
	ticks := 0
	_, err = runtime.NewHostModuleBuilder("t").NewFunctionBuilder().
		WithGoModuleFunction(api.GoModuleFunc(func(_ context.Context, m api.Module, _ []uint64) {
			ticks++
			m.ExportedGlobal(Counter).(api.MutableGlobal).Set(99)
		}), nil, nil).Export("tick").Instantiate(ctx)
	if err != nil {
		t.Fatal(err)
	}
	m, err := runtime.Instantiate(ctx, r.Module)
	if err != nil {
		t.Fatal(err)
	}
	m.ExportedGlobal(Counter).(api.MutableGlobal).Set(99)
	if _, err := m.ExportedFunction("spin").Call(ctx, 1000); err != nil {
		t.Fatal(err)
	}
	if ticks != 10 { // 1 entry and 1000 rounds, a tick at each hundredth
		t.Errorf("it ticked %d times, want 10", ticks)
	}
	if b, ok := m.Memory().Read(4, 2); !ok || string(b) != "\x00\x00" {
		t.Errorf("its memory begins with %q, want zeros", b)
	}
}

func TestPrepareRefusesWhatItDoesNotUnderstand(t *testing.T) {
	passive := bytes.Clone(module)
	passive[len(passive)-15] = 1 // the first segment's kind
	for name, c := range map[string]struct {
		module []byte
		tick   Tick
	}{
		"no module":                {[]byte("hello, world"), Tick{}},
		"a truncated module":       {module[:60], Tick{Module: "t", Name: "tick"}},
		"an import that is absent": {module, Tick{Module: "t", Name: "tock"}},
		"a passive segment":        {passive, Tick{Module: "t", Name: "tick"}},
	} {
		if _, err := Prepare(c.module, c.tick); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func FuzzPrepareNeverPanics(f *testing.F) {
	f.Add(module)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<16 {
			t.Skip("large inputs only cost memory")
		}
		r, err := Prepare(b, Tick{Module: "t", Name: "tick"})
		if err == nil && len(r.Memory) > 1<<32 {
			t.Error("an impossible memory")
		}
	})
}

func TestAStrippedModuleKeepsItsCode(t *testing.T) {
	r, err := Strip(module)
	if err != nil {
		t.Fatal(err)
	}
	prepared, err := Prepare(module, Tick{Module: "t", Name: "tick"})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(r.Memory, prepared.Memory) || r.Sites != 0 {
		t.Error("its memory is another than that of the prepared one, or it counts")
	}
	body := module[bytes.Index(module, []byte{10, 18, 1, 16, 0}):][:20]
	if !bytes.Contains(r.Module, body) || bytes.Contains(r.Module, []byte(Counter)) {
		t.Error("its code was changed")
	}
}
