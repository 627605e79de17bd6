//go:build !linux

package linear

// marks is nothing here.
type marks struct{}

// Marks tells whether the system can tell what was written since a Mark.
func Marks() bool { return false }

// Mark begins again what Changed tells: here it does nothing.
func (m *Memory) Mark() {}

// MarkBut is Mark but for some pages: here it does nothing.
func (m *Memory) MarkBut([]uint32) {}

// Unmark ends what Mark began: here it does nothing.
func (m *Memory) Unmark() {}

// Changed appends the numbers of the pages that may have been written since
// the last Mark, in ascending order: here these are Dirty's.
func (m *Memory) Changed(pages []uint32) ([]uint32, error) { return m.Dirty(pages) }

// Renew is Changed and then Mark.
func (m *Memory) Renew(pages []uint32) ([]uint32, error) { return m.Changed(pages) }
