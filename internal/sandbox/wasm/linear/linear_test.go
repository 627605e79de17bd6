package linear

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// writeImage puts an image of two wasm pages into a fresh folder: zeros, but
// for the pages given, which are filled with their number.
func writeImage(t *testing.T, filled ...byte) string {
	t.Helper()
	memory := make([]byte, 2*wasmPage)
	for _, n := range filled {
		fill(memory[int(n)*PageSize:][:PageSize], n)
	}
	path := filepath.Join(t.TempDir(), "image")
	if err := Write(path, memory, Notes{StackPointer: 7, State: []uint64{1, 2}}); err != nil {
		t.Fatal(err)
	}
	return path
}

func fill(page []byte, b byte) {
	for i := range page {
		page[i] = b
	}
}

func openImage(t *testing.T, path string) *Image {
	t.Helper()
	img, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func newMemory(t *testing.T, img *Image, limit uint64) *Memory {
	t.Helper()
	m, err := New(img, limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Free)
	return m
}

func TestAnImageIsWhatWasWritten(t *testing.T) {
	img := openImage(t, writeImage(t, 1, 17))
	if img.Bytes != 2*wasmPage || img.StackPointer != 7 || !slices.Equal(img.State, []uint64{1, 2}) {
		t.Errorf("the notes are %+v", img.Notes)
	}
	m := newMemory(t, img, 4*wasmPage)
	for n := range uint32(2 * wasmPage / PageSize) {
		want := byte(0)
		if n == 1 || n == 17 {
			want = byte(n)
		}
		if page := m.Page(n); page[0] != want || page[PageSize-1] != want {
			t.Errorf("page %d begins with %d and ends with %d", n, page[0], page[PageSize-1])
		}
	}
}

func TestMemoriesOfOneImageShareNothing(t *testing.T) {
	path := writeImage(t, 1)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	img := openImage(t, path)
	var wg sync.WaitGroup
	for who := range byte(8) {
		wg.Go(func() {
			m, err := New(img, 4*wasmPage)
			if err != nil {
				t.Error(err)
				return
			}
			defer m.Free()
			for n := range uint32(m.length / PageSize) {
				fill(m.Page(n), 100+who)
			}
			for i, b := range m.Bytes() {
				if b != 100+who {
					t.Errorf("memory %d holds %d at %d", who, b, i)
					return
				}
			}
		})
	}
	wg.Wait()
	after, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the image was changed (%v)", err)
	}
	if page := newMemory(t, img, 4*wasmPage).Page(1); page[0] != 1 {
		t.Errorf("a later memory begins with %d", page[0])
	}
}

func TestGrowthIsZerosAndEndsAtTheLimit(t *testing.T) {
	m := newMemory(t, openImage(t, writeImage(t, 1)), 3*wasmPage+5)
	grown := m.Reallocate(3 * wasmPage)
	if len(grown) != 3*wasmPage || cap(grown) != 3*wasmPage {
		t.Fatalf("it grew to %d of %d bytes", len(grown), cap(grown))
	}
	if !isZero(grown[2*wasmPage:]) || grown[PageSize] != 1 {
		t.Error("growing changed what was there, or gave more than zeros")
	}
	if m.Refused() {
		t.Error("nothing was refused yet")
	}
	if m.Reallocate(4*wasmPage) != nil || !m.Refused() || m.Refused() {
		t.Error("growing beyond the limit is refused, and told once")
	}
	if len(m.Bytes()) != 3*wasmPage {
		t.Errorf("after the refusal it has %d bytes", len(m.Bytes()))
	}
}

func TestALimitBelowTheImageIsRefused(t *testing.T) {
	if _, err := New(openImage(t, writeImage(t)), wasmPage); err == nil {
		t.Error("an image of two pages was mapped into one")
	}
}

// Both ways of finding the pages have to find the same; only the kernel's may
// also name a page that was written with what it held.
func TestDirtyFindsWhatWasWritten(t *testing.T) {
	img := openImage(t, writeImage(t, 1, 17))
	if img.base == nil {
		if err := img.loadBase(); err != nil {
			t.Fatal(err)
		}
	}
	m := newMemory(t, img, 4*wasmPage)
	dirty := func() []uint32 {
		pages, err := m.Dirty(nil)
		if err != nil {
			t.Fatal(err)
		}
		return pages
	}
	ways := []struct {
		name  string
		pages func() []uint32
	}{
		{"Dirty", dirty}, // before compare, which reads: zeros that were read count as well
		{"compare", func() []uint32 { return m.compare(nil) }},
	}
	check := func(when string, want ...uint32) {
		t.Helper()
		for _, way := range ways {
			name, got := way.name, way.pages()
			per := max(1, os.Getpagesize()/PageSize) // a larger page of the system is dirty as a whole
			if per == 1 && !slices.Equal(got, want) {
				t.Errorf("%s: %s finds %v, not %v", when, name, got, want)
			}
			for _, n := range want {
				if !slices.Contains(got, n) {
					t.Errorf("%s: %s does not find %d", when, name, n)
				}
			}
		}
	}
	_ = m.Page(1)[0] // reading is not writing
	check("fresh")
	m.Page(1)[PageSize-1]++
	m.Page(20)[0] = 1
	check("written", 1, 20)
	m.Reallocate(3 * wasmPage)
	m.Page(2*wasmPage/PageSize + 3)[8] = 1
	check("grown", 1, 20, 2*wasmPage/PageSize+3)
}

