package blob

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// syncMode is how a file is opened to be synced: Windows wants to write for that.
const syncMode = os.O_RDWR

func full(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL) || errors.Is(err, windows.ERROR_DISK_QUOTA_EXCEEDED)
}
