package limit

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// MachineMemory is how much memory there is for everything that runs here: the
// machine's, or the control group's where that is less; zero: not known.
func MachineMemory() int64 {
	var info unix.Sysinfo_t
	total := int64(0)
	if unix.Sysinfo(&info) == nil {
		total = int64(uint64(info.Totalram) * uint64(info.Unit))
	}
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
		if err == nil && n > 0 && (total == 0 || n < total) { // "max" is not a number
			total = n
		}
	}
	return total
}
