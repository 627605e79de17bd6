package linear

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"
)

func TestNoTwoSlabsShareTheirBytes(t *testing.T) {
	var all sync.WaitGroup
	for who := range uint64(4) {
		all.Go(func() {
			random := rand.New(rand.NewPCG(who, 3))
			held := map[*Slab]uint64{}
			for range 4000 {
				if random.IntN(5) < 3 {
					s, stamp := NewSlab(), random.Uint64()
					for n := range SlabPages {
						binary.LittleEndian.PutUint64(s.Bytes()[n*PageSize:], stamp)
					}
					held[s] = stamp
					continue
				}
				for s, stamp := range held {
					for n := range SlabPages {
						if got := binary.LittleEndian.Uint64(s.Bytes()[n*PageSize:]); got != stamp {
							t.Errorf("a slab holds %#x, not %#x", got, stamp)
						}
					}
					s.Free()
					s.Free()
					delete(held, s)
					break
				}
			}
			for s := range held {
				s.Free()
			}
		})
	}
	all.Wait()
	slabs.mu.Lock()
	defer slabs.mu.Unlock()
	if slabs.idle != len(slabs.all) {
		t.Errorf("%d of %d chunks are idle, and no slab is used", slabs.idle, len(slabs.all))
	}
}

func TestASlabIsItsPages(t *testing.T) {
	s := NewSlab()
	defer s.Free()
	if b := s.Bytes(); len(b) != SlabPages*PageSize || cap(b) != len(b) || uintptr(unsafe.Pointer(&b[0]))%PageSize != 0 {
		t.Errorf("it has %d of %d bytes at %p", len(b), cap(b), b)
	}
}

// What is freed is used again, and of what nobody uses no more is kept than
// the bound.
func TestFreedSlabsAreUsedAgainAndTheRestIsGivenBack(t *testing.T) {
	const chunks = idleChunks + 10
	var held []*Slab
	fill := func() {
		for range chunks * chunkSlabs {
			held = append(held, NewSlab())
		}
	}
	empty := func() {
		rand.Shuffle(len(held), func(i, k int) { held[i], held[k] = held[k], held[i] })
		for _, s := range held {
			s.Free()
		}
		held = nil
	}
	for range 3 {
		fill()
		if n := len(slabs.all); n != chunks {
			t.Errorf("%d chunks' worth of slabs take %d", chunks, n)
		}
		empty()
		if n := len(slabs.all); n != idleChunks || slabs.idle != idleChunks {
			t.Errorf("of these %d stay, %d of them idle", n, slabs.idle)
		}
	}
}

// BenchmarkKeeping is what keeping 64 MiB of pages costs: in slabs that are
// new, in such as were used before, and in Go's own memory.
func BenchmarkKeeping(b *testing.B) {
	const size = 64 << 20
	pages := make([]byte, size)
	for i := range pages {
		pages[i] = byte(i >> 7)
	}
	held := make([]*Slab, size/slabBytes)
	keep := func() {
		for i := range held {
			held[i] = NewSlab()
			copy(held[i].Bytes(), pages[i*slabBytes:])
		}
	}
	free := func() {
		for _, s := range held {
			s.Free()
		}
	}
	b.Run("new", func(b *testing.B) {
		for b.Loop() {
			keep()
			b.StopTimer()
			free()
			slabs.mu.Lock()
			for _, c := range slabs.all {
				unmapChunk(c.room)
			}
			slabs.all, slabs.open, slabs.idle = nil, 0, 0
			slabs.mu.Unlock()
			b.StartTimer()
		}
	})
	b.Run("used", func(b *testing.B) {
		for b.Loop() {
			keep()
			b.StopTimer()
			free()
			b.StartTimer()
		}
	})
	b.Run("heap", func(b *testing.B) {
		for b.Loop() {
			var kept [][]byte
			for at := 0; at < size; at += slabBytes {
				p := make([]byte, slabBytes)
				copy(p, pages[at:])
				kept = append(kept, p)
			}
			_ = kept
		}
	})
}

func TestSlabsThatFollowOneAnotherAreOneRoom(t *testing.T) {
	var all []*Slab
	for range 3 * chunkSlabs {
		all = append(all, NewSlab())
	}
	defer func() {
		for _, s := range all {
			s.Free()
		}
	}()
	followed := 0
	for i, s := range all {
		if got := s.Through(s); &got[0] != &s.Bytes()[0] || len(got) != slabBytes {
			t.Fatal("a slab by itself is not its bytes")
		}
		for _, other := range all {
			behind := s.chunk == other.chunk && uintptr(unsafe.Pointer(&other.Bytes()[0])) == uintptr(unsafe.Pointer(&s.Bytes()[0]))+slabBytes
			if other.Follows(s) != behind {
				t.Fatalf("slab %d: it is %v that another lies behind it", i, behind)
			}
			if !behind {
				continue
			}
			followed++
			two := s.Through(other)
			if len(two) != 2*slabBytes || &two[0] != &s.Bytes()[0] || &two[slabBytes] != &other.Bytes()[0] {
				t.Fatal("two slabs are not one room")
			}
		}
	}
	if followed < 2*(chunkSlabs-1) {
		t.Errorf("of %d slabs %d follow another", len(all), followed)
	}
	heap := &Slab{bytes: make([]byte, slabBytes)}
	if heap.Follows(heap) || len(heap.Through(heap)) != slabBytes {
		t.Error("a slab of the heap is more than itself")
	}
}
