//go:build unix

package session

import (
	"os"

	"golang.org/x/sys/unix"
)

// lives tells that a lock belongs to an open file, which children inherit.
const lives = true

// lockFileOf takes the lock of an open file, if nobody has it.
func lockFileOf(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }
