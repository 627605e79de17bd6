//go:build !linux

package linear

// Expect tells that so many pages from number n on are about to be written.
// Here that changes nothing.
func (m *Memory) Expect(n, count uint32) {}

// Fill tells of a memory that nobody has written to yet that all of so many pages
// from number n on will be. Here that changes nothing.
func (m *Memory) Fill(n, count uint32) {}
