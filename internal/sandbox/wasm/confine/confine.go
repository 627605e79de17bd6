// Package confine puts walls around the process that runs guests, so that one
// who breaks out of the interpreter finds nothing to use.
//
// The order of the walls is not free, for each takes away what another needs:
//
//  1. What the host offers is looked up before anything stands, because
//     Landlock closes /proc and the filter closes the questions.
//  2. The resource limits, and the renunciation of new privileges, which both
//     Landlock and the filter ask for.
//  3. Landlock, while the process can still reach its folders by their paths:
//     whom it becomes next may not be able to. The rules hold on to the
//     folders themselves, so they go on holding for the new user.
//  4. The bounding set of capabilities, which only root may empty; then the
//     user; then what capabilities are left; then the mark against core dumps
//     and tracing, which a change of user would reset.
//  5. The kernel's promise to kill the process when its parent ends, which a
//     change of user would take back.
//  6. The filter of system calls, last, for it forbids all of the above.
//
// Files opened before stay usable. A path below a descriptor, as [os.Root]
// uses it, is checked by Landlock at each opening, so the folders that the
// process works in have to be named in the [Policy]. What is looked up late
// has to be used once before: the local time zone, for one, which Go reads at
// the first need of it and which is UTC when it cannot be read.
//
// What the walls do not cover: Landlock has no say about looking at a file's
// metadata, reading where a symbolic link leads or changing a file's times, so
// one who breaks out of a process that has kept paddock's own user can do
// these to that user's files. And memory may be made executable, as a compiler
// needs it.
package confine

import (
	"errors"
	"fmt"

	"paddock/internal/sandbox"
)

// Policy is what is left to the process. The zero value leaves it no file,
// and its user.
type Policy struct {
	// Writable are the folders below which files may be changed; Readable those
	// below which they may be read. They must exist.
	Writable, Readable []string
	// UID and GID are whom to become, either both or none. They count only when
	// the process runs as root; zero: it stays who it is.
	UID, GID int
	// Parent is the process that has started this one, and that it may not outlive;
	// zero: it may.
	Parent int
	// MaxOpenFiles bounds how many files may be open; zero: 8192.
	MaxOpenFiles uint64
	// MaxFileSize bounds how large the process may make a file, in bytes,
	// whatever the limits of its guests say; zero: 8 GiB.
	MaxFileSize uint64
}

func (p Policy) withDefaults() (Policy, error) {
	if p.UID < 0 || p.GID < 0 || (p.UID == 0) != (p.GID == 0) {
		return p, errors.New("a user to become needs a group to become, neither of them root's")
	}
	if p.MaxOpenFiles == 0 {
		p.MaxOpenFiles = 8192
	}
	if p.MaxFileSize == 0 {
		p.MaxFileSize = 8 << 30
	}
	return p, nil
}

// step is a part of putting a wall up. It is taken when look found that the
// wall can stand here.
type step struct {
	wall string
	do   func(Policy) error
}

// Apply puts up every wall that this host offers around all threads of the
// process, and tells which stand and why the others do not. It can be called
// once; threads started later are inside. A wall that the host has and that
// cannot be put up is an error: then the process may be half confined, and
// must end without having run a guest.
func Apply(p Policy) ([]sandbox.Protection, error) {
	p, err := p.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("confining the process: %w", err)
	}
	walls := look(p)
	stands := map[string]bool{}
	for _, w := range walls {
		stands[w.Name] = w.Active
	}
	for _, s := range steps {
		if !stands[s.wall] {
			continue
		}
		if err := s.do(p); err != nil {
			return nil, fmt.Errorf("confining the process: %s: %w", s.wall, err)
		}
	}
	return walls, nil
}

// nobody is whom Probe supposes that the process shall become.
const nobody = 65534

// Probe tells, without changing anything, which walls Apply would put up when
// it is given a user to become.
func Probe() []sandbox.Protection {
	p, err := Policy{UID: nobody, GID: nobody}.withDefaults()
	if err != nil {
		panic(err) // the policy above is a valid one
	}
	return look(p)
}

// The walls, by name.
const (
	wallLimits       = "resource limits"
	wallPrivileges   = "no new privileges"
	wallLandlock     = "landlock"
	wallUser         = "unprivileged user"
	wallCapabilities = "no capabilities"
	wallDump         = "no core dumps or tracing"
	wallParent       = "no life after the server"
	wallSeccomp      = "seccomp"
)

func standing(name, format string, args ...any) sandbox.Protection {
	return sandbox.Protection{Name: name, Active: true, Detail: fmt.Sprintf(format, args...)}
}

func missing(name, format string, args ...any) sandbox.Protection {
	return sandbox.Protection{Name: name, Detail: fmt.Sprintf(format, args...)}
}
