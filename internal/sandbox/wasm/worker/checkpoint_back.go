package worker

import (
	"bytes"
	"errors"

	"paddock/internal/sandbox/wasm/linear"
)

var errSize = errors.New("the saved memory is over the limit")

// restore puts the newest moment into memory, which is a fresh mapping of the
// image.
func (h *snapshots) restore(memory *linear.Memory) error {
	if memory.Reallocate(h.newest.length) == nil {
		return errSize
	}
	numbers, ids := h.newest.pages.split()
	for rest := numbers; len(rest) > 0; {
		n := together(rest)
		memory.Fill(rest[0], uint32(n))
		rest = rest[n:]
	}
	spread(len(numbers), func(from, to int) {
		h.pages.runs(numbers[from:to], ids[from:to], func(n uint32, content []byte) {
			count := len(content) / linear.PageSize
			if count >= worthExpecting {
				memory.Expect(n, uint32(count))
			}
			copy(memory.Pages(n, count), content)
		})
	})
	memory.Mark()
	return nil
}

// worthExpecting is from how many pages in a row on a memory is told of them.
const worthExpecting = 16

// together is how many of the first pages follow one another.
func together(numbers []uint32) int {
	n := 1
	for n < len(numbers) && numbers[n] == numbers[0]+uint32(n) {
		n++
	}
	return n
}

// split gives the numbers and the pages of a table by themselves.
func (t table) split() (numbers []uint32, ids []pageID) {
	numbers, ids = make([]uint32, len(t)), make([]pageID, len(t))
	for i, e := range t {
		numbers[i], ids[i] = e.n, e.id
	}
	return numbers, ids
}

// restoreTo puts a moment into memory, whose content is what it was at the newest
// one but for what changed since. It tells whether it could: a memory does not
// become smaller.
func (h *snapshots) restoreTo(to *snapshot, memory *linear.Memory, img *linear.Image) bool {
	if uint64(len(memory.Bytes())) != to.length {
		return false
	}
	base, err := baseOf(img)
	if err != nil {
		return false
	}
	h.changed, err = memory.Changed(h.changed[:0])
	if err != nil {
		return false
	}
	numbers := merged(h.changed, differ(h.newest.pages, to.pages))
	found := to.pages.find(numbers)
	// What is written over whole is written again soon, as a rule.
	large := len(numbers) >= spreadFrom
	if large && len(numbers)-len(both(numbers, h.hot)) >= spreadFrom {
		memory.Unmark()
	}
	spread(len(numbers), func(from, to int) {
		h.pages.runs(numbers[from:to], found[from:to], func(n uint32, content []byte) { overwrite(memory, n, content, base) })
	})
	if !large {
		memory.MarkBut(h.hot)
	}
	return true
}

// longRun is from how many bytes on a run of pages is not compared before it is
// written: copying so much at once goes past the cache.
const longRun = 1 << 20

// overwrite makes the pages from number n on what content is; nil: one page what
// base has.
func overwrite(memory *linear.Memory, n uint32, content []byte, base base) {
	switch {
	case len(content) >= longRun:
		copy(memory.Pages(n, len(content)/linear.PageSize), content)
		return
	case content == nil:
		if content = base.page(n); content == nil {
			content = zeros[:]
		}
	}
	for ; len(content) > 0; n, content = n+1, content[linear.PageSize:] {
		if page := memory.Page(n); !bytes.Equal(page, content[:linear.PageSize]) {
			copy(page, content)
		}
	}
}

// differ gives the numbers of the pages in which two moments may differ.
func differ(a, b table) (numbers []uint32) {
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].n < b[0].n:
			numbers, a = append(numbers, a[0].n), a[1:]
		case len(a) == 0 || b[0].n < a[0].n:
			numbers, b = append(numbers, b[0].n), b[1:]
		default:
			if a[0].id != b[0].id {
				numbers = append(numbers, a[0].n)
			}
			a, b = a[1:], b[1:]
		}
	}
	return numbers
}

// merged gives what is in one of two ascending lists.
func merged(a, b []uint32) []uint32 {
	all := make([]uint32, 0, len(a)+len(b))
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0] < b[0]:
			all, a = append(all, a[0]), a[1:]
		case len(a) == 0 || b[0] < a[0]:
			all, b = append(all, b[0]), b[1:]
		default:
			all, a, b = append(all, a[0]), a[1:], b[1:]
		}
	}
	return all
}

// both gives what is in each of two ascending lists.
func both(a, b []uint32) (common []uint32) {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			a = a[1:]
		case b[0] < a[0]:
			b = b[1:]
		default:
			common, a, b = append(common, a[0]), a[1:], b[1:]
		}
	}
	return common
}
