//go:build linux && (amd64 || arm64)

package linux

import (
	"os"
	"regexp"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
)

// filtered tells whether the calling thread's system calls go through a filter.
func filtered() bool {
	status, _ := os.ReadFile("/proc/thread-self/status") // what cannot be read says nothing
	return regexp.MustCompile(`(?m)^Seccomp:\s*2`).Match(status)
}

func TestThePartsOfABoxAreSparedAWaitAndNothingElse(t *testing.T) {
	if os.Geteuid() != 0 || filtered() {
		t.Skip("only root may filter its own thread, and only where that is not done already")
	}
	p := parent{skipMembarrier: true}
	defer p.close()
	p.run(func() {
		if !filtered() {
			t.Error("the thread that starts the parts has no filter")
		}
		for _, command := range []uintptr{linux.MEMBARRIER_CMD_QUERY, linux.MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED} {
			if _, _, e := unix.RawSyscall(unix.SYS_MEMBARRIER, command, 0, 0); e != 0 {
				t.Errorf("membarrier %d: %v", command, e)
			}
		}
		if known, _, _ := unix.RawSyscall(unix.SYS_MEMBARRIER, linux.MEMBARRIER_CMD_QUERY, 0, 0); known&linux.MEMBARRIER_CMD_GLOBAL == 0 {
			t.Error("the kernel's barriers are not known there any more")
		}
	})
	if filtered() {
		t.Error("another thread has the filter")
	}
}
