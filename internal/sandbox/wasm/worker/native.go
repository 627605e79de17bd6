//go:build native

package worker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"paddock/guest"
	"paddock/internal/sandbox/wasm/linear"
	"paddock/internal/sandbox/wasm/native"
	"paddock/internal/sandbox/wasm/wasi"
)

// EngineName is the engine of workers that are this very binary.
const EngineName = "native"

// newEngine is the engine of this binary.
func newEngine(context.Context, string) (engine, error) { return nativeEngine{}, nil }

// reservation is what a guest of the native engine can reach: an index and an
// offset of 32 bits each, and what is read or written there.
const reservation = 8<<30 + 64<<10

// nativeEngine holds guests that were translated ahead of time. They do not
// tick: there is no fuel.
type nativeEngine struct{}

type nativeCode struct {
	module *native.Module
	serve  []func(in *instance, stack []uint64) // the imports, by their number
}

func (nativeEngine) load(_ context.Context, g *guest.Guest, imports []hostFunc) (code, error) {
	m, err := native.Open(g.Name)
	if err != nil {
		return nil, err
	}
	for _, f := range wasi.Functions() {
		imports = append(imports, wasiFunc(f))
	}
	known := map[[2]string]func(*instance, []uint64){}
	for _, f := range imports {
		known[[2]string{f.module, f.name}] = f.fn
	}
	c := &nativeCode{module: m}
	for _, i := range native.Imports() {
		c.serve = append(c.serve, known[[2]string{i.Module, i.Name}]) // nil: another guest's
	}
	return c, nil
}

func (*nativeCode) reserve(img *linear.Image, limit uint64) (*linear.Memory, error) {
	return linear.NewGuarded(img, min(limit, 4<<30-1<<16), reservation)
}

// nativeModule is one instance; it is its guest's host.
type nativeModule struct {
	code  *nativeCode
	in    *instance
	vm    *linear.Memory
	guest *native.Guest
	ticks int32
}

func (c *nativeCode) instantiate(in *instance, memory *linear.Memory) (module, error) {
	m := &nativeModule{code: c, in: in, vm: memory}
	if memory.Reallocate(max(uint64(len(memory.Bytes())), uint64(c.module.Pages())<<16)) == nil {
		return nil, errors.New("the guest does not fit into its memory limit")
	}
	var err error
	pages := uint32(len(memory.Bytes()) >> 16)
	m.guest, err = c.module.New(memory.Base(), reservation, pages, pages+uint32(memory.Room()>>16), m)
	return m, err
}

func (m *nativeModule) Ask(n int, stack []uint64) { m.code.serve[n](m.in, stack) }

func (m *nativeModule) Grow(pages uint32) (old uint32, ok bool) {
	length := uint64(len(m.vm.Bytes()))
	return uint32(length >> 16), m.vm.Reallocate(length+uint64(pages)<<16) != nil
}

func (m *nativeModule) call(name string, args ...uint64) (result uint64, err error) {
	defer func() {
		// What serves the guest unwinds it so.
		switch r := recover().(type) {
		case nil:
		case error:
			err = r
		default:
			panic(r)
		}
	}()
	result, err = m.guest.Call(name, args...)
	if errors.Is(err, native.ErrKilled) {
		err = errKilled
	} else if err != nil {
		err = fmt.Errorf("the guest: %w", err)
	}
	return result, err
}

// watchInterrupts watches from another goroutine: the guest itself asks nobody.
func (m *nativeModule) watchInterrupts(soft, hard <-chan struct{}, words []word) func() bool {
	done, left := make(chan struct{}), make(chan struct{})
	nudged, nudge := false, m.in.nudge
	go func() {
		defer close(left)
		select {
		case <-soft:
		case <-done:
			return
		}
		if len(words) > 0 {
			nudged = nudge.once(func() { m.in.vm.set(words) })
		}
		again := time.NewTicker(time.Millisecond)
		defer again.Stop()
		for {
			select {
			case <-hard:
				m.guest.Kill()
			default:
				// The guest changes the words after the first without a lock, and may
				// undo what was set. Alone they have no effect.
				if len(words) > 0 && !m.in.vm.seen(words) {
					m.in.vm.set(words[1:])
				}
			}
			select {
			case <-again.C:
			case <-done:
				return
			}
		}
	}()
	return func() bool {
		close(done)
		<-left
		m.guest.Survive()
		return nudged
	}
}

func (m *nativeModule) counter() int32           { return m.ticks }
func (m *nativeModule) setCounter(n int32)       { m.ticks = min(n, math.MaxInt32) }
func (m *nativeModule) stackPointer() uint64     { return m.guest.StackPointer() }
func (m *nativeModule) setStackPointer(v uint64) { m.guest.SetStackPointer(v) }
func (m *nativeModule) close()                   { m.guest.Close() }
