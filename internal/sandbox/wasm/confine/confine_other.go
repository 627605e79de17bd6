//go:build !linux && !darwin

package confine

import (
	"runtime"

	"paddock/internal/sandbox"
)

var steps []step

// look tells that there is nothing here.
func look(Policy) []sandbox.Protection {
	var walls []sandbox.Protection
	for _, name := range []string{wallLimits, wallPrivileges, wallLandlock, wallUser, wallCapabilities, wallDump, wallParent, wallSeccomp} {
		walls = append(walls, missing(name, "not available on %s; here the guest is kept in by WebAssembly, in a process with nothing to steal", runtime.GOOS))
	}
	return walls
}
