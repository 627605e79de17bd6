package worker

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"paddock/internal/sandbox/wasm/linear"
)

// Whatever was taken and given back before: each page is in one run, in order,
// with its own content, and those without a page are by themselves.
func TestRunsArePagesThatLieTogether(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	p := newPages()
	var held []pageID
	for range 300 {
		held = append(held, p.take(r.IntN(40))...)
		r.Shuffle(len(held), func(i, k int) { held[i], held[k] = held[k], held[i] })
		n := r.IntN(len(held) + 1)
		p.giveBack(held[n:])
		held = held[:n]

		ids, numbers, number := p.take(r.IntN(200)), []uint32(nil), uint32(0)
		ids = append(ids, held[:len(held)/4]...)
		for i, id := range ids {
			if number++; r.IntN(20) == 0 {
				number += 3
			}
			numbers = append(numbers, number)
			if copy(p.at(id), bytes.Repeat([]byte{byte(id), byte(id >> 8)}, linear.PageSize/2)); r.IntN(30) == 0 && i < len(ids)-len(held)/4 {
				p.giveBack([]pageID{id})
				ids[i] = 0
			}
		}
		at := 0
		p.runs(numbers, ids, func(n uint32, content []byte) {
			if content == nil {
				if ids[at] != 0 || numbers[at] != n {
					t.Fatalf("page %d is none", n)
				}
				at++
				return
			}
			for ; len(content) > 0; at, n, content = at+1, n+1, content[linear.PageSize:] {
				if numbers[at] != n || ids[at] == 0 || &content[0] != &p.at(ids[at])[0] {
					t.Fatalf("page %d of a run is another", n)
				}
			}
		})
		if at != len(ids) {
			t.Fatalf("%d of %d pages are in a run", at, len(ids))
		}
		p.giveBack(ids[:len(ids)-len(held)/4])
	}
	p.giveBack(held)
	if p.used != 0 {
		t.Errorf("%d pages are used", p.used)
	}
}

// Only long runs are copied past the cache.
func TestPagesThatAreTakenAtOnceLieTogether(t *testing.T) {
	p := newPages()
	ids := p.take(batch)
	numbers := make([]uint32, len(ids))
	for i := range numbers {
		numbers[i] = uint32(i)
	}
	long := 0
	p.runs(numbers, ids, func(_ uint32, content []byte) {
		if len(content) >= longRun {
			long += len(content) / linear.PageSize
		}
	})
	if long < batch*3/4 {
		t.Errorf("of %d pages %d are in long runs", batch, long)
	}
	p.giveBack(ids)
}
