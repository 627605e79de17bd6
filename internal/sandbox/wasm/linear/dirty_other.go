//go:build !linux

package linear

// Prepare opens what Dirty needs: nothing here.
func Prepare() {}

// exactDirty tells whether Dirty names every page that was written.
func exactDirty() bool { return false }

func (img *Image) prepare() error { return img.loadBase() }

// Dirty appends the numbers of the pages that differ from the image.
func (m *Memory) Dirty(pages []uint32) ([]uint32, error) { return m.compare(pages), nil }
