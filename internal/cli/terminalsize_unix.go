//go:build unix

package cli

import (
	"os"
	"os/signal"
	"syscall"
)

// sizeChanges tells of changes of the terminal's size until forget is called.
func sizeChanges() (changed <-chan os.Signal, forget func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGWINCH)
	return c, func() { signal.Stop(c) }
}
