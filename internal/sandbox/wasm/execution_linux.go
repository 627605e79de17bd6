package wasm

import (
	"errors"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// noExecution tells whether dir, which need not exist yet, is on a file system
// from which nothing may be executed.
func noExecution(dir string) bool {
	var s unix.Statfs_t
	for {
		err := unix.Statfs(dir, &s)
		if !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return err == nil && s.Flags&unix.ST_NOEXEC != 0
		}
		dir = filepath.Dir(dir)
	}
}
