package sandboxtest

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// shared is where Linux systems have a file system in memory that all may write to.
const shared = "/dev/shm"

// roomy is how much of it has to be free to be used.
const roomy = 4 << 30

// Memory is a folder for a test, like t.TempDir, but in memory where there is room: for
// tests that write thousands of small files, and to which it is all one where they lie.
// What survives a power cut, what a full disk does and how fast one is are not such tests'
// question.
func Memory(t testing.TB) string {
	t.Helper()
	var fs syscall.Statfs_t
	if err := syscall.Statfs(shared, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) < roomy {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(shared, "paddock-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	inside := filepath.Join(dir, "001")                                                // what is beside it is the test's, too
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(inside, 0o755)); err != nil { // guests run as other users
		t.Fatal(err)
	}
	return inside
}
