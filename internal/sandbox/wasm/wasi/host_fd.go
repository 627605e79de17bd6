package wasi

import "encoding/binary"

// OpenMode says how OpenFile opens.
type OpenMode struct{ Read, Write, Append, Create, Exclusive, Truncate bool }

// OpenFile opens a file and gives its descriptor, which is one of the guest's
// own: it counts to its limit and is kept with its state.
func (s *System) OpenFile(path string, mode OpenMode) (fd uint32, err error) {
	m := &scratch{system: s}
	var opening, rights, flags uint64
	for _, bit := range []struct {
		on   bool
		to   *uint64
		bits uint64
	}{
		{mode.Read, &rights, hostReads}, {mode.Write, &rights, hostWrites}, {mode.Append, &flags, appending},
		{mode.Create, &opening, openCreate}, {mode.Exclusive, &opening, openExclusive}, {mode.Truncate, &opening, openTruncate},
	} {
		if bit.on {
			*bit.to |= bit.bits
		}
	}
	n, err := m.open(path, opening, rights, flags)
	return uint32(n), err
}

// CloseFD closes a descriptor.
func (s *System) CloseFD(fd uint32) error {
	return (&scratch{system: s}).call("fd_close", uint64(fd))
}

// ReadFD reads up to n bytes at offset, or where the descriptor is when that
// is negative. Nothing read is the file's end.
func (s *System) ReadFD(fd uint32, n int, offset int64) ([]byte, error) {
	m := &scratch{system: s}
	at, count, err := m.piece("fd_read", "fd_pread", fd, make([]byte, n), offset)
	if err != nil {
		return nil, err
	}
	return m.memory[at : at+uint64(count)], nil
}

// WriteFD writes b at offset, or where the descriptor is when that is
// negative, and tells how much of it was written.
func (s *System) WriteFD(fd uint32, b []byte, offset int64) (int, error) {
	m := &scratch{system: s}
	_, count, err := m.piece("fd_write", "fd_pwrite", fd, b, offset)
	return count, err
}

// piece makes one call that moves one piece of data.
func (m *scratch) piece(here, there string, fd uint32, data []byte, offset int64) (at uint64, count int, err error) {
	at = m.room(len(data))
	copy(m.memory[at:], data)
	vector, moved := m.room(8), m.room(4)
	binary.LittleEndian.PutUint32(m.memory[vector:], uint32(at))
	binary.LittleEndian.PutUint32(m.memory[vector+4:], uint32(len(data)))
	if offset < 0 {
		err = m.call(here, uint64(fd), vector, 1, moved)
	} else {
		err = m.call(there, uint64(fd), vector, 1, uint64(offset), moved)
	}
	return at, int(binary.LittleEndian.Uint32(m.memory[moved:])), err
}

// SizeFD is how long an open file is, TruncateFD makes it that long.
func (s *System) SizeFD(fd uint32) (int64, error) {
	m := &scratch{system: s}
	at := m.room(64)
	err := m.call("fd_filestat_get", uint64(fd), at)
	return int64(binary.LittleEndian.Uint64(m.memory[at+32:])), err
}

func (s *System) TruncateFD(fd uint32, size int64) error {
	return (&scratch{system: s}).call("fd_filestat_set_size", uint64(fd), uint64(size))
}
