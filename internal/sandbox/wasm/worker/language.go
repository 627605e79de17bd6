package worker

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tetratelabs/wazero/api"
)

// machine is one instantiated guest, as a language sees it.
type machine interface {
	// call calls an export. An error means that the guest is no longer usable.
	call(name string, args ...uint64) (uint64, error)
	// bytes is the linear memory as it is now; the next call may move it.
	bytes() []byte
}

// language is how the worker drives one runtime's guest.
type language interface {
	// imports are what the module imports beside WASI.
	imports() []hostFunc
	// boot starts the interpreter and its driver, once, before the image is
	// captured. What it returns is kept with the image.
	boot(m machine) (state []uint64, err error)
	// request sends one request of guest/README.md and gives the answer.
	// errMemory and errInterrupted leave the guest usable, others do not.
	request(m machine, state []uint64, request []byte) ([]byte, error)
	// room tells whether the interpreter can allocate size bytes.
	room(m machine, size uint64) (bool, error)
	// interrupts are the words to set in memory to interrupt the program;
	// none for a language that asks instance.interrupted by itself.
	interrupts(m machine) []word
}

// word is some bits of memory: an address and what to set there.
type word struct{ address, bits uint32 }

// hostFunc is a function that a guest imports.
type hostFunc struct {
	module, name    string
	params, results []api.ValueType
	fn              func(in *instance, stack []uint64)
}

var (
	errMemory      = errors.New("the interpreter has no memory left to answer with")
	errInterrupted = errors.New("the driver was interrupted")
)

const (
	i32 = api.ValueTypeI32
	i64 = api.ValueTypeI64
)

// python drives the CPython guest, whose exports are described in glue.c.
type python struct{}

func (python) imports() []hostFunc {
	return []hostFunc{
		{"paddock", "tick", nil, nil, func(in *instance, _ []uint64) { in.tick() }},
		{"paddock", "call", []api.ValueType{i32, i32}, []api.ValueType{i32}, func(in *instance, stack []uint64) {
			message, err := slice(in.bytes(), uint32(stack[0]), uint32(stack[1]))
			if err == nil {
				in.answer, err = in.message(message)
			}
			stack[0] = uint64(uint32(len(in.answer)))
			if err != nil {
				in.answer, stack[0] = nil, uint64(^uint32(0))
			}
		}},
		{"paddock", "take", []api.ValueType{i32, i32}, nil, func(in *instance, stack []uint64) {
			if room, err := slice(in.bytes(), uint32(stack[0]), uint32(stack[1])); err == nil {
				copy(room, in.answer)
			}
			in.ends.Calls.Reuse(in.answer)
			in.answer = nil
		}},
		{"paddock", "blocks", []api.ValueType{i32, i32, i32, i32}, nil, func(in *instance, stack []uint64) {
			if err := hashBlocks(in.bytes(), uint32(stack[0]), uint32(stack[1]), uint32(stack[2]), uint32(stack[3])); err != nil {
				panic(err)
			}
			if in.leave == nil { // else nothing counts
				in.vm.setCounter(in.vm.counter() - int32(uint32(stack[3])/hashedByFuel))
			}
			in.poll()
		}},
	}
}

func (p python) boot(m machine) ([]uint64, error) {
	if _, err := m.call("_initialize"); err != nil {
		return nil, err
	}
	failed, err := m.call("pd_init")
	if err == nil && failed != 0 {
		err = errors.New("the interpreter did not start")
	}
	if err != nil {
		return nil, err
	}
	if _, err := p.request(m, nil, []byte(`{"op":"prelude"}`)); err != nil {
		return nil, fmt.Errorf("importing the common modules: %w", err)
	}
	return nil, nil
}

func (python) request(m machine, _ []uint64, request []byte) ([]byte, error) {
	address, err := m.call("pd_alloc", uint64(len(request)))
	if err != nil {
		return nil, err
	}
	if address == 0 {
		return nil, errMemory
	}
	room, err := slice(m.bytes(), uint32(address), uint32(len(request)))
	if err != nil {
		return nil, err
	}
	copy(room, request)
	where, err := m.call("pd_request", address, uint64(len(request)))
	if err != nil {
		return nil, err
	}
	if _, err := m.call("pd_free", address); err != nil {
		return nil, err
	}
	if where == 0 {
		return nil, failure(m)
	}
	answer, err := slice(m.bytes(), uint32(where>>32), uint32(where))
	if err != nil {
		return nil, err
	}
	return append([]byte(nil), answer...), nil
}

func failure(m machine) error {
	why, err := m.call("pd_failure")
	switch {
	case err != nil:
		return err
	case why == 1:
		return errMemory
	case why == 2:
		return errInterrupted
	}
	return errDriver
}

func (python) room(m machine, size uint64) (bool, error) {
	return canAllocate(m, size, "pd_alloc", "pd_free")
}

// canAllocate asks an allocator and gives back what it gave.
func canAllocate(m machine, size uint64, allocate, release string) (bool, error) {
	address, err := m.call(allocate, size)
	if err != nil || address == 0 {
		return false, err
	}
	_, err = m.call(release, address)
	return true, err
}

func (python) interrupts(m machine) []word {
	address, err := m.call("pd_interrupts")
	if err != nil {
		return nil
	}
	head, err := slice(m.bytes(), uint32(address), 4)
	if err != nil {
		return nil
	}
	n := min(binary.LittleEndian.Uint32(head), 16)
	table, err := slice(m.bytes(), uint32(address)+4, 8*n)
	if err != nil {
		return nil
	}
	words := make([]word, n)
	for i := range words {
		words[i] = word{binary.LittleEndian.Uint32(table[8*i:]), binary.LittleEndian.Uint32(table[8*i+4:])}
	}
	return words
}

// slice is the part of memory that a guest named, if it is one.
func slice(memory []byte, address, length uint32) ([]byte, error) {
	end := uint64(address) + uint64(length)
	if end > uint64(len(memory)) {
		return nil, fmt.Errorf("the guest named memory it does not have: %d bytes at %d", length, address)
	}
	return memory[address:end:end], nil
}
