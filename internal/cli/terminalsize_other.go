//go:build !unix

package cli

import "os"

// sizeChanges tells of nothing: the system does not.
func sizeChanges() (changed <-chan os.Signal, forget func()) { return nil, func() {} }
