//go:build !linux

package sandboxtest

import "testing"

// Memory is a folder for a test, in memory on systems that have a place for that.
func Memory(t testing.TB) string { return t.TempDir() }
