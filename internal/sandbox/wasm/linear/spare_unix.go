//go:build unix

package linear

import (
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A fresh mapping is quick to make, but each page that the guest touches then
// costs a fault and a page, twice what the guest does with it. So memories that
// were given back are kept, made again what the image is: a new interpreter
// finds the pages that every program writes already there.

const (
	// mostSpares is how many are kept of an image; one has at most mostUsual
	// pages of its own.
	mostSpares = 8
	mostUsual  = 512
	// mostWritten is with how many written pages a memory is no longer worth it.
	mostWritten = 8192
)

// spares are the memories of one image that can be used again.
type spares struct {
	mu    sync.Mutex // guards what follows
	free  []mapping
	usual []uint32 // the pages that stay in a spare: what a small program wrote
}

// mapping is what a Memory has mapped: size bytes, guarded or not.
type mapping struct {
	base    unsafe.Pointer
	size    uint64
	guarded bool
}

// take gives a mapping like the one that is wanted, if there is one.
func (s *spares) take(size uint64, guarded bool) (unsafe.Pointer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, m := range s.free {
		if m.size == size && m.guarded == guarded {
			s.free = slices.Delete(s.free, i, i+1)
			return m.base, true
		}
	}
	return nil, false
}

// put keeps a mapping that is what take has to give.
func (s *spares) put(m mapping) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) == mostSpares {
		return false
	}
	s.free = append(s.free, m)
	return true
}

// drop gives them all back.
func (s *spares) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.free {
		_ = unix.MunmapPtr(m.base, uintptr(m.size)) // it can only fail for what is not mapped
	}
	s.free = nil
}

// usually tells which pages stay in a spare. The first small program decides.
func (s *spares) usually(written []uint32) []uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.usual == nil && len(written) <= mostUsual {
		s.usual = slices.Clone(written)
	}
	return s.usual
}

// spare makes the memory what a fresh one is and keeps it for the next; where
// that is not worth it, or does not work, it tells so.
func (m *Memory) spare(size uint64) bool {
	if m.image == nil || !exactDirty() || m.image.loadBase() != nil {
		return false
	}
	m.Unmark()
	written, err := m.Dirty(nil)
	if err != nil || len(written) > mostWritten {
		return false
	}
	usual := m.image.spares.usually(written)
	if usual == nil || !m.discard() {
		return false
	}
	for i := 0; i < len(written) && uint64(written[i])*PageSize < m.image.Bytes; i++ {
		n := written[i]
		if _, stays := slices.BinarySearch(usual, n); stays {
			copy(m.Page(n), m.image.base[uint64(n)*PageSize:][:PageSize])
		} else if unix.Madvise(m.Page(n), unix.MADV_DONTNEED) != nil {
			return false
		}
	}
	return m.image.spares.put(mapping{m.Base(), size, m.guard > 0})
}

// discard makes what the memory has beyond the image what it was at first.
func (m *Memory) discard() bool {
	from, to := m.image.Bytes, m.length
	if from >= to {
		return true
	}
	protection := unix.PROT_READ | unix.PROT_WRITE
	if m.guard > 0 {
		protection = unix.PROT_NONE
	}
	_, err := unix.MmapPtr(-1, 0, unsafe.Add(m.Base(), from), uintptr(to-from), protection, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE|unix.MAP_FIXED)
	return err == nil
}
