package approval

import (
	"os"
	"path/filepath"

	"paddock/internal/blob"
	"paddock/internal/table"
)

// FolderForTest gives the table of a folder.
func FolderForTest(dir string) table.Table {
	if err := os.MkdirAll(filepath.Join(dir, "local"), 0o700); err != nil {
		panic(err)
	}
	return folderOf(dir, blob.OS)
}
