// Package privatefile reads files of the state folder that only their user may read, and
// says whose files are.
package privatefile

import (
	"io/fs"
	"os"
	"path/filepath"

	"paddock/internal/fault"
	"paddock/internal/iolimit"
)

// MaxBytes bounds in bytes what [Read] reads. A thousand tokens take half of it.
const MaxBytes = 1 << 20

// Read reads a file of the state folder that holds a secret. A file that other users can
// read or change, that belongs to another user or that is larger than MaxBytes is a
// fault.Unavailable; where it cannot be read the error is the system's own.
func Read(path string) ([]byte, fs.FileInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	name := filepath.Base(path)
	if why := exposed(info); why != "" {
		return nil, nil, fault.New(fault.Unavailable, "the file %s in the state folder %s", name, why).
			WithHint("if no other user can have used it, make it private with chown and chmod 600; otherwise remove it")
	}
	tooLarge := fault.New(fault.Unavailable, "the file %s in the state folder is damaged: it is larger than %d KiB", name, MaxBytes>>10).
		WithHint("put a copy back, or remove it and make again what it held")
	data, err := iolimit.ReadAll(f, MaxBytes, tooLarge)
	if err != nil {
		return nil, nil, err
	}
	return data, info, nil
}
