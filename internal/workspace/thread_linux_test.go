package workspace

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// asThread runs do with the file system's permissions of another user, in a
// thread that is not used again.
func asThread(t *testing.T, uid int, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked
		if err := unix.Setfsuid(uid); err != nil {
			t.Error(err)
			return
		}
		do()
	}()
	<-done
}
