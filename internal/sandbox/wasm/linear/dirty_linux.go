package linear

import (
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

// Prepare opens what Dirty and Mark need.
func Prepare() {
	pagemap()
	tracker()
}

// exactDirty tells whether Dirty names every page that was written.
func exactDirty() bool { return pagemap() != nil }

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
// those written since it was mapped. The kernel tells, in one call; where it
// does not, they are compared.
func (m *Memory) Dirty(pages []uint32) (dirty []uint32, err error) {
	defer func() { m.own = len(dirty) - len(pages) }()
	if pagemap() == nil {
		return m.compare(pages), nil
	}
	if dirty, err := m.scan(ownPages(false), 0, m.length, pages); err == nil {
		return dirty, nil
	}
	return m.readMap(pages)
}

// readMap is Dirty for a kernel that cannot search its page maps.
func (m *Memory) readMap(pages []uint32) ([]uint32, error) {
	f := pagemap()
	system := uint64(os.Getpagesize())
	first := uint64(uintptr(unsafe.Pointer(&m.all[0]))) / system
	count := (m.length + system - 1) / system
	per := uint32(system / PageSize)
	var entries [1024]uint64
	for at := uint64(0); at < count; at += uint64(len(entries)) {
		part := entries[:min(count-at, uint64(len(entries)))]
		if _, err := f.ReadAt(unsafe.Slice((*byte)(unsafe.Pointer(&part[0])), 8*len(part)), int64((first+at)*8)); err != nil {
			return nil, fmt.Errorf("reading the page map: %w", err)
		}
		for i, e := range part {
			if e&(present|swapped) == 0 || e&shared != 0 {
				continue
			}
			for k := range per {
				pages = append(pages, (uint32(at)+uint32(i))*per+k)
			}
		}
	}
	return pages, nil
}
