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
	pages  map[uint32][]byte
	length uint64
	files  wasi.State
	dirty  []uint32 // scratch
}

// update brings c up to the state of memory, copying only the pages that
// changed since the last time.
func (c *checkpoint) update(memory *linear.Memory, system *wasi.System) error {
	dirty, err := memory.Dirty(c.dirty[:0])
	if err != nil {
		return err
	}
	if c.pages == nil {
		c.pages = make(map[uint32][]byte, len(dirty))
	}
	for _, n := range dirty {
		page, saved := memory.Page(n), c.pages[n]
		if saved == nil {
			c.pages[n] = bytes.Clone(page)
		} else if !bytes.Equal(saved, page) {
			copy(saved, page)
		}
	}
	c.dirty, c.length, c.files = dirty, uint64(len(memory.Bytes())), system.Save()
	return nil
}

// restore puts the saved pages into memory, which is a fresh mapping of the
// image that c began with.
func (c *checkpoint) restore(memory *linear.Memory) bool {
	if memory.Reallocate(c.length) == nil {
		return false
	}
	for n, page := range c.pages {
		copy(memory.Page(n), page)
	}
	return true
}
