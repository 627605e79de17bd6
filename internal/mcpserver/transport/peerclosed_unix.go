//go:build unix

package transport

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// peerClosed reports whether what is written to w can no longer be read: the
// other end of a pipe or socket is closed. False when that cannot be known. It
// may be called while somebody writes.
func peerClosed(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	gone := false
	err = conn.Control(func(fd uintptr) {
		// A pipe without readers gives POLLERR on Linux and POLLHUP elsewhere;
		// some systems look at nothing unless they are asked for an event.
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(poll, 0)
		gone = err == nil && n > 0 && poll[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
	})
	return err == nil && gone
}
