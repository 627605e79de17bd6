//go:build unix

package examples

import (
	"os/exec"
	"syscall"
)

// inGroup has all that a command starts end with it when it is cancelled.
func inGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
