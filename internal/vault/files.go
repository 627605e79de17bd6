package vault

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"paddock/internal/blob"
	"paddock/internal/table"
)

// maxSealed bounds in bytes what is read of a file: tokens have a few KiB.
const maxSealed = 4 << 20

// Documents keeps sealed texts in a table, one in a document, by their keys. A document's
// name tells nothing of its key. It is for any number of goroutines, processes and machines
// with the same vault: who saves last counts.
type Documents struct {
	Table  table.Table
	Sealer Sealer
}

// Load gives what was saved; nil: nothing was.
func (d Documents) Load(ctx context.Context, key string) ([]byte, error) {
	one, err := d.Table.Get(ctx, nameOf(key), table.None)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading what is kept encrypted: %w", err)
	}
	return d.Sealer.Unseal(key, one.Data)
}

// Save keeps data, which has replaced what was there when it returns, also after a power
// cut; nil removes it likewise.
func (d Documents) Save(ctx context.Context, key string, data []byte) error {
	if data == nil {
		err := d.Table.Delete(ctx, nameOf(key), table.Any)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing what is kept encrypted: %w", err)
		}
		return nil
	}
	sealed, err := d.Sealer.Seal(key, data)
	if err != nil {
		return err
	}
	_, err = d.Table.Put(ctx, nameOf(key), sealed, table.Any)
	return err
}

func nameOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// Files are the [Documents] of a folder, one in a file.
type Files struct {
	Dir    string // made when something is saved
	Sealer Sealer

	disk blob.Files // nil: the system's
}

// Load gives what was saved; nil: nothing was.
func (f *Files) Load(ctx context.Context, key string) ([]byte, error) {
	return f.documents().Load(ctx, key)
}

// Save is that of [Documents].
func (f *Files) Save(ctx context.Context, key string, data []byte) error {
	return f.documents().Save(ctx, key, data)
}

func (f *Files) path(key string) string { return filepath.Join(f.Dir, nameOf(key)) }

func (f *Files) documents() Documents {
	files := f.disk
	if files == nil {
		files = blob.OS
	}
	return Documents{Sealer: f.Sealer, Table: table.NewFolder(table.FolderConfig{
		Dir: f.Dir, Files: files, Most: maxSealed,
		Write: func(path string, data []byte) error {
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				return err
			}
			return blob.WriteFile(files, path, data)
		},
		Remove: func(path string) error {
			err := files.Remove(path)
			if err == nil || errors.Is(err, fs.ErrNotExist) { // it may be gone, and not for good
				err = files.SyncDir(filepath.Dir(path))
			}
			return err
		},
	})}
}
