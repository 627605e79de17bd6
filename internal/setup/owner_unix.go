//go:build unix

package setup

import (
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives f the owner of the file that info tells of, for the case
// that root does this for somebody else.
func keepOwner(f *os.File, info fs.FileInfo) error {
	if info == nil || os.Geteuid() != 0 {
		return nil
	}
	was, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return f.Chown(int(was.Uid), int(was.Gid))
}
