package image

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// syncAll waits until all that was written into a folder is on the disk. One
// syncfs takes less than an fsync for each file; it also writes what others have
// written on the same file system.
func syncAll(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}

// link makes a second name, in another folder, of what is called base in one. A
// link is linked itself.
func link(from, to *os.File, base string) error {
	return unix.Linkat(int(from.Fd()), base, int(to.Fd()), base, 0)
}
