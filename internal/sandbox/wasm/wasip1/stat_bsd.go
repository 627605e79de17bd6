//go:build darwin || freebsd || netbsd

package wasi

import "syscall"

func times(s *syscall.Stat_t) (accessed, changed int64) {
	return s.Atimespec.Nano(), s.Ctimespec.Nano()
}
