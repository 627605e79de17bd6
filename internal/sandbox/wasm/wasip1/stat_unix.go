//go:build unix

package wasi

import (
	"io/fs"
	"syscall"
)

// nonblock keeps an open from waiting for a pipe's other end.
const nonblock = syscall.O_NONBLOCK

func systemStat(s *stat, info fs.FileInfo) {
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.number, s.links = sys.Ino, uint64(sys.Nlink)
		s.accessed, s.changed = times(sys)
	}
}

// links is how many names a file has.
func links(info fs.FileInfo) uint64 {
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(sys.Nlink)
	}
	return 1
}
