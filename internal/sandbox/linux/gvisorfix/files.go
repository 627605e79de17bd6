//go:build linux && (amd64 || arm64)

package gvisorfix

import (
	"math"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// CloseFilesOnExec keeps every open file from children that are not given it. A program
// with gVisor in it calls it when its packages are initialized: gVisor's gofer client opens
// a pipe then that each child would have.
func CloseFilesOnExec() {
	if unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	names, err := os.ReadDir("/proc/self/fd") // Linux before 5.11
	if err != nil {
		return
	}
	for _, n := range names {
		if fd, err := strconv.Atoi(n.Name()); err == nil && fd >= 3 {
			unix.CloseOnExec(fd)
		}
	}
}

// OwnFiles calls f, in which gVisor makes or receives files: those it leaves open in
// children, so that another box would have this one's memory and its control. No
// process is started meanwhile, and so f must not take long.
func OwnFiles(f func() error) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	defer CloseFilesOnExec()
	return f()
}
