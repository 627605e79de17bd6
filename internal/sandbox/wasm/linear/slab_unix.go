//go:build unix

package linear

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapChunk takes room for a chunk, aligned so that it can be one large page.
func mapChunk(large bool) ([]byte, error) {
	all, err := unix.MmapPtr(-1, 0, nil, 2*chunkBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, err
	}
	before := -uintptr(all) & (chunkBytes - 1)
	room := unsafe.Add(all, before)
	// It can only fail for what is not mapped.
	if before > 0 {
		_ = unix.MunmapPtr(all, before)
	}
	_ = unix.MunmapPtr(unsafe.Add(room, chunkBytes), chunkBytes-before)
	b := unsafe.Slice((*byte)(room), chunkBytes)
	if large {
		preferLargePages(b)
	}
	return b, nil
}

func unmapChunk(room []byte) {
	_ = unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(room)), chunkBytes) // it is mapped
}

// offerChunk lets the system take the memory until it is written again.
func offerChunk(room []byte) {
	_ = unix.Madvise(room, unix.MADV_FREE) // else it stays
}
