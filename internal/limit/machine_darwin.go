package limit

import "golang.org/x/sys/unix"

// MachineMemory is how much memory the machine has; zero: not known.
func MachineMemory() int64 {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0
	}
	return int64(n)
}
