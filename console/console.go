// Package console has the console as make builds it from the sources beside it. A build
// without that has none, and says so at /.
package console

import (
	"embed"
	"io/fs"
)

//go:embed dist
var dist embed.FS

// Files are those of the console.
func Files() fs.FS {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic("console: " + err.Error()) // the folder is embedded
	}
	return files
}
