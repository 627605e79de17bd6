package linear

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"unsafe"
)

// pagemap is this process's, or nil where the system does not show it. It has
// to be open before the process gives up the right to open files.
var pagemap = sync.OnceValue(func() *os.File {
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return nil
	}
	return f
})

// Prepare opens what Dirty needs.
func Prepare() { pagemap() }

// prepare loads what compare needs, where it is needed.
func (img *Image) prepare() error {
	if pagemap() != nil {
		return nil
	}
	return img.loadBase()
}

// What an entry of the page map says, from the kernel's pagemap.rst.
const (
	present = 1 << 63
	swapped = 1 << 62
	shared  = 1 << 61 // the page is the file's own, or shared
)

// Dirty appends the numbers of the pages that this mapping has of its own:
// those written since it was mapped. The kernel tells, in one read; where it
// does not, they are compared.
func (m *Memory) Dirty(pages []uint32) ([]uint32, error) {
	f := pagemap()
	if f == nil {
		return m.compare(pages), nil
	}
	system := uint64(os.Getpagesize())
	first := uint64(uintptr(unsafe.Pointer(&m.all[0]))) / system
	entries := make([]byte, (m.length+system-1)/system*8)
	if _, err := f.ReadAt(entries, int64(first*8)); err != nil {
		return nil, fmt.Errorf("reading the page map: %w", err)
	}
	per := uint32(system / PageSize)
	for i := 0; i < len(entries); i += 8 {
		e := binary.NativeEndian.Uint64(entries[i:])
		if e&(present|swapped) == 0 || e&shared != 0 {
			continue
		}
		for k := range per {
			pages = append(pages, uint32(i/8)*per+k)
		}
	}
	return pages, nil
}
