//go:build linux && (amd64 || arm64)

package linux

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// unnamed sums up the files that a process has open and that have no name any
// more, by the folder of the gofer in which they were.
func unnamed(pid int) (map[string]int64, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	sums, seen := map[string]int64{}, map[[2]uint64]bool{}
	for _, e := range entries {
		path := dir + "/" + e.Name()
		target, err := os.Readlink(path)
		if err != nil || !strings.HasSuffix(target, " (deleted)") {
			continue
		}
		top, _, _ := strings.Cut(strings.TrimPrefix(target, "/"), "/")
		var s unix.Stat_t
		if unix.Stat(path, &s) != nil || s.Nlink > 0 || s.Mode&unix.S_IFMT != unix.S_IFREG || seen[[2]uint64{s.Dev, s.Ino}] {
			continue
		}
		seen[[2]uint64{s.Dev, s.Ino}] = true
		sums[top] = min(sums[top]+weight(&s), mostWeight)
	}
	return sums, nil
}
