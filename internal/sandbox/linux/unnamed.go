//go:build linux && (amd64 || arm64)

package linux

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// unnamed sums up the files that a process has open and that have no name any
// more, by the folder of the gofer in which they were. It is asked many times a second,
// of a thousand files and more.
func unnamed(pid int) (map[string]int64, error) {
	dir, err := os.Open(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	at, link := int(dir.Fd()), make([]byte, os.Getpagesize()) // the kernel gives no more
	sums, seen := map[string]int64{}, map[[2]uint64]bool{}
	for _, name := range names {
		n, err := unix.Readlinkat(at, name, link)
		if err != nil || !bytes.HasSuffix(link[:n], []byte(" (deleted)")) {
			continue
		}
		top, _, _ := strings.Cut(strings.TrimPrefix(string(link[:n]), "/"), "/")
		var s unix.Stat_t
		if unix.Fstatat(at, name, &s, 0) != nil || s.Nlink > 0 || s.Mode&unix.S_IFMT != unix.S_IFREG || seen[[2]uint64{s.Dev, s.Ino}] {
			continue
		}
		seen[[2]uint64{s.Dev, s.Ino}] = true
		sums[top] = min(sums[top]+weight(&s), mostWeight)
	}
	return sums, nil
}
