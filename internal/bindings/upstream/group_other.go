//go:build unix && !linux

package upstream

import "os/exec"

// wait waits for the program's end and kills what it left behind.
func (g *group) wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	g.kill()
	g.leave()
	return err
}
