//go:build !unix

package linear

import (
	"fmt"
	"io"
)

func (m *Memory) reserve() error {
	m.all = make([]byte, max(m.limit, PageSize))
	if m.image != nil {
		copy(m.all, m.image.base)
	}
	return nil
}

// Free gives the memory back. It works twice.
func (m *Memory) Free() { m.all, m.length = nil, 0 }

func (img *Image) prepare() error { return img.load() }

func (img *Image) load() error {
	img.base = make([]byte, img.Bytes)
	if _, err := img.file.ReadAt(img.base, headRoom); err != nil && err != io.EOF {
		return fmt.Errorf("reading it: %w", err)
	}
	return nil
}

// Dirty appends the numbers of the pages that may differ from the image.
func (m *Memory) Dirty(pages []uint32) ([]uint32, error) { return m.compare(pages), nil }

// Prepare opens what Dirty needs: nothing here.
func Prepare() error { return nil }
