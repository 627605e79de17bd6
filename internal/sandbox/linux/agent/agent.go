// Package agent is pid 1 of a Linux sandbox (a box): the paddock binary in
// another role, started by package linux, with nothing in it to steal. It holds
// the live interpreters (kernels) of one session and the processes that their
// programs start, and speaks the guest protocol of package wire over a
// descriptor that it inherits.
//
// The life of a call here: agent.serve reads a frame, instance.run executes it,
// kernel.ask sends a request to the driver, a program in the kernel's own
// language (driver/), over a socket that no child of the program inherits.
// control.go stops it when it must; reaper.go sees every process end.
//
// A kernel belongs to the program that runs in it: what it says is checked,
// bounded and believed only as far as the program itself could have said it.
package agent

import (
	"path/filepath"
)

// Role is the process's name (argv[0]) in this role. Without arguments it finds
// its connection, a stream socket, at descriptor 3; "-fd N" names another one,
// "-in N -out M" two pipes.
const Role = "paddock-agent"

// Setup is what the server tells an agent at first. The zero value works.
type Setup struct {
	// Env is what every process of the box has in its environment, such as the
	// image's: "NAME=value". An instance's own goes before it.
	Env []string `json:"env,omitempty"`
	// Processes and OpenFiles bound each user's processes and each process's
	// descriptors; 0: whatever the agent was started with.
	Processes uint64 `json:"processes,omitempty"`
	OpenFiles uint64 `json:"open_files,omitempty"`
	// Image is what the box's image is called, for those who miss something in it.
	Image string `json:"image,omitempty"`
	// Scratch is a folder in which the agent may make pipes with names; empty:
	// /dev/shm, or else /tmp.
	Scratch string `json:"scratch,omitempty"`
	// Listen is the port at which programs can connect to the server; 0: there is none.
	Listen uint16 `json:"listen,omitempty"`
}

// Requested tells whether this process was started as an agent.
func Requested(args []string) bool {
	return len(args) > 0 && filepath.Base(args[0]) == Role
}
