//go:build unix

package files

import "syscall"

func makeFIFO(path string) bool { return syscall.Mkfifo(path, 0o600) == nil }
