//go:build unix

package blob

import (
	"errors"
	"os"
	"syscall"
)

// syncMode is how a file is opened to be synced.
const syncMode = os.O_RDONLY

func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
