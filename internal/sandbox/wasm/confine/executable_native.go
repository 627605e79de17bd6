//go:build linux && native

package confine

import "golang.org/x/sys/unix"

// neverExecutable are the bits of its protection that memory cannot get: all
// code that a native worker runs is in its program.
const neverExecutable = unix.PROT_EXEC
