// Package instrument prepares a WebAssembly guest for the host: it takes the
// initial memory out, so that the host can map a captured one in its place,
// and makes every loop and every function give the host a word from time to
// time, where the engine needs that.
//
// It runs when a guest is built, on modules of our own making; it understands
// the MVP plus the features that the guests' compilers use (bulk memory, sign
// extension, saturating conversions, reference types) and refuses the rest.
package instrument

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Tick names the imported function that the instrumented code calls when its
// count is used up. It takes nothing; HasResult tells that it gives an i32,
// which is dropped.
type Tick struct {
	Module, Name string
	HasResult    bool
}

// Counter is the exported global, a mutable i32, that goes down by one at
// each function entry and each loop round; below zero the tick is called, and
// the host sets it anew.
const Counter = "pd_ticks"

// Result is a prepared guest.
type Result struct {
	Module []byte // without data segments and custom sections
	Memory []byte // the initial memory, from address zero to its last byte that is set
	Sites  int    // where it counts
}

const (
	sectionCustom    = 0
	sectionImport    = 2
	sectionGlobal    = 6
	sectionExport    = 7
	sectionCode      = 10
	sectionData      = 11
	sectionDataCount = 12
)

// Prepare takes the memory out of module and instruments its code.
func Prepare(module []byte, tick Tick) (*Result, error) {
	return (&writer{tick: &tick}).rewrite(module)
}

// Strip takes the memory out of module and leaves its code alone.
func Strip(module []byte) (*Result, error) { return (&writer{}).rewrite(module) }