func TestDirtyOfAMemoryWithoutAnImage(t *testing.T) {
	m := newMemory(t, nil, 2*wasmPage)
	m.Reallocate(wasmPage)
	m.Page(2)[0] = 1
	pages, err := m.Dirty(nil)
	if err != nil || !slices.Contains(pages, 2) {
		t.Errorf("%v, %v", pages, err)
	}
	m.Free()
	m.Free()
}

func TestADamagedImageIsRefused(t *testing.T) {
	whole, err := os.ReadFile(writeImage(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	damage := map[string]func(b []byte) []byte{
		"empty":           func([]byte) []byte { return nil },
		"cut in its head": func(b []byte) []byte { return b[:headRoom-1] },
		"cut":             func(b []byte) []byte { return b[:len(b)-1] },
		"too long":        func(b []byte) []byte { return append(b, 0) },
		"another version": func(b []byte) []byte { b[len(magic)-2]++; return b },
		"notes that are too long": func(b []byte) []byte {
			b[len(magic)+3] = 0xff
			return b
		},
		"notes that are no JSON": func(b []byte) []byte { b[len(magic)+4] = '!'; return b },
	}
	for name, change := range damage {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "image")
			if err := os.WriteFile(path, change(bytes.Clone(whole)), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(path); err == nil {
				t.Error("it was opened")
			}
		})
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !os.IsNotExist(err) {
		t.Errorf("an image that is not there: %v", err)
	}
}

func TestAnImageAppearsWholeOrNotAtAll(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "image")
	if err := Write(path, make([]byte, wasmPage), Notes{State: make([]uint64, headRoom)}); err == nil {
		t.Error("notes beyond the head were written")
	}
	if err := Write(filepath.Join(dir, "none", "image"), make([]byte, wasmPage), Notes{}); err == nil {
		t.Error("an image was written into a folder that is not there")
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 0 {
		t.Errorf("left behind: %v (%v)", names, err)
	}
}

func TestAGuardedMemoryGrowsWithinItsReservation(t *testing.T) {
	for name, img := range map[string]*Image{"of an image": openImage(t, writeImage(t, 1)), "of nothing": nil} {
		t.Run(name, func(t *testing.T) {
			m, err := NewGuarded(img, 4*wasmPage, 1<<30)
			if errors.Is(err, errors.ErrUnsupported) {
				t.Skip("not on this system")
			}
			if err != nil {
				t.Fatal(err)
			}
			defer m.Free()
			base := m.Base()
			for size := uint64(2 * wasmPage); size <= 4*wasmPage; size += wasmPage {
				grown := m.Reallocate(size)
				if uint64(len(grown)) != size || m.Base() != base {
					t.Fatalf("it grew to %d", len(grown))
				}
				grown[size-1] = 1
			}
			if m.Reallocate(5*wasmPage) != nil || m.Room() != 0 {
				t.Error("it grew beyond its limit")
			}
			if img != nil && m.Page(1)[0] != 1 {
				t.Error("the image is not there")
			}
		})
	}
}

func TestADigestNamesAMemoryAndItsNotes(t *testing.T) {
	digest := func(memory []byte, notes Notes) string {
		path := filepath.Join(t.TempDir(), "image")
		if err := Write(path, memory, notes); err != nil {
			t.Fatal(err)
		}
		return openImage(t, path).Digest
	}
	memory, notes := make([]byte, wasmPage), Notes{StackPointer: 7, State: []uint64{1, 2}}
	one := digest(memory, notes)
	if len(one) != 64 || digest(bytes.Clone(memory), notes) != one {
		t.Errorf("it is %q, and another one for the same", one)
	}
	other := bytes.Clone(memory)
	other[wasmPage-1] = 1
	for name, got := range map[string]string{
		"a byte":            digest(other, notes),
		"the length":        digest(make([]byte, 2*wasmPage), notes),
		"the stack pointer": digest(memory, Notes{StackPointer: 8, State: notes.State}),
		"the state":         digest(memory, Notes{StackPointer: 7, State: []uint64{2, 1}}),
		"less state":        digest(memory, Notes{StackPointer: 7, State: []uint64{1}}),
	} {
		if got == one {
			t.Errorf("with %s changed it is the same", name)
		}
	}
}
