//go:build unix && !linux

package wasi

import (
	"syscall"
	"time"
)

func timesOf(sys *syscall.Stat_t) (accessed, modified, changed int64) {
	return sys.Atimespec.Nano(), sys.Mtimespec.Nano(), sys.Ctimespec.Nano()
}

// setFileTimes sets the times of an open file, in microseconds; the zero time
// leaves one as it is.
func setFileTimes(f *content, accessed, modified time.Time) error {
	now, err := fileStat("", f)
	if err != nil {
		return err
	}
	times := []syscall.Timeval{syscall.NsecToTimeval(now.accessed), syscall.NsecToTimeval(now.modified)}
	for i, t := range []time.Time{accessed, modified} {
		if !t.IsZero() {
			times[i] = syscall.NsecToTimeval(t.UnixNano())
		}
	}
	return syscall.Futimes(int(f.Fd()), times)
}
