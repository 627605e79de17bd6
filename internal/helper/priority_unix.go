//go:build unix

package helper

import "syscall"

// stepBack lets the server and its programs have the processors before a helper.
func stepBack() { _ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, 10) } // it works without, too
