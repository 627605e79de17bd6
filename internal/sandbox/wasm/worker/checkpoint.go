package worker

import (
	"bytes"

	"paddock/internal/sandbox/wasm/linear"
	"paddock/internal/sandbox/wasm/wasi"
)

// checkpoint is an interpreter's state between two runs: the pages that it
// has of its own, and its open descriptors. It lies in memory, and is what
// remains when a run has to be stopped by force.
type checkpoint struct {
	taken  bool
	pages  [][]byte // by their number; nil: as the image has it
	saved  int      // how many there are
	slab   []byte   // room for further pages
	length uint64
	files  wasi.State
	dirty  []uint32 // scratch
}

// slabSize is how much room is taken at once: many pages come together.
const slabSize = 256 << 10

// update brings c up to the state of memory, copying only the pages that
// changed since the last time.
func (c *checkpoint) update(memory *linear.Memory, system *wasi.System) error {
	dirty, err := memory.Dirty(c.dirty[:0])
	if err != nil {
		return err
	}
	if most := len(memory.Bytes()) / linear.PageSize; most > len(c.pages) {
		c.pages = append(c.pages, make([][]byte, most-len(c.pages))...)
	}
	for _, n := range dirty {
		page, saved := memory.Page(n), c.pages[n]
		if saved == nil {
			c.pages[n] = c.keep(page)
		} else if !bytes.Equal(saved, page) {
			copy(saved, page)
		}
	}
	c.taken, c.dirty, c.length, c.files = true, dirty, uint64(len(memory.Bytes())), system.Save()
	return nil
}

// keep copies a page into a slab.
func (c *checkpoint) keep(page []byte) []byte {
	if len(c.slab) == 0 {
		size := slabSize
		if c.saved*linear.PageSize < slabSize { // a small state needs little
			size /= 8
		}
		c.slab = make([]byte, size)
	}
	saved := c.slab[:linear.PageSize:linear.PageSize]
	c.slab = c.slab[linear.PageSize:]
	copy(saved, page)
	c.saved++
	return saved
}

// restore puts the saved pages into memory, which is a fresh mapping of the
// image that c began with.
func (c *checkpoint) restore(memory *linear.Memory) bool {
	if memory.Reallocate(c.length) == nil {
		return false
	}
	for n, page := range c.pages {
		if page != nil {
			copy(memory.Page(uint32(n)), page)
		}
	}
	return true
}
