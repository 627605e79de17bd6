package linear

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel's search through a page map (linux/fs.h, since 6.7).
const (
	pagemapScan = 0xc0606610 // _IOWR('f', 16, struct pm_scan_arg)

	scanArm       = 1 << 0 // write-protect what is found
	scanOnlyArmed = 1 << 1 // fail where that cannot be done

	isWritten = 1 << 1 // not write-protected, or written since
	isFile    = 1 << 2 // the page is the file's own
	isPresent = 1 << 3
	isSwapped = 1 << 4
	isZeros   = 1 << 5 // the page of zeros that all share
)

// query is struct pm_scan_arg.
type query struct {
	size, flags           uint64
	start, end, walkEnd   uint64
	regions, regionCount  uint64
	maxPages              uint64
	inverted, mask, anyOf uint64 // categories: what counts as its contrary, what a page must be, of what it must be one
	answer                uint64 // of which categories the regions shall tell
}

// region is struct page_region.
type region struct{ start, end, categories uint64 }

// ownPages are those that a private mapping has for itself; with written set
// only those of them that were not armed, or written since.
func ownPages(written bool) query {
	q := query{inverted: isFile | isZeros, mask: isFile | isZeros, anyOf: isPresent | isSwapped, answer: isPresent}
	if written {
		q.mask |= isWritten
	}
	return q
}

// regionsAtOnce is how many runs of pages the kernel tells in one call.
const regionsAtOnce = 256

// scan appends the numbers of the pages between two addresses of the memory
// for which q, one of ownPages, holds.
func (m *Memory) scan(q query, from, to uint64, pages []uint32) ([]uint32, error) {
	if m.image != nil && from < m.image.Bytes {
		end := min(to, m.image.Bytes)
		found, err := m.search(q, from, end, pages)
		if err != nil || end == to {
			return found, err
		}
		from, pages = end, found
	}
	// What lies beyond the image is not a file's. Not to ask saves the kernel a look at
	// each page's own record, which is most of what it does.
	q.inverted &^= isFile
	q.mask &^= isFile
	return m.search(q, from, to, pages)
}

// search is scan for what lies in the image, or beyond it.
func (m *Memory) search(q query, from, to uint64, pages []uint32) ([]uint32, error) {
	f := pagemap()
	if f == nil {
		return pages, errors.ErrUnsupported
	}
	if m.found == nil {
		m.found = make([]region, regionsAtOnce)
	}
	base := uint64(uintptr(m.Base()))
	q.size, q.start, q.end = uint64(unsafe.Sizeof(q)), base+from, base+to
	q.regions, q.regionCount = uint64(uintptr(unsafe.Pointer(&m.found[0]))), uint64(len(m.found)) // on the heap, where it stays
	for q.start < q.end {
		n, err := ioctl(int(f.Fd()), pagemapScan, unsafe.Pointer(&q))
		if err != nil {
			return pages, fmt.Errorf("searching the page map: %w", err)
		}
		for _, r := range m.found[:n] {
			for at := r.start - base; at < r.end-base; at += PageSize {
				pages = append(pages, uint32(at/PageSize))
			}
		}
		if q.walkEnd <= q.start {
			return pages, fmt.Errorf("searching the page map: it did not go on from %#x", q.start)
		}
		q.start = q.walkEnd
	}
	runtime.KeepAlive(m)
	return pages, nil
}

func ioctl(fd int, request uintptr, argument unsafe.Pointer) (int, error) {
	n, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(argument))
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}
