package vault

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"paddock/internal/blob"
)

// maxSealed bounds in bytes what is read of a file: tokens have a few KiB.
const maxSealed = 4 << 20

// Files keeps sealed texts in a folder, one in a file, by their keys. A file's name
// tells nothing of its key. It is for any number of goroutines and processes: who
// saves last counts.
type Files struct {
	Dir    string // made when something is saved
	Sealer Sealer

	disk blob.Files // nil: the system's
}

// Load gives what was saved; nil: nothing was.
func (f *Files) Load(_ context.Context, key string) ([]byte, error) {
	file, err := os.Open(f.path(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("opening what is kept encrypted: %w", err)
	}
	defer file.Close()
	sealed, err := io.ReadAll(io.LimitReader(file, maxSealed))
	if err != nil {
		return nil, fmt.Errorf("reading what is kept encrypted: %w", err)
	}
	return f.Sealer.Unseal(key, sealed)
}

// Save keeps data, which has replaced what was there when it returns, also after a power
// cut; nil removes it likewise.
func (f *Files) Save(_ context.Context, key string, data []byte) error {
	if data == nil {
		return f.remove(key)
	}
	sealed, err := f.Sealer.Seal(key, data)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.Dir, 0o700); err != nil {
		return err
	}
	return blob.WriteFile(f.files(), f.path(key), sealed)
}

func (f *Files) remove(key string) error {
	files := f.files()
	err := files.Remove(f.path(key))
	if err == nil || errors.Is(err, fs.ErrNotExist) { // it may be gone, and not for good
		err = files.SyncDir(f.Dir)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // without the folder there is nothing
		return fmt.Errorf("removing what is kept encrypted: %w", err)
	}
	return nil
}

func (f *Files) files() blob.Files {
	if f.disk == nil {
		return blob.OS
	}
	return f.disk
}

func (f *Files) path(key string) string {
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(f.Dir, hex.EncodeToString(sum[:]))
}
