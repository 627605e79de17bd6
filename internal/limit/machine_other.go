//go:build !linux && !darwin && !windows

package limit

// MachineMemory is zero: not known.
func MachineMemory() int64 { return 0 }
