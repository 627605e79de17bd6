package linear

import "golang.org/x/sys/unix"

// Expect tells that so many pages from number n on are about to be written: the
// system makes room for them at once, which takes half of what it takes page by
// page.
func (m *Memory) Expect(n, count uint32) {
	// A kernel that cannot do it, before 5.14, makes room when they are written.
	_ = unix.Madvise(m.Pages(n, int(count)), unix.MADV_POPULATE_WRITE)
}

// largePage is the system's, where it has such at all.
const largePage = 2 << 20

// Fill tells of a memory that nobody has written to yet that all of so many pages
// from number n on will be: where a large page has room among them they become one,
// which takes a tenth of the time and no more memory.
func (m *Memory) Fill(n, count uint32) {
	from, to := uint64(n)*PageSize, uint64(n+count)*PageSize
	if m.image != nil {
		from = max(from, m.image.Bytes) // what is mapped from a file has none
	}
	base := uint64(uintptr(m.Base()))
	first, end := (base+from+largePage-1)&^(largePage-1), (base+to)&^(largePage-1)
	if first < end {
		preferLargePages(m.all[first-base : end-base])
	}
}
