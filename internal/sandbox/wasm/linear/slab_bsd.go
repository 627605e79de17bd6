//go:build unix && !linux

package linear

// preferLargePages is for systems that have to be asked.
func preferLargePages([]byte) {}
