//go:build !race

package helper

import (
	"fmt"
	"syscall"
)

// boundMemory has the system refuse the process more memory than that, in bytes: asking
// for more ends it. Room that is only reserved does not count.
func boundMemory(most uint64) error {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_DATA, &now); err != nil {
		return fmt.Errorf("reading the limit on memory: %w", err)
	}
	now.Max = min(now.Max, most)
	now.Cur = min(now.Cur, now.Max)
	if err := syscall.Setrlimit(syscall.RLIMIT_DATA, &now); err != nil {
		return fmt.Errorf("lowering the limit on memory: %w", err)
	}
	return nil
}
