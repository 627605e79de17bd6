//go:build unix

package lock

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// inherited tells that a lock belongs to an open file, which children inherit.
const inherited = true

// lockOpen takes the lock of an open file, if nobody has it.
func lockOpen(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

// ownerOf names the user to whom a folder belongs, or the first above it that can be seen;
// "": this process's own, or nobody knows.
func ownerOf(dir string) string {
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			if at == filepath.Dir(at) {
				return ""
			}
			continue
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok || int(stat.Uid) == os.Getuid() {
			return ""
		}
		id := strconv.Itoa(int(stat.Uid))
		if u, err := user.LookupId(id); err == nil {
			return u.Username
		}
		return id
	}
}
