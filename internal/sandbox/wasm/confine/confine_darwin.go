package confine

import "paddock/internal/sandbox"

// steps: the limits first, while the process may still raise what it lowers
// too far.
var steps = []step{{wallLimits, setLimits}, {wallUser, becomeUser}}

// look tells what macOS offers to a process that calls no C library. Its own
// sandbox can only be entered through one.
func look(p Policy) []sandbox.Protection {
	const isLinux = "exists on Linux only; here the guest is kept in by WebAssembly, in a process with nothing to steal"
	return []sandbox.Protection{
		lookLimits(p), missing(wallPrivileges, isLinux), missing(wallLandlock, isLinux), lookUser(p),
		missing(wallCapabilities, isLinux), missing(wallDump, "core dumps are off by the resource limits; tracing is left to the system's own rules"), missing(wallParent, "exists on Linux only; here a worker ends when its connection to the server does"), missing(wallSeccomp, isLinux),
	}
}
