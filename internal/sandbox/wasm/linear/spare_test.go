package linear

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"testing"
)

// newKind makes a memory of an image, guarded or not, of up to four wasm pages.
func newKind(img *Image, guarded bool) (*Memory, error) {
	if guarded {
		return NewGuarded(img, 4*wasmPage, 1<<30)
	}
	return New(img, 4*wasmPage)
}

// Whatever was done to a memory: when it is given back, the next one of the
// image is what a fresh one is.
func TestAMemoryThatWasGivenBackIsTheImageAgain(t *testing.T) {
	for name, guarded := range map[string]bool{"guarded": true, "not guarded": false} {
		t.Run(name, func(t *testing.T) {
			img := openImage(t, writeImage(t, 1, 17))
			defer img.Close()
			want := bytes.Clone(newMemory(t, img, 4*wasmPage).Bytes())
			var wg sync.WaitGroup
			for who := range uint64(4) {
				wg.Go(func() {
					random := rand.New(rand.NewPCG(who, 1))
					for range 100 {
						m, err := newKind(img, guarded)
						if errors.Is(err, errors.ErrUnsupported) {
							return
						}
						if err != nil {
							t.Error(err)
							return
						}
						spoil(t, m, want, random)
						m.Free()
						m.Free()
					}
				})
			}
			wg.Wait()
		})
	}
}

func TestAMemoryThatWasGivenBackIsTheNext(t *testing.T) {
	if !exactDirty() {
		t.Skip("what was written cannot be told here")
	}
	img := openImage(t, writeImage(t, 1))
	defer img.Close()
	m := newMemory(t, img, 4*wasmPage)
	m.Bytes()[5]++
	base := m.Base()
	m.Free()
	if again := newMemory(t, img, 4*wasmPage); again.Base() != base {
		t.Error("it was made anew")
	}
	if other := newMemory(t, img, 4*wasmPage); other.Base() == base {
		t.Error("it is used twice")
	}
}

// spoil looks whether a memory is fresh, and then writes to it here and there.
func spoil(t *testing.T, m *Memory, want []byte, random *rand.Rand) {
	if !bytes.Equal(m.Bytes(), want) {
		t.Error("a memory does not begin as the image")
	}
	grown := m.Reallocate(uint64(2+random.IntN(3)) * wasmPage)
	if !isZero(grown[len(want):]) {
		t.Error("what a memory grew by is not zeros")
	}
	for range random.IntN(40) {
		grown[random.IntN(len(grown))] = byte(random.Uint32())
	}
	if _, err := m.Dirty(nil); err != nil {
		t.Error(err)
	}
}

func TestAGuardedMemoryThatWasGivenBackIsGuardedAgain(t *testing.T) {
	img := openImage(t, writeImage(t, 1))
	defer img.Close()
	for range 3 {
		m, err := newKind(img, true)
		if errors.Is(err, errors.ErrUnsupported) {
			t.Skip("not on this system")
		}
		if err != nil {
			t.Fatal(err)
		}
		if !faults(func() { m.all[len(m.Bytes())]++ }) {
			t.Error("a memory can be written beyond its end")
		}
		m.Reallocate(3 * wasmPage)[3*wasmPage-1] = 1
		m.Free()
	}
}

// faults tells whether f touches memory that is not there.
func faults(f func()) (yes bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { yes = recover() != nil }()
	f()
	return false
}
