//go:build unix

package auth

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// exposed says why a file is not its user's alone; empty: it is.
func exposed(info fs.FileInfo) string {
	switch s, ok := info.Sys().(*syscall.Stat_t); {
	case !info.Mode().IsRegular():
		return "is not a file"
	case ok && int(s.Uid) != os.Geteuid():
		return "belongs to another user"
	case info.Mode().Perm()&0o077 != 0:
		return "can be read or changed by other users"
	}
	return ""
}

// syncFolder makes a rename in dir last.
func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
