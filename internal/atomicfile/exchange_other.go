//go:build !linux

package atomicfile

import "os"

// exchange gives the first file the other's name.
func exchange(from, to string) error { return os.Rename(from, to) }
