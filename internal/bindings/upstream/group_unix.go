//go:build unix

package upstream

import (
	"os/exec"
	"sync"
	"syscall"
)

const onWindows = false

// group is a program and what it started, as far as that did not leave its group.
type group struct {
	mu sync.Mutex // guards id once the program runs
	id int        // 0: the number may be somebody else's by now
}

func (g *group) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	g.id = cmd.Process.Pid
	return nil
}

// ask asks all of it to end.
func (g *group) ask() { g.signal(syscall.SIGTERM) }

// kill ends all of it.
func (g *group) kill() { g.signal(syscall.SIGKILL) }

func (g *group) signal(what syscall.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.id != 0 {
		_ = syscall.Kill(-g.id, what)
	}
}

// leave gives the number up.
func (g *group) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.id = 0
}
