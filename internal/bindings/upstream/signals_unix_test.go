//go:build unix

package upstream

import (
	"os/signal"
	"syscall"
)

func ignoreSignals() { signal.Ignore(syscall.SIGTERM, syscall.SIGINT) }

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }
