package linear

import "golang.org/x/sys/unix"

// Expect tells that so many pages from number n on are about to be written: the
// system makes room for them at once, which takes half of what it takes page by
// page.
func (m *Memory) Expect(n, count uint32) {
	at := uint64(n) * PageSize
	// A kernel that cannot do it, before 5.14, makes room when they are written.
	_ = unix.Madvise(m.all[at:at+uint64(count)*PageSize], unix.MADV_POPULATE_WRITE)
}
