package wasi

import (
	"syscall"
	"time"
	"unsafe"
)

func timesOf(sys *syscall.Stat_t) (accessed, modified, changed int64) {
	return sys.Atim.Nano(), sys.Mtim.Nano(), sys.Ctim.Nano()
}

// setFileTimes sets the times of an open file; the zero time leaves one as it
// is. The syscall package would look for the file in /proc, which a confined
// process may not see.
func setFileTimes(f *content, accessed, modified time.Time) error {
	const omit = 1<<30 - 2
	times := [2]syscall.Timespec{{Nsec: omit}, {Nsec: omit}}
	for i, t := range []time.Time{accessed, modified} {
		if !t.IsZero() {
			times[i] = syscall.NsecToTimespec(t.UnixNano())
		}
	}
	_, _, n := syscall.Syscall6(syscall.SYS_UTIMENSAT, f.Fd(), 0, uintptr(unsafe.Pointer(&times)), 0, 0, 0)
	if n != 0 {
		return n
	}
	return nil
}
