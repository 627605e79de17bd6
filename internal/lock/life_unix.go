//go:build unix

package lock

import (
	"os"

	"golang.org/x/sys/unix"
)

// inherited tells that a lock belongs to an open file, which children inherit.
const inherited = true

// lockOpen takes the lock of an open file, if nobody has it.
func lockOpen(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }
