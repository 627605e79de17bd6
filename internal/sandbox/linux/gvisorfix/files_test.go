//go:build linux && (amd64 || arm64)

package gvisorfix

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFilesThatGVisorOpensAreKeptFromChildren(t *testing.T) {
	var pipe [2]int
	broken := errors.New("on purpose")
	err := OwnFiles(func() error {
		if err := unix.Pipe(pipe[:]); err != nil {
			t.Fatal(err)
		}
		return broken
	})
	if !errors.Is(err, broken) {
		t.Errorf("got the error %v, want %v", err, broken)
	}
	for _, fd := range pipe {
		defer unix.Close(fd)
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil {
			t.Fatal(err)
		}
		if flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("children have the descriptor %d", fd)
		}
	}
}
