package worker

import (
	"container/list"
	"sync"
	"sync/atomic"

	"paddock/internal/sandbox/wasm/linear"
)

// What a worker keeps beside the newest state of each instance, so that going
// back and forking need no disk.
const (
	// mostMarks is how many earlier states of one instance can be gone back to.
	mostMarks = 8
	// mostPast is how many pages the earlier states of all instances may have
	// beyond the newest ones: 256 MiB, so that a program that changes 64 MiB in
	// each run can still go back a few.
	mostPast = 256 << 20 / linear.PageSize
)

// pages holds what memories were at some moment, page by page. A page is never
// changed once it is in a table; it goes when no table has it any more. It is
// safe for concurrent use.
type pages struct {
	slabs atomic.Pointer[[]*slab] // replaced under mu, and read without it by whoever holds a page

	mu     sync.Mutex // guards what follows
	open   []uint32   // slabs with room
	vacant []uint32   // where there was a slab and is none
	used   int        // pages
	newest int        // pages of the newest states, each counted as often as it is in one
	marks  *list.List // of *mark: all of the worker's, the oldest first
	most   int        // mostPast
}

// pageID says where a page lies; 0 is none.
type pageID uint32

// slab is room for some pages.
type slab struct {
	memory *linear.Slab
	bytes  []byte
	count  [linear.SlabPages]uint32 // tables that have it; guarded by pages.mu
	free   []uint32                 // likewise
}

func newPages() *pages {
	p := &pages{marks: list.New(), most: mostPast}
	p.slabs.Store(&[]*slab{nil}) // so that no page is 0
	return p
}

// at gives a page's content. The caller has a reference to it.
func (p *pages) at(id pageID) []byte {
	s := (*p.slabs.Load())[id/linear.SlabPages]
	return s.bytes[int(id%linear.SlabPages)*linear.PageSize:][:linear.PageSize:linear.PageSize]
}

// runs calls do for each run of the ids' pages that lie one behind another here
// and whose numbers do as well: with the first one's number and the content of all.
// An id of 0 is a run by itself, without content. The caller has a reference to
// each page.
func (p *pages) runs(numbers []uint32, ids []pageID, do func(n uint32, content []byte)) {
	slabs := *p.slabs.Load()
	for len(ids) > 0 {
		if ids[0] == 0 {
			do(numbers[0], nil)
			numbers, ids = numbers[1:], ids[1:]
			continue
		}
		first := slabs[ids[0]/linear.SlabPages]
		n, last := 1, first
		for n < len(ids) && ids[n] != 0 && numbers[n] == numbers[0]+uint32(n) {
			next := slabs[ids[n]/linear.SlabPages]
			if within := next == last && ids[n] == ids[n-1]+1; !within {
				begins := ids[n]%linear.SlabPages == 0 && ids[n-1]%linear.SlabPages == linear.SlabPages-1
				if !begins || !next.memory.Follows(last.memory) {
					break
				}
				last = next
			}
			n++
		}
		content := first.memory.Through(last.memory)[ids[0]%linear.SlabPages*linear.PageSize:]
		do(numbers[0], content[:n*linear.PageSize])
		numbers, ids = numbers[n:], ids[n:]
	}
}

// take gives n pages to fill, with a reference to each.
func (p *pages) take(n int) []pageID {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := make([]pageID, 0, n)
	p.used += n
	for range n {
		if len(p.open) == 0 {
			p.growLocked()
		}
		where := p.open[len(p.open)-1]
		s := (*p.slabs.Load())[where]
		slot := s.free[len(s.free)-1]
		s.free = s.free[:len(s.free)-1]
		s.count[slot] = 1
		if len(s.free) == 0 {
			p.open = p.open[:len(p.open)-1]
		}
		ids = append(ids, pageID(where*linear.SlabPages+slot))
	}
	return ids
}

// growLocked adds a slab, in the place of one that was given back if there is any.
func (p *pages) growLocked() {
	memory := linear.NewSlab()
	s := &slab{memory: memory, bytes: memory.Bytes(), free: make([]uint32, linear.SlabPages)}
	for i := range s.free {
		s.free[i] = linear.SlabPages - 1 - uint32(i) // the first one is taken first
	}
	slabs := *p.slabs.Load()
	where := uint32(len(slabs))
	if n := len(p.vacant); n > 0 {
		where, p.vacant = p.vacant[n-1], p.vacant[:n-1]
		slabs[where] = s
	} else {
		slabs = append(slabs, s)
		p.slabs.Store(&slabs)
	}
	p.open = append(p.open, where)
}

// giveBack gives up a reference to each page; 0 is none.
func (p *pages) giveBack(ids []pageID) {
	if len(ids) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		if id != 0 {
			p.dropLocked(id)
		}
	}
}

// keepLocked takes a further reference to a page.
func (p *pages) keepLocked(id pageID) {
	(*p.slabs.Load())[id/linear.SlabPages].count[id%linear.SlabPages]++
}

// dropLocked gives up a reference.
func (p *pages) dropLocked(id pageID) {
	where, slot := uint32(id/linear.SlabPages), uint32(id%linear.SlabPages)
	slabs := *p.slabs.Load()
	s := slabs[where]
	if s.count[slot]--; s.count[slot] > 0 {
		return
	}
	p.used--
	s.free = append(s.free, slot)
	switch len(s.free) {
	case 1:
		p.open = append(p.open, where)
	case linear.SlabPages:
		last := len(p.open) - 1
		for i := last; i >= 0; i-- { // as a rule it is one of the last
			if p.open[i] == where {
				p.open[i], p.open = p.open[last], p.open[:last]
				break
			}
		}
		slabs[where] = nil
		p.vacant = append(p.vacant, where)
		s.memory.Free()
	}
}

// entry is a page of a memory, by its number there.
type entry struct {
	n  uint32
	id pageID
}

// table is the pages in which a memory differs from the image, by number.
type table []entry
