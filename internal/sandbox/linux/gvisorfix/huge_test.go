//go:build linux && (amd64 || arm64)

package gvisorfix

import (
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"

	"paddock/internal/sandbox/sandboxtest"
)

func TestWhoFillsUnitsIsLentMore(t *testing.T) {
	for _, c := range []struct {
		name string
		most int
		full string // what each look at an earlier unit finds
		want string // of the units one by one: huge ones and others
	}{
		{"who fills all", 4, "yyyyy", ".h.hh.hhhh.hhhh."},
		{"who fills none", 4, "nnnnnnnn", "........."},
		{"who stops filling begins again", 4, "yynyy", ".h.hh..h.hh."},
		{"where none may be lent", 0, "yyyy", "....."},
	} {
		looks := c.full
		tr := trust{most: c.most}
		got := ""
		for i := range c.want {
			u := piece{start: hostarch.Addr(i * unit)}
			if tr.lend(u, func(piece) bool {
				if looks == "" {
					t.Fatalf("%s: it looked too often", c.name)
				}
				full := looks[0] == 'y'
				looks = looks[1:]
				return full
			}) {
				got += "h"
			} else {
				got += "."
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, not %s", c.name, got, c.want)
		}
	}
}

// What a program gives back is looked at before it is gone.
func TestAUnitIsLookedAtBeforeItIsUnmapped(t *testing.T) {
	full := func(piece) bool { return true }
	tr := trust{most: 4}
	tr.lend(piece{start: 4 * unit, end: 5 * unit}, full)
	tr.forget(0, 4*unit, func(piece) bool { t.Error("it looked at what stays"); return false })
	tr.forget(5*unit-page, 6*unit, full)
	if !tr.lend(piece{start: 8 * unit, end: 9 * unit}, func(piece) bool { t.Error("it looked twice"); return false }) {
		t.Error("who filled one and gave it back was lent none")
	}
}

func TestWhatMayBeLentIsAPartOfTheMemory(t *testing.T) {
	for memory, want := range map[int64]int{64 << 20: 0, 128 << 20: 1, 1 << 30: 8, 4 << 30: 32, 1 << 40: 32} {
		if got := HugePagesAhead(memory); got != want {
			t.Errorf("%d MiB: %d units, not %d", memory>>20, got, want)
		}
	}
}

func TestAUnitBecomesAHugePageAndKeepsItsBytes(t *testing.T) {
	sandboxtest.Require(t, "linux", HugePagesWork(), "this kernel makes no huge pages of memory files")
	f, w := memoryFile(t, 4*unit), newWindow()
	defer w.release()
	there := func(u piece) int {
		defer w.hide()
		if !w.show(f.FD(), u.offset) {
			t.Fatal("it cannot be looked at")
		}
		return w.there()
	}
	first, second, third := piece{file: f, offset: 0}, piece{file: f, offset: unit}, piece{file: f, offset: 2 * unit}
	if _, err := unix.Pwrite(f.FD(), []byte("kept"), unit+5*page); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Pwrite(f.FD(), make([]byte, unit/2), 2*unit); err != nil {
		t.Fatal(err)
	}
	for _, u := range []piece{first, second, third} {
		w.fill(u)
	}
	if there(first) != pages || there(second) != pages {
		t.Errorf("%d and %d pages of them are there", there(first), there(second))
	}
	if n := there(third); n != pages/2 {
		t.Errorf("one that was half there was copied: %d pages", n)
	}
	if !w.full(first) || w.full(third) {
		t.Error("what is full is not told from what is not")
	}
	got := make([]byte, 4)
	if _, err := unix.Pread(f.FD(), got, unit+5*page); err != nil || string(got) != "kept" {
		t.Errorf("it had %q, %v", got, err)
	}
	if n := there(piece{file: f, offset: 3 * unit}); n != 0 {
		t.Errorf("%d pages of its neighbour are there", n)
	}
}

// Only units that may be written, whole and at an address that fits are touched.
func TestOnlyWholeUnitsBecomeHuge(t *testing.T) {
	sandboxtest.Require(t, "linux", HugePagesWork(), "this kernel makes no huge pages of memory files")
	f, w := memoryFile(t, 16*unit), newWindow()
	defer w.release()
	s := &space{AddressSpace: &shown{pages: map[hostarch.Addr]string{}}, window: w, trust: trust{most: 100, lent: 50, left: 100}}
	for _, c := range []struct {
		name           string
		start          hostarch.Addr
		offset, length uint64
		access         hostarch.AccessType
		want           int // units that are there afterwards
	}{
		{"read-only", 0, 0, 2 * unit, hostarch.Read, 0},
		{"at an address that does not fit", 10*unit + page, 0, 2 * unit, hostarch.ReadWrite, 0},
		{"less than one", 20 * unit, 0, unit - page, hostarch.ReadWrite, 0},
		{"two between two parts", 31*unit - page, unit - page, 2*unit + 2*page, hostarch.ReadWrite, 2},
	} {
		if err := s.MapFile(c.start, f, memmap.FileRange{Start: c.offset, End: c.offset + c.length}, c.access, false); err != nil {
			t.Fatal(err)
		}
		n := 0
		for u := range uint64(16) {
			if w.full(piece{file: f, offset: u * unit}) {
				n++
			}
		}
		if n != c.want {
			t.Errorf("%s: %d units", c.name, n)
		}
	}
}
