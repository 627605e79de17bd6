package atomicfile

import (
	"os"

	"golang.org/x/sys/unix"
)

// exchange swaps the names of two files. Where one is not there, or the file system cannot
// do it, the first gets the other's name.
func exchange(from, to string) error {
	if unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE) == nil {
		return nil
	}
	return os.Rename(from, to)
}
