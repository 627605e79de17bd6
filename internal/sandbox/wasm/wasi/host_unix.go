//go:build unix

package wasi

import (
	"io/fs"
	"syscall"
)

// openNonblock keeps an open from waiting for a pipe's other end.
const openNonblock = syscall.O_NONBLOCK

// stableInodes tells that two names with one inode number are one file.
const stableInodes = true

// hostErrnos are the numbers that only this kind of host has.
var hostErrnos = map[syscall.Errno]errno{syscall.ESTALE: eio}

// validName tells whether part may stand in a path; it has no "/" and no zero.
func validName([]byte) bool { return true }

// fileStat asks the host about an open file.
func fileStat(_ string, f *content) (stat, error) {
	var sys syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &sys); err != nil {
		return stat{}, err
	}
	return statOfSys(&sys), nil
}

// statOf is what the host has told of name.
func statOf(name string, info fs.FileInfo) stat {
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		return statOfSys(sys)
	}
	return plainStat(name, info)
}

func statOfSys(sys *syscall.Stat_t) stat {
	s := stat{device: uint64(sys.Dev), inode: sys.Ino, links: uint64(sys.Nlink), size: sys.Size}
	s.accessed, s.modified, s.changed = timesOf(sys)
	switch uint32(sys.Mode) & syscall.S_IFMT {
	case syscall.S_IFREG:
		s.kind = typeRegular
	case syscall.S_IFDIR:
		s.kind = typeFolder
	case syscall.S_IFLNK:
		s.kind = typeSymlink
	case syscall.S_IFBLK:
		s.kind = typeBlock
	case syscall.S_IFCHR:
		s.kind = typeChar
	}
	return s
}
