//go:build !linux

package blob

import "os"

func datasync(f *os.File) error { return f.Sync() }
