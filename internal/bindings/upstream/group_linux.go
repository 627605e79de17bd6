package upstream

import (
	"errors"
	"os/exec"

	"golang.org/x/sys/unix"
)

// wait waits for the program's end, kills what it left behind and only then gives up
// its number, so that nobody else's group can be killed under it.
func (g *group) wait(cmd *exec.Cmd) error {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	g.kill()
	g.leave()
	return cmd.Wait()
}
