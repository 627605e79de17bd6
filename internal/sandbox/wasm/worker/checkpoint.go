package worker

import (
	"bytes"
	"sync"

	"paddock/internal/sandbox/wasm/linear"
	"paddock/internal/sandbox/wasm/wasi"
)

// checkpoint is an interpreter's state between two runs: the pages that it
// has of its own, and its open descriptors. It lies in memory, and is what
// remains when a run has to be stopped by force.
type checkpoint struct {
	taken  bool
	saved  []uint32 // by a page's number, which of the saved ones it is, from 1; 0: it is as the image has it
	count  uint32   // how many are saved
	slabs  []*slab  // where they are, one after the other
	length uint64
	files  wasi.State
	dirty  []uint32 // scratch
}

// slab is how much room is taken at once: many pages come together.
type slab [slabPages * linear.PageSize]byte

const slabPages = 16

// slabs are those that nobody needs any more. Interpreters come and go by the
// thousand; as garbage, their slabs would keep the collector busy.
var slabs = sync.Pool{New: func() any { return new(slab) }}

// update brings c up to the state of memory, copying only the pages that
// changed since the last time.
func (c *checkpoint) update(memory *linear.Memory, system *wasi.System) error {
	dirty, err := memory.Dirty(c.dirty[:0])
	if err != nil {
		return err
	}
	if most := len(memory.Bytes()) / linear.PageSize; most > len(c.saved) {
		c.saved = append(c.saved, make([]uint32, most-len(c.saved))...)
	}
	for _, n := range dirty {
		page := memory.Page(n)
		if c.saved[n] == 0 {
			if c.count%slabPages == 0 {
				c.slabs = append(c.slabs, slabs.Get().(*slab))
			}
			c.count++
			c.saved[n] = c.count
			copy(c.page(c.count), page)
		} else if saved := c.page(c.saved[n]); !bytes.Equal(saved, page) {
			copy(saved, page)
		}
	}
	c.taken, c.dirty, c.length, c.files = true, dirty, uint64(len(memory.Bytes())), system.Save()
	return nil
}

// page is the saved page that is number which, from 1.
func (c *checkpoint) page(which uint32) []byte {
	which--
	return c.slabs[which/slabPages][which%slabPages*linear.PageSize:][:linear.PageSize]
}

// drop forgets the state.
func (c *checkpoint) drop() {
	for _, s := range c.slabs {
		slabs.Put(s)
	}
	*c = checkpoint{}
}

// restore puts the saved pages into memory, which is a fresh mapping of the
// image that c began with.
func (c *checkpoint) restore(memory *linear.Memory) bool {
	if memory.Reallocate(c.length) == nil {
		return false
	}
	for n, which := range c.saved {
		if which != 0 {
			copy(memory.Page(uint32(n)), c.page(which))
		}
	}
	return true
}
