//go:build !unix

package linear

import (
	"errors"
	"fmt"
	"io"
)

func (m *Memory) reserve() error {
	if m.guard > 0 {
		return errors.ErrUnsupported
	}
	m.all = make([]byte, max(m.limit, PageSize))
	if m.image != nil {
		copy(m.all, m.image.base)
	}
	return nil
}

// open is for a guarded reservation: there is none here.
func (m *Memory) open(uint64, uint64) error { return errors.ErrUnsupported }

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

// spares are memories that can be used again: none here.
type spares struct{}

func (*spares) drop() {}
