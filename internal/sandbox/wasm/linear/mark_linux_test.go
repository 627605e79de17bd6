package linear

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

// large is a memory, of an image or of none, with more pages of its own than
// are worth marking.
func large(t *testing.T, guarded, ofImage bool) *Memory {
	t.Helper()
	var img *Image
	if ofImage {
		img = openImage(t, writeImage(t, 1, 17))
		t.Cleanup(func() { img.Close() })
	}
	limit := uint64(300 * wasmPage)
	m, err := New(img, limit)
	if guarded {
		m, err = NewGuarded(img, limit, 1<<30)
	}
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("not on this system")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Free)
	grown := m.Reallocate(200 * wasmPage)
	for at := 2 * wasmPage; at < len(grown); at += PageSize {
		grown[at] = 1
	}
	return m
}

func changed(t *testing.T, m *Memory) []uint32 {
	t.Helper()
	pages, err := m.Changed(nil)
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// everyKind runs a test with each kind of memory that is worth marking.
func everyKind(t *testing.T, test func(t *testing.T, m *Memory)) {
	for name, guarded := range map[string]bool{"guarded": true, "not guarded": false} {
		for kind, ofImage := range map[string]bool{"of an image": true, "of nothing": false} {
			t.Run(name+", "+kind, func(t *testing.T) { test(t, large(t, guarded, ofImage)) })
		}
	}
}

// requireMarks marks a memory, and skips where the system cannot tell what was
// written since.
func requireMarks(t *testing.T, m *Memory) {
	t.Helper()
	if !Marks() {
		t.Skip("what was written since cannot be told here")
	}
	changed(t, m)
	m.Mark()
	if got := changed(t, m); len(got) > 0 {
		t.Fatalf("a marked memory tells %d pages", len(got))
	}
}

func TestWhatWasWrittenSinceTheMarkIsToldWhoeverWroteIt(t *testing.T) {
	file, err := os.Open(writeImage(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	everyKind(t, func(t *testing.T, m *Memory) {
		first := changed(t, m)
		dirty, err := m.Dirty(nil)
		if err != nil || !slices.Equal(first, dirty) {
			t.Fatalf("before the first mark it tells %d pages, Dirty %d (%v)", len(first), len(dirty), err)
		}
		m.Mark()
		random := rand.New(rand.NewPCG(1, 2))
		for round := range 20 {
			if round == 10 {
				m.Reallocate(250 * wasmPage)
			}
			var want []uint32
			for range random.IntN(50) {
				n := uint32(random.IntN(len(m.Bytes()) / PageSize))
				want = append(want, n)
				switch random.IntN(3) {
				case 0:
					m.Page(n)[random.IntN(PageSize)]++
				case 1: // the kernel writes it
					if _, err := file.ReadAt(m.Page(n), headRoom); err != nil {
						t.Fatal(err)
					}
				case 2:
					copy(m.Page(n), bytes.Repeat([]byte{byte(round)}, PageSize))
				}
				_ = m.Page(uint32(random.IntN(len(m.Bytes()) / PageSize)))[0] // what is read is not told
			}
			slices.Sort(want)
			want = slices.Compact(want)
			got := changed(t, m)
			if !slices.IsSorted(got) {
				t.Fatalf("round %d: they are not in order: %v", round, got)
			}
			for _, n := range want {
				if !slices.Contains(got, n) {
					t.Errorf("round %d: page %d was written and is not told", round, n)
				}
			}
			if again := changed(t, m); !slices.Equal(again, got) {
				t.Errorf("round %d: asked again it tells %d pages, not %d", round, len(again), len(got))
			}
			m.Mark()
		}
	})
}

func TestNothingElseIsToldWhereTheSystemCanTell(t *testing.T) {
	if os.Getpagesize() != PageSize {
		t.Skip("a page of the system is told as a whole")
	}
	everyKind(t, func(t *testing.T, m *Memory) {
		requireMarks(t, m)
		for n := range uint32(len(m.Bytes()) / PageSize) {
			_ = m.Page(n)[5]
		}
		if got := changed(t, m); len(got) != 0 {
			t.Errorf("after reading: %v", got)
		}
		m.Page(3)[0], m.Page(1500)[0] = 1, 1
		m.Reallocate(201 * wasmPage)
		m.Page(3202)[0] = 1
		if got, want := changed(t, m), []uint32{3, 1500, 3202}; !slices.Equal(got, want) {
			t.Errorf("it tells %v, want %v", got, want)
		}
		m.Mark()
		m.Page(3203)[0] = 1
		if got, want := changed(t, m), []uint32{3203}; !slices.Equal(got, want) {
			t.Errorf("then it tells %v, want %v", got, want)
		}
	})
}

func TestRenewingTellsAndMarksAtOnce(t *testing.T) {
	everyKind(t, func(t *testing.T, m *Memory) {
		renewed := func() []uint32 {
			t.Helper()
			pages, err := m.Renew(nil)
			if err != nil {
				t.Fatal(err)
			}
			return pages
		}
		dirty, err := m.Dirty(nil)
		if first := renewed(); err != nil || !slices.Equal(first, dirty) {
			t.Fatalf("at first it tells %d pages, Dirty %d (%v)", len(first), len(dirty), err)
		}
		if !Marks() || os.Getpagesize() != PageSize {
			t.Skip("what was written since cannot be told here, or not page by page")
		}
		for round := range 3 {
			if got := renewed(); len(got) != 0 {
				t.Errorf("round %d: where nothing was written it tells %v", round, got)
			}
			m.Reallocate(uint64(201+round) * wasmPage)
			grown := uint32(200+round) * wasmPage / PageSize
			m.Page(3)[0]++
			m.Page(1500)[0]++
			m.Page(grown)[0]++
			if got, want := renewed(), []uint32{3, 1500, grown}; !slices.Equal(got, want) {
				t.Errorf("round %d: it tells %v, want %v", round, got, want)
			}
		}
		m.Page(9)[0]++
		if got := changed(t, m); !slices.Equal(got, []uint32{9}) {
			t.Errorf("after it %v is told, want page 9", got)
		}
		m.Unmark()
		if dirty, err = m.Dirty(nil); err != nil || !slices.Equal(changed(t, m), dirty) {
			t.Errorf("without a mark not all that is dirty is told (%v)", err)
		}
		if got := renewed(); !slices.Equal(got, dirty) {
			t.Errorf("marked again it tells %d pages, not %d", len(got), len(dirty))
		}
		m.Page(7)[0]++
		if got := renewed(); !slices.Equal(got, []uint32{7}) {
			t.Errorf("then it tells %v, want page 7", got)
		}
	})
}

func TestASmallMemoryIsNotMarked(t *testing.T) {
	m := newMemory(t, openImage(t, writeImage(t, 1)), 4*wasmPage)
	m.Page(1)[0], m.Page(5)[0] = 7, 7
	before := changed(t, m)
	m.Mark()
	m.Page(6)[0] = 7
	if got := changed(t, m); !slices.Equal(got, append(before, 6)) {
		t.Errorf("it tells %v", got)
	}
}

// The next memory may be the one that was given back.
func TestAMarkEndsWithItsMemory(t *testing.T) {
	img := openImage(t, writeImage(t, 1, 17))
	defer img.Close()
	for range 3 {
		m := newMemory(t, img, 300*wasmPage)
		if dirty := changed(t, m); exactDirty() && len(dirty) > 64 {
			t.Fatalf("a fresh memory tells %d pages", len(dirty))
		}
		m.Page(2)[0] = 1
		if !slices.Contains(changed(t, m), 2) {
			t.Error("a fresh memory does not tell what was written")
		}
		grown := m.Reallocate(200 * wasmPage)
		for at := 0; at < len(grown); at += PageSize {
			grown[at]++
		}
		changed(t, m)
		m.Mark()
		m.Page(9)[0]++
		m.Free()
	}
}

func TestWhereTheSystemRefusesAllThatIsDirtyIsTold(t *testing.T) {
	m := large(t, false, true)
	requireMarks(t, m)
	m.Page(4)[0] = 1
	m.Unmark() // as after an error
	dirty, err := m.Dirty(nil)
	if got := changed(t, m); err != nil || !slices.Equal(got, dirty) {
		t.Errorf("it tells %d pages, Dirty %d (%v)", len(got), len(dirty), err)
	}
	m.Mark()
	m.Page(5)[0] = 1
	if got := changed(t, m); !slices.Contains(got, 5) {
		t.Errorf("marked again it tells %v", got)
	}
}

// BenchmarkFinding is what finding the pages costs that a small program wrote
// in a memory of so many of its own: by their marks, the writes to marked pages
// among it, and by looking at all of them.
func BenchmarkFinding(b *testing.B) {
	const written = 130
	for _, own := range []int{256, 1024, 2048, 5120, 16384} {
		for _, marked := range []bool{true, false} {
			name := "by looking"
			if marked {
				name = "by marks"
			}
			b.Run(fmt.Sprintf("%d pages %s", own, name), func(b *testing.B) { benchmarkFinding(b, own, written, marked) })
		}
	}
}

func benchmarkFinding(b *testing.B, own, written int, marked bool) {
	if marked && !Marks() {
		b.Skip("what was written since cannot be told here")
	}
	m, err := New(nil, uint64(own)*PageSize)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Free()
	memory := m.Reallocate(uint64(own) * PageSize)
	for n := range own {
		memory[n*PageSize] = 1
	}
	kept := bytes.Clone(memory)
	if marked {
		m.own = worthMarking
		m.Mark()
	}
	random, pages := rand.New(rand.NewPCG(1, 2)), []uint32(nil)
	for b.Loop() {
		for range written {
			memory[random.IntN(own)*PageSize]++
		}
		if pages, err = m.Changed(pages[:0]); err != nil {
			b.Fatal(err)
		}
		for _, n := range pages {
			if saved := kept[n*PageSize:][:PageSize]; !bytes.Equal(saved, m.Page(n)) {
				copy(saved, m.Page(n))
			}
		}
		if marked {
			m.Mark()
		}
	}
}

func TestWhatIsLeftOutOfAMarkIsToldAgain(t *testing.T) {
	everyKind(t, func(t *testing.T, m *Memory) {
		if !Marks() {
			t.Skip("what was written since cannot be told here")
		}
		all := changed(t, m)
		for range 2 { // the first mark arms everything, the second what was told
			left := all[300:700]
			m.MarkBut(left)
			if got := changed(t, m); !slices.Equal(got, left) {
				t.Fatalf("of %d pages that were left out it tells %d", len(left), len(got))
			}
			m.Page(all[10])[0]++
			m.Page(all[800])[0]++
			m.Page(all[350])[0]++
			want := slices.Concat(all[10:11], left, all[800:801])
			if got := changed(t, m); !slices.Equal(got, want) {
				t.Fatalf("it tells %d pages, not %d", len(got), len(want))
			}
		}
		m.Mark()
		if got := changed(t, m); len(got) > 0 {
			t.Errorf("marked wholly it tells %d pages", len(got))
		}
	})
}

func TestRenewingWhatIsNotMarkedTellsAllOfItOnce(t *testing.T) {
	everyKind(t, func(t *testing.T, m *Memory) {
		requireMarks(t, m)
		m.Unmark()
		dirty, err := m.Dirty(nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := m.Renew([]uint32{7}); err != nil || !slices.Equal(got[1:], dirty) || got[0] != 7 {
			t.Errorf("it tells %d pages, Dirty %d (%v)", len(got)-1, len(dirty), err)
		}
		m.Page(33)[0]++
		if got, err := m.Renew(nil); err != nil || !slices.Equal(got, []uint32{33}) {
			t.Errorf("then it tells %v, %v", got, err)
		}
	})
}

// Where the system makes large pages of them, they are told one by one all the same.
func TestWhatIsToBeFilledIsToldPageByPage(t *testing.T) {
	img := openImage(t, writeImage(t, 1, 17))
	defer img.Close()
	base, err := img.Base()
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(img, 16<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	grown := m.Reallocate(16 << 20)
	m.Fill(0, uint32(len(grown)/PageSize))
	if dirty, err := m.Dirty(nil); err != nil || exactDirty() && len(dirty) > 0 {
		t.Fatalf("nothing is written, and %d pages are told (%v)", len(dirty), err)
	}
	if !bytes.Equal(grown[:len(base)], base) || !isZero(grown[len(base):]) {
		t.Fatal("it is no longer what it was")
	}
	first := uint32(len(base) / PageSize)
	count := uint32(len(grown)/PageSize) - first
	m.Expect(first, count)
	for n := first; n < first+count; n++ {
		m.Page(n)[1] = byte(n)
	}
	requireMarks(t, m)
	m.Page(first + 700)[0]++
	m.Page(first + 701)[0]++
	m.Page(first + 2222)[0]++
	if got, want := changed(t, m), []uint32{first + 700, first + 701, first + 2222}; !slices.Equal(got, want) {
		t.Errorf("it tells %v, not %v", got, want)
	}
	for n := first; n < first+count; n++ {
		if m.Page(n)[1] != byte(n) {
			t.Fatalf("page %d lost what was written", n)
		}
	}
}

// A run that is shorter than a large page stays small pages, wherever it lies.
func TestAShortRunIsFilledWithSmallPages(t *testing.T) {
	m, err := New(nil, 8<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	m.Reallocate(8 << 20)
	for n := uint32(0); n < 2048-510; n += 64 {
		m.Fill(n, 511)
	}
	m.Page(700)[0] = 1
	if dirty, err := m.Dirty(nil); err != nil || os.Getpagesize() == PageSize && !slices.Equal(dirty, []uint32{700}) {
		t.Errorf("%d pages were written (%v)", len(dirty), err)
	}
}
