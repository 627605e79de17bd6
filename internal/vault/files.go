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

// Save keeps data, which has replaced what was there when it returns; nil removes it.
func (f *Files) Save(_ context.Context, key string, data []byte) error {
	if data == nil {
		if err := os.Remove(f.path(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing what is kept encrypted: %w", err)
		}
		return nil
	}
	sealed, err := f.Sealer.Seal(key, data)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.Dir, 0o700); err != nil {
		return err
	}
	return blob.WriteFile(blob.OS, f.path(key), sealed)
}

func (f *Files) path(key string) string {
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(f.Dir, hex.EncodeToString(sum[:]))
}
