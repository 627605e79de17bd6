package blob

import (
	"errors"

	"golang.org/x/sys/windows"
)

// syncDir does nothing: Windows lets nobody sync a folder, and NTFS keeps names
// in its own journal.
func syncDir(string) error { return nil }

func full(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL) || errors.Is(err, windows.ERROR_DISK_QUOTA_EXCEEDED)
}
