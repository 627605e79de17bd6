//go:build native

package native

/*
#cgo CFLAGS: -O2 -I${SRCDIR}/lib
#cgo LDFLAGS: -L${SRCDIR}/lib -lguests -lm
#include "guest.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"unsafe"
)

// Module is a translated guest. It is safe for concurrent use.
type Module struct {
	c       *C.struct_pd_module
	exports map[string]*C.struct_pd_export
}

// Pages is how large the memory is when the guest begins, in pages of 64 KiB.
func (m *Module) Pages() uint32 { return uint32(m.c.pages) }

// Import is a function that guests import; its position among the Imports is
// how a Host is asked for it.
type Import struct {
	Module, Name string
	Params       int
}

// Host serves the guest's calls. An argument's word is replaced by the result.
// It may call the guest in turn.
type Host interface {
	// Ask serves import number n.
	Ask(n int, args []uint64)
	// Grow makes the memory larger by pages of 64 KiB and gives the size that
	// it had, or false.
	Grow(pages uint32) (old uint32, ok bool)
}

var start = sync.OnceValue(func() error {
	if n := C.pd_start(); n != 0 {
		return fmt.Errorf("setting signals up: %w", syscall.Errno(n))
	}
	return nil
})

// Open finds the guest called name.
func Open(name string) (*Module, error) {
	if err := start(); err != nil {
		return nil, err
	}
	for p := &C.pd_modules; ; {
		list := unsafe.Slice((**C.struct_pd_module)(unsafe.Pointer(p)), 16)
		for _, m := range list {
			if m == nil {
				return nil, fmt.Errorf("there is no translated guest called %q", name)
			}
			if C.GoString(m.name) == name {
				return newModule(m), nil
			}
		}
	}
}

func newModule(c *C.struct_pd_module) *Module {
	m := &Module{c: c, exports: map[string]*C.struct_pd_export{}}
	for e := c.exports; e.name != nil; e = (*C.struct_pd_export)(unsafe.Add(unsafe.Pointer(e), unsafe.Sizeof(*e))) {
		m.exports[C.GoString(e.name)] = e
	}
	return m
}

// Imports are all that guests can ask for.
func Imports() []Import {
	var all []Import
	for _, i := range unsafe.Slice((*C.struct_pd_import)(unsafe.Pointer(&C.pd_imports)), int(C.pd_import_count)) {
		all = append(all, Import{C.GoString(i.module), C.GoString(i.name), int(i.params)})
	}
	return all
}

// Guest is one instance over one memory. It is used by one goroutine at a time,
// but for Kill.
type Guest struct {
	c       *C.pd_guest
	module  *Module
	host    Host
	waiting unsafe.Pointer // where the guest waits for an answer of the host
}

// New makes an instance whose memory begins at base: pages of it can be used,
// and up to reservation bytes nothing else is there.
func (m *Module) New(base unsafe.Pointer, reservation uint64, pages, maxPages uint32, host Host) (*Guest, error) {
	c := C.pd_new(m.c, (*C.uint8_t)(base), C.uint64_t(reservation), C.uint32_t(pages), C.uint32_t(maxPages))
	if c == nil {
		return nil, errors.New("no memory for an instance")
	}
	return &Guest{c: c, module: m, host: host}, nil
}

// Close frees what New took; the memory stays the caller's.
func (g *Guest) Close() {
	if g.c != nil {
		C.pd_free(g.c)
		g.c = nil
	}
}

// Trap is how a guest ended that cannot go on.
type Trap int

var traps = [...]string{
	"", "out of bounds of its memory or table", "integer overflow", "integer divided by zero", "invalid conversion to an integer",
	"unreachable code", "indirect call of another type", "uncaught exception", "call stack exhausted",
}

func (t Trap) Error() string {
	if t > 0 && int(t) < len(traps) {
		return "trap: " + traps[t]
	}
	return fmt.Sprintf("trap %d", int(t))
}

// ErrKilled is for a guest that Kill has ended.
var ErrKilled = errors.New("the guest was killed")

// Call calls an export. After an error the guest can only be closed. What the
// host panics with ends the guest and goes on.
func (g *Guest) Call(name string, args ...uint64) (uint64, error) {
	e := g.module.exports[name]
	if e == nil {
		return 0, fmt.Errorf("the guest has no export %s", name)
	}
	words := (*[10]uint64)(unsafe.Pointer(&g.c.args))
	copy(words[:], args)
	waiting := g.c.guest_sp
	status := C.pd_call(g.c, e)
	for {
		switch status {
		case C.PD_DONE:
			g.c.guest_sp = waiting
			if e.result == 0 {
				return 0, nil
			}
			return words[0], nil
		case C.PD_ASKS:
			// A call from within may use the same words.
			n, at := int(g.c.call), g.c.guest_sp
			stack := *words
			g.host.Ask(n, stack[:])
			words[0], g.c.guest_sp = stack[0], at
		case C.PD_GROWS:
			at := g.c.guest_sp
			old, ok := g.host.Grow(uint32(words[0]))
			if ok {
				C.pd_resized(g.c, C.uint32_t(old+uint32(words[0])))
				words[0] = uint64(old)
			} else {
				words[0] = 0xffffffff
			}
			g.c.guest_sp = at
		case C.PD_KILLED:
			return 0, ErrKilled
		default:
			return 0, Trap(g.c.call)
		}
		if g.c.killed != 0 {
			return 0, ErrKilled
		}
		status = C.pd_resume(g.c)
	}
}

// Kill ends the guest, from whatever goroutine. It has to be called again until
// Call has returned: a guest that is just on its way to the host or back is
// not hit.
func (g *Guest) Kill() { C.pd_kill(g.c) }

// Survive takes back a Kill that came too late for the call it was meant for;
// none may be under way, and nobody may kill the guest at the same time.
func (g *Guest) Survive() { g.c.killed = 0 }

// StackPointer is the module's C stack pointer.
func (g *Guest) StackPointer() uint64 { return uint64(C.pd_stack_pointer(g.c)) }

// SetStackPointer sets it.
func (g *Guest) SetStackPointer(v uint64) { C.pd_set_stack_pointer(g.c, C.uint32_t(v)) }
