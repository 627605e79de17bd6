//go:build !linux

package confine

import (
	"runtime"

	"paddock/internal/sandbox"
)

// apply puts up nothing: what there is to put up exists on Linux only.
func apply(Policy) ([]sandbox.Protection, error) { return probe(), nil }

func probe() []sandbox.Protection {
	why := "not available on " + runtime.GOOS + ": the guest is isolated by WebAssembly and lives in a process without environment"
	var walls []sandbox.Protection
	for _, name := range []string{wallLimits, wallLandlock, wallUser, wallCapabilities, wallDump, wallSeccomp, wallPrivileges} {
		walls = append(walls, missing(name, why))
	}
	return walls
}
