package blob

import (
	"os"

	"golang.org/x/sys/unix"
)

// datasync syncs a file's content and its size. A signal may end it early.
func datasync(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if err != unix.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
