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

// loadBase reads the image, for copying and comparing.
func (img *Image) loadBase() error {
	img.base = make([]byte, img.Bytes)
	if _, err := img.file.ReadAt(img.base, headRoom); err != nil && err != io.EOF {
		return fmt.Errorf("reading it: %w", err)
	}
	return nil
}