func (w *writer) rewrite(module []byte) (*Result, error) {
	if len(module) < 8 || !bytes.Equal(module[:8], []byte("\x00asm\x01\x00\x00\x00")) {
		return nil, errors.New("not a WebAssembly module")
	}
	w.out = append(w.out, module[:8]...)
	r := reader{b: module[8:]}
	for len(r.b) > 0 && r.err == nil {
		id := r.byte()
		body := reader{b: r.take(int(r.u32()))}
		if err := w.section(id, body); err != nil {
			return nil, fmt.Errorf("section %d: %w", id, err)
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	if w.tick != nil && !w.counted {
		return nil, errors.New("the module has no globals or no code to instrument")
	}
	return &Result{Module: w.out, Memory: w.memory, Sites: w.sites}, nil
}

// writer builds the new module section by section, in the order in which the
// format requires them: the tick's index and the counter's are known before
// the code comes.
type writer struct {
	out       []byte
	memory    []byte
	tick      *Tick // nil: the code does not count
	tickIndex uint32
	counter   uint32
	counted   bool
	sites     int
}

func (w *writer) section(id byte, body reader) error {
	b := body.b
	var err error
	switch {
	case id == sectionCustom || id == sectionDataCount:
		return nil
	case id == sectionData:
		return w.takeMemory(body)
	case w.tick == nil:
		// as it is
	case id == sectionImport:
		w.tickIndex, err = findImport(body, *w.tick)
	case id == sectionGlobal:
		b = w.addCounter(body)
	case id == sectionExport:
		b = appendOne(body, exportOf(Counter, w.counter))
	case id == sectionCode:
		b, err = w.instrument(body)
	}
	if err != nil {
		return err
	}
	w.out = append(w.out, id)
	w.out = binary.AppendUvarint(w.out, uint64(len(b)))
	w.out = append(w.out, b...)
	return nil
}

// maxMemory bounds the initial memory: CPython's is 20 MiB.
const maxMemory = 256 << 20

// takeMemory copies the active segments to where instantiation would have.
func (w *writer) takeMemory(r reader) error {
	for n := r.u32(); n > 0 && r.err == nil; n-- {
		if kind := r.u32(); kind != 0 {
			return fmt.Errorf("a data segment of kind %d: only active ones can be taken out", kind)
		}
		if op := r.byte(); op != 0x41 {
			return errors.New("a data segment whose offset is not a constant")
		}
		offset := int(uint32(r.s32()))
		if r.byte() != 0x0b {
			return errors.New("a data segment whose offset is more than a constant")
		}
		data := r.take(int(r.u32()))
		end := offset + len(data)
		if end > maxMemory {
			return fmt.Errorf("a data segment that ends at %d", end)
		}
		if end > len(w.memory) {
			w.memory = append(w.memory, make([]byte, end-len(w.memory))...)
		}
		copy(w.memory[offset:], data)
	}
	return r.err
}

func (w *writer) addCounter(r reader) []byte {
	count := reader{b: r.b}
	w.counter, w.counted = count.u32(), true
	// A mutable i32 that starts high: nothing ticks until the host sets it.
	return appendOne(r, []byte{0x7f, 1, 0x41, 0xff, 0xff, 0xff, 0xff, 0x07, 0x0b})
}

func exportOf(name string, global uint32) []byte {
	e := append([]byte{byte(len(name))}, name...)
	return binary.AppendUvarint(append(e, 3), uint64(global))
}

// appendOne adds an entry to the end of a section that is a vector.
func appendOne(r reader, entry []byte) []byte {
	n := r.u32()
	out := binary.AppendUvarint(nil, uint64(n)+1)
	return append(append(out, r.b...), entry...)
}

// check is the code of one site.
func (w *writer) check() []byte {
	w.sites++
	c := []byte{0x23} // global.get
	c = binary.AppendUvarint(c, uint64(w.counter))
	c = append(c, 0x41, 1, 0x6b, 0x24) // i32.const 1, i32.sub, global.set
	c = binary.AppendUvarint(c, uint64(w.counter))
	c = append(c, 0x23)
	c = binary.AppendUvarint(c, uint64(w.counter))
	c = append(c, 0x41, 0, 0x48, 0x04, 0x40, 0x10) // i32.const 0, i32.lt_s, if, call
	c = binary.AppendUvarint(c, uint64(w.tickIndex))
	if w.tick.HasResult {
		c = append(c, 0x1a) // drop
	}
	return append(c, 0x0b)
}

func (w *writer) instrument(r reader) ([]byte, error) {
	n := r.u32()
	out := binary.AppendUvarint(nil, uint64(n))
	for i := range n {
		body, err := w.function(r.take(int(r.u32())))
		if err != nil {
			return nil, fmt.Errorf("function %d: %w", i, err)
		}
		out = binary.AppendUvarint(out, uint64(len(body)))
		out = append(out, body...)
	}
	return out, r.err
}

func (w *writer) function(body []byte) ([]byte, error) {
	r := reader{b: body}
	for groups := r.u32(); groups > 0 && r.err == nil; groups-- {
		r.u32()
		r.byte()
	}
	out := append([]byte{}, body[:len(body)-len(r.b)]...)
	out = append(out, w.check()...)
	for len(r.b) > 0 && r.err == nil {
		start := r.b
		op := r.byte()
		if err := r.skipImmediates(op); err != nil {
			return nil, err
		}
		out = append(out, start[:len(start)-len(r.b)]...)
		if op == 0x03 { // loop
			out = append(out, w.check()...)
		}
	}
	return out, r.err
}

func findImport(r reader, tick Tick) (uint32, error) {
	var functions uint32
	for n := r.u32(); n > 0 && r.err == nil; n-- {
		module, name := string(r.take(int(r.u32()))), string(r.take(int(r.u32())))
		switch kind := r.byte(); kind {
		case 0:
			r.u32()
			if module == tick.Module && name == tick.Name {
				return functions, nil
			}
			functions++
		case 1:
			r.byte()
			r.limits()
		case 2:
			r.limits()
		case 3:
			r.take(2)
		default:
			return 0, fmt.Errorf("an import of kind %d", kind)
		}
	}
	return 0, fmt.Errorf("no import %s.%s", tick.Module, tick.Name)
}
