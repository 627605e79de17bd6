//go:build unix

package blob

import (
	"errors"
	"os"
	"syscall"
)

// syncDir syncs a folder. Some network file systems refuse to, with EINVAL:
// they keep names in step by themselves.
func syncDir(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return err
	}
	if err = dir.Sync(); errors.Is(err, syscall.EINVAL) {
		err = nil
	}
	return errors.Join(err, dir.Close())
}

func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
