package sessionstore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"paddock/internal/blob"
	"paddock/internal/fault"
)

// formatVersion is that of the state folder. 1 had sessions and no checkpoints,
// and no file that said so; 2 has checkpoints: a session of 1 gets its first one
// when it is opened. 3 has a log, which must not be overlooked after a power cut.
const formatVersion = 3

const formatFile = "format"

// checkFormat makes sure that this paddock knows the state folder, and brings
// an older one forward.
func checkFormat(dir string, files blob.Files) error {
	path := filepath.Join(dir, formatFile)
	version, err := readFormat(path, files)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		version = 1
	case err != nil:
		return fault.New(fault.Unavailable, "the state folder's format cannot be read").
			WithHint("%s holds the number %d; write it there if it is damaged", path, formatVersion).WithCause(err)
	}
	switch {
	case version > formatVersion:
		return fault.New(fault.Unsupported, "the state folder was written by a newer paddock (format %d; this one knows %d)", version, formatVersion).
			WithHint("update paddock, or choose another folder with --state-dir")
	case version < formatVersion:
		return blob.WriteFile(files, path, fmt.Appendf(nil, "%d\n", formatVersion))
	}
	return nil
}

func readFormat(path string, files blob.Files) (int, error) {
	f, err := files.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 100))
	if err != nil {
		return 0, err
	}
	version, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err == nil && version < 1 {
		err = errors.New("it is not a version")
	}
	return version, err
}
