// Package confine puts walls around the process that runs guests, so that one
// who breaks out of the interpreter finds nothing to use.
//
// The order matters. The limits and Landlock come first, while the process can
// still reach the folders by their paths; then it becomes somebody else and
// gives its capabilities up; the filter of system calls comes last, for it
// forbids all of that. Files opened before stay usable, and paths below a
// descriptor are checked by Landlock at each opening, so the folders that the
// process works in have to be named in the [Policy].
package confine

import "paddock/internal/sandbox"

// Policy is what is left to the process.
type Policy struct {
	// Writable are the folders below which files may be changed; Readable those
	// below which they may be read.
	Writable, Readable []string
	// UID and GID are whom to become. They count only when the process runs as
	// root; zero: it stays who it is.
	UID, GID int
}

// maxOpenFiles and maxFileSize bound what the process may hold open and how
// large it may make a file, whatever the limits of its guests say.
const (
	maxOpenFiles = 8192
	maxFileSize  = 8 << 30
)

// Apply puts up every wall that this host offers and tells which stand. A
// wall that the host has and that cannot be put up is an error: the process
// must not run guests then.
func Apply(p Policy) ([]sandbox.Protection, error) { return apply(p) }

// Probe tells, without changing anything, which walls Apply would put up.
func Probe() []sandbox.Protection { return probe() }

// The walls, by name.
const (
	wallLimits       = "resource limits"
	wallLandlock     = "landlock"
	wallUser         = "unprivileged user"
	wallCapabilities = "no capabilities"
	wallPrivileges   = "no new privileges"
	wallDump         = "no core dumps or tracing"
	wallSeccomp      = "seccomp"
)

func stands(name, detail string) sandbox.Protection {
	return sandbox.Protection{Name: name, Active: true, Detail: detail}
}

func missing(name, detail string) sandbox.Protection {
	return sandbox.Protection{Name: name, Detail: detail}
}
