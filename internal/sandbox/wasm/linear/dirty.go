package linear

import "bytes"

// compare appends the numbers of the pages that differ from the image, by
// looking at each. A page that was written and is again what it was counts as
// unwritten, which is as good.
func (m *Memory) compare(pages []uint32) []uint32 {
	var base []byte
	if m.image != nil {
		base = m.image.base
	}
	for n := uint32(0); uint64(n)*PageSize < m.length; n++ {
		page, at := m.Page(n), int(n)*PageSize
		if at < len(base) && bytes.Equal(page, base[at:at+PageSize]) || at >= len(base) && isZero(page) {
			continue
		}
		pages = append(pages, n)
	}
	return pages
}
