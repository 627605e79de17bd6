//go:build linux && (amd64 || arm64)

package gvisorfix

import (
	"slices"
	"sync"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/pkg/sentry/platform"
)

// space is the address space of one process.
type space struct {
	platform.AddressSpace
	window *window

	// mu is held while the space is changed, so that mapped follows it.
	mu     sync.Mutex
	mapped mapped
	trust  trust
}

// MapFile implements platform.AddressSpace. gVisor asks for all that belongs
// together when one page of it is missing, and with pages that are there already,
// which the kernel would take away and have faulted in again, one by one. So only
// what is missing is mapped. Where nothing is, everything is mapped once more, as
// whoever asks has seen a fault.
func (s *space) MapFile(addr hostarch.Addr, file memmap.File, at memmap.FileRange, access hostarch.AccessType, precommit bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	memory, ok := file.(*pgalloc.MemoryFile)
	if !ok || precommit || memory.IsDiskBacked() {
		s.mapped.remove(addr, addr+hostarch.Addr(at.Length()))
		return s.AddressSpace.MapFile(addr, file, at, access, precommit)
	}
	wanted := piece{start: addr, end: addr + hostarch.Addr(at.Length()), file: memory, offset: at.Start, access: access}
	missing := s.mapped.missing(wanted)
	if len(missing) == 0 {
		missing = []piece{wanted}
	}
	for _, p := range missing {
		s.mapped.remove(p.start, p.end)
		s.prepare(p)
		if err := s.AddressSpace.MapFile(p.start, file, p.at(), access, false); err != nil {
			return err
		}
		s.mapped.add(p)
	}
	return nil
}

// Unmap implements platform.AddressSpace.
func (s *space) Unmap(addr hostarch.Addr, length uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	end := addr + hostarch.Addr(length)
	s.mapped.remove(addr, end)
	if s.window != nil {
		s.trust.forget(addr, end, s.window.full)
	}
	s.AddressSpace.Unmap(addr, length)
}

// piece is a range of addresses that shows a range of a file.
type piece struct {
	start, end hostarch.Addr
	file       *pgalloc.MemoryFile
	offset     uint64 // of start
	access     hostarch.AccessType
}

// at is the range of the file.
func (p piece) at() memmap.FileRange {
	return memmap.FileRange{Start: p.offset, End: p.offset + uint64(p.end-p.start)}
}

// part is what of it is from start to end.
func (p piece) part(start, end hostarch.Addr) piece {
	p.offset += uint64(start - p.start)
	p.start, p.end = start, end
	return p
}

// sees tells whether both show the same at an address that both have.
func (p piece) sees(q piece) bool {
	return p.file == q.file && p.access == q.access && p.offset-uint64(p.start) == q.offset-uint64(q.start)
}

// maxPieces bounds what is remembered of one process: 200 KiB.
const maxPieces = 4096

// mapped are the pieces that are known to be mapped, in order; there may be more.
type mapped []piece

// first is the index of the first piece that ends after an address.
func (m mapped) first(addr hostarch.Addr) int {
	i, _ := slices.BinarySearchFunc(m, addr, func(p piece, addr hostarch.Addr) int {
		if p.end <= addr {
			return -1
		}
		return 1
	})
	return i
}

// missing is what of a piece is not mapped as it wants to be, in order.
func (m mapped) missing(p piece) []piece {
	var all []piece
	at := p.start
	for _, q := range m[m.first(p.start):] {
		if q.start >= p.end {
			break
		}
		if !q.sees(p) {
			continue
		}
		if q.start > at {
			all = append(all, p.part(at, q.start))
		}
		at = q.end
	}
	if at < p.end {
		all = append(all, p.part(at, p.end))
	}
	return all
}

// remove forgets what is from start to end.
func (m *mapped) remove(start, end hostarch.Addr) {
	i := m.first(start)
	j := i
	var left []piece
	for ; j < len(*m) && (*m)[j].start < end; j++ {
		if q := (*m)[j]; q.start < start {
			left = append(left, q.part(q.start, start))
		}
		if q := (*m)[j]; q.end > end {
			left = append(left, q.part(end, q.end))
		}
	}
	if i < j {
		*m = slices.Replace(*m, i, j, left...)
	}
}

// add remembers a piece, of which nothing is known to be mapped.
func (m *mapped) add(p piece) {
	i := m.first(p.start)
	if i < len(*m) && (*m)[i].start == p.end && (*m)[i].sees(p) {
		p.end = (*m)[i].end
		*m = slices.Delete(*m, i, i+1)
	}
	if i > 0 && (*m)[i-1].end == p.start && (*m)[i-1].sees(p) {
		(*m)[i-1].end = p.end
		return
	}
	if len(*m) >= maxPieces {
		*m, i = nil, 0
	}
	*m = slices.Insert(*m, i, p)
}
