package linear

import (
	"math/bits"
	"slices"
	"sync"
)

// SlabPages is how many pages a Slab holds.
const SlabPages = 16

const slabBytes = SlabPages * PageSize

// Slab is room for pages that are kept beside a memory: SlabPages of them, at
// an address that is a multiple of PageSize, with anything in them. It lies
// outside of what the garbage collector looks at.
//
// Room is taken from the system in chunks of 2 MiB, all but the first in large
// pages where there are such: the first write to a page of 4 KiB costs two
// microseconds, and a large session has thousands. What was freed is kept for
// the next, to a bound.
type Slab struct {
	chunk *chunk
	n     int
	bytes []byte
}

// NewSlab gives a slab that nobody else has. It is safe for concurrent use, as
// Free is for different slabs.
func NewSlab() *Slab { return slabs.take() }

// Bytes are the slab's own until Free.
func (s *Slab) Bytes() []byte { return s.bytes }

// Follows tells whether the slab lies right behind other, so that other's Through
// reaches it.
func (s *Slab) Follows(other *Slab) bool {
	return s.chunk != nil && s.chunk == other.chunk && s.n == other.n+1
}

// Through gives the bytes from the slab's first to last's last. All between them
// have to follow one another.
func (s *Slab) Through(last *Slab) []byte {
	if s == last {
		return s.bytes
	}
	from, to := s.n*slabBytes, (last.n+1)*slabBytes
	return s.chunk.room[from:to:to]
}

// Free gives the slab back. It works twice.
func (s *Slab) Free() {
	if c := s.chunk; c != nil {
		n := s.n
		*s = Slab{}
		slabs.put(c, n)
	}
}

const (
	chunkBytes = 2 << 20
	chunkSlabs = chunkBytes / slabBytes
	// idleChunks is how many chunks stay while none of their slabs is used: as
	// many as a session of 64 MiB gives back when it ends. Of all but warmChunks
	// the system may take the memory when it is short of it.
	idleChunks = 32
	warmChunks = 4
)

// chunk is room for chunkSlabs slabs.
type chunk struct {
	room []byte
	free uint32 // the slabs that are free, one bit each
	at   int    // where it is in chunks
}

const allFree = 1<<chunkSlabs - 1

// chunks is where slabs come from.
type chunks struct {
	mu   sync.Mutex // guards what follows
	all  []*chunk
	open int // no chunk before this one has a free slab
	idle int // how many are free wholly
}

var slabs chunks

func (s *chunks) take() *Slab {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.open < len(s.all) && s.all[s.open].free == 0 {
		s.open++
	}
	if s.open == len(s.all) {
		room, err := mapChunk(len(s.all) > 0)
		if err != nil { // the system has no such memory left; the heap may
			return &Slab{bytes: make([]byte, slabBytes)}
		}
		s.all = append(s.all, &chunk{room: room, free: allFree, at: len(s.all)})
		s.idle++
	}
	c := s.all[s.open]
	if c.free == allFree {
		s.idle--
	}
	n := bits.TrailingZeros32(c.free)
	c.free &^= 1 << n
	return &Slab{chunk: c, n: n, bytes: c.room[n*slabBytes:][:slabBytes:slabBytes]}
}

func (s *chunks) put(c *chunk, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.free |= 1 << n
	s.open = min(s.open, c.at)
	if c.free != allFree {
		return
	}
	if s.idle < idleChunks {
		if s.idle++; s.idle > warmChunks {
			offerChunk(c.room)
		}
		return
	}
	last := s.all[len(s.all)-1]
	s.all[c.at], last.at = last, c.at
	s.all = slices.Delete(s.all, len(s.all)-1, len(s.all))
	unmapChunk(c.room)
}
