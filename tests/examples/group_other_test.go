//go:build !unix

package examples

import "os/exec"

// inGroup does nothing: here only the command itself ends when it is cancelled.
func inGroup(*exec.Cmd) {}
