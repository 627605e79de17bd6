package worker

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"sync/atomic"
	"unsafe"

	"paddock/guest"
	"paddock/internal/sandbox/wasm/linear"
)

// many is address space for as many reservations of the native engine as a
// worker may hold at once.
const many = 1 << 40

// Guarded tells why a process like this one cannot make such reservations, or
// nil: its address space may be limited.
func Guarded() error {
	if math.MaxInt == math.MaxInt32 {
		return errors.ErrUnsupported
	}
	m, err := linear.NewGuarded(nil, 0, many)
	if err == nil {
		m.Free()
	}
	return err
}

// engine runs guests' code. It is safe for concurrent use.
type engine interface {
	// load makes a guest's code ready, whose imports are WASI and these.
	load(ctx context.Context, g *guest.Guest, imports []hostFunc) (code, error)
}

// code is one guest, ready to be instantiated any number of times.
type code interface {
	// reserve gives the memory that a module needs: img, growing to limit.
	reserve(img *linear.Image, limit uint64) (*linear.Memory, error)
	// instantiate makes a module over such a memory, whose imports in serves.
	instantiate(in *instance, memory *linear.Memory) (module, error)
}

// module is one instantiated guest. It is used by one goroutine at a time.
type module interface {
	// call calls an export. An error means that the guest is no longer usable;
	// it is or wraps what a function that the guest imports panicked with. Such a
	// function may call as well, also the export that is active.
	call(name string, args ...uint64) (uint64, error)
	// counter is what the guest counts down at its ticks; math.MaxInt32 where
	// it does not.
	counter() int32
	setCounter(n int32)
	// stackPointer is the module's own, which a checkpoint has to hold.
	stackPointer() uint64
	setStackPointer(v uint64)
	// watchInterrupts has the guest interrupted and killed when the channels are closed,
	// for the length of a run. It tells afterwards whether it interrupted. An
	// engine whose guests tick need not: instance.poll does it.
	watchInterrupts(soft, hard <-chan struct{}, words []word) (leave func() (interrupted bool))
	close()
}

// vm is one module over one memory, which it owns.
type vm struct {
	module
	in     *instance
	memory *linear.Memory
}

func newVM(in *instance, c code, memory *linear.Memory) (*vm, error) {
	m, err := c.instantiate(in, memory)
	if err != nil {
		memory.Free()
		return nil, err
	}
	return &vm{m, in, memory}, nil
}

func (v *vm) bytes() []byte { return v.memory.Bytes() }

// has tells whether a word is one that set can be asked for.
func (v *vm) has(w word) bool {
	_, err := slice(v.bytes(), w.address, 4)
	return err == nil && w.address%4 == 0
}

// set sets these words in memory. The guest may be running.
func (v *vm) set(words []word) {
	for _, w := range words {
		p, bits := v.at(w)
		atomic.OrUint32(p, bits)
	}
}

// seen tells whether the guest has seen that the words were set: it takes the
// first one back when it does. The guest may be running.
func (v *vm) seen(words []word) bool {
	if len(words) == 0 {
		return false
	}
	p, bits := v.at(words[0])
	return atomic.LoadUint32(p)&bits == 0
}

// forget takes back what set did and the guest has not seen.
func (v *vm) forget(words []word) {
	if len(words) > 0 {
		p, bits := v.at(words[0])
		atomic.AndUint32(p, ^bits)
	}
}

// at is where a word lies, and its bits in the host's order.
func (v *vm) at(w word) (*uint32, uint32) {
	bits := binary.LittleEndian.AppendUint32(nil, w.bits)
	return (*uint32)(unsafe.Add(v.memory.Base(), uintptr(w.address))), binary.NativeEndian.Uint32(bits)
}

func (v *vm) close() {
	v.module.close()
	v.memory.Free()
}
