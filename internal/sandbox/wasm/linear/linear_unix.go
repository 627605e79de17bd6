//go:build unix

package linear

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reserve maps the whole limit, which costs address space and nothing else
// until it is written, and the image over its beginning.
func (m *Memory) reserve() error {
	size, protection := max(m.limit, PageSize), unix.PROT_READ|unix.PROT_WRITE
	if m.guard > 0 {
		size, protection = m.guard, unix.PROT_NONE
	}
	if m.image != nil {
		if all, ok := m.image.spares.take(size, m.guard > 0); ok {
			m.all = unsafe.Slice((*byte)(all), size)[:max(m.limit, PageSize)]
			return nil
		}
	}
	all, err := unix.MmapPtr(-1, 0, nil, uintptr(size), protection, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return fmt.Errorf("reserving %d bytes: %w", size, err)
	}
	m.all = unsafe.Slice((*byte)(all), size)[:max(m.limit, PageSize)]
	if m.image == nil || m.image.Bytes == 0 {
		return nil
	}
	_, err = unix.MmapPtr(int(m.image.file.Fd()), headRoom, all, uintptr(m.image.Bytes),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_FIXED|unix.MAP_NORESERVE)
	if err != nil {
		m.unmap(size)
		return fmt.Errorf("mapping the image: %w", err)
	}
	return nil
}

// open makes a part of a guarded reservation usable.
func (m *Memory) open(from, to uint64) error {
	return unix.Mprotect(m.all[from:to], unix.PROT_READ|unix.PROT_WRITE)
}

// Free gives the memory back. It works twice.
func (m *Memory) Free() {
	if m.all == nil {
		return
	}
	if size := max(m.limit, PageSize, m.guard); !m.spare(size) {
		m.unmap(size)
	}
	m.all, m.length = nil, 0
}

func (m *Memory) unmap(size uint64) {
	// It can only fail for an address that is not mapped.
	_ = unix.MunmapPtr(m.Base(), uintptr(size))
	m.all, m.length = nil, 0
}

// loadBase maps the image a second time, shared and read-only, for comparing.
func (img *Image) loadBase() error {
	img.loading.Lock()
	defer img.loading.Unlock()
	if img.Bytes == 0 || img.base != nil {
		return nil
	}
	base, err := unix.Mmap(int(img.file.Fd()), headRoom, int(img.Bytes), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mapping it: %w", err)
	}
	img.base = base
	return nil
}
