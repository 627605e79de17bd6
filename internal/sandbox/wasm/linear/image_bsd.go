//go:build unix && !linux

package linear

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// prepare maps the image a second time, for comparing.
func (img *Image) prepare() error {
	if img.Bytes == 0 {
		return nil
	}
	base, err := unix.Mmap(int(img.file.Fd()), headRoom, int(img.Bytes), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mapping it: %w", err)
	}
	img.base = base
	return nil
}

// Dirty appends the numbers of the pages that may differ from the image.
func (m *Memory) Dirty(pages []uint32) ([]uint32, error) { return m.compare(pages), nil }

// Prepare opens what Dirty needs: nothing here.
func Prepare() error { return nil }
