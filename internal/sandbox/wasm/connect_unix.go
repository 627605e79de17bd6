//go:build unix

package wasm

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// connect makes the socket that cmd inherits as its standard input, and gives
// our end. started closes what is the child's alone, once it has it.
func connect(cmd *exec.Cmd) (stream io.ReadWriteCloser, started func(), err error) {
	syscall.ForkLock.RLock()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fds[0])
		unix.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("making a socket pair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "server"), os.NewFile(uintptr(fds[1]), "worker")
	stream, err = net.FileConn(ours)
	ours.Close()
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("using a socket: %w", err)
	}
	cmd.Stdin = theirs
	return stream, func() { theirs.Close() }, nil
}
