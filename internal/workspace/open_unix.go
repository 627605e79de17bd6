//go:build unix

package workspace

import "syscall"

// nonblock keeps the opening of a FIFO, put in place of a file at the last
// moment, from waiting for its other end.
const nonblock = syscall.O_NONBLOCK
