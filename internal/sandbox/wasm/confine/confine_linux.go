package confine

import (
	"errors"
	"fmt"

	llsys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"paddock/internal/sandbox"
)

// steps are in the order that the package's comment explains.
var steps = []step{
	{wallLimits, setLimits},
	{wallPrivileges, renouncePrivileges},
	{wallLandlock, restrictFiles},
	{wallCapabilities, emptyBoundingSet},
	{wallUser, becomeUser},
	{wallCapabilities, dropCapabilities},
	{wallDump, forbidDumps},
	{wallParent, endWithParent},
	{wallSeccomp, installFilter},
}

func look(p Policy) []sandbox.Protection {
	return []sandbox.Protection{
		lookLimits(p), lookPrivileges(), lookLandlock(), lookUser(p),
		standing(wallCapabilities, "the worker has none of root's rights"),
		standing(wallDump, "other processes of its user cannot read the worker's memory, and none is ever written to disk"),
		standing(wallParent, "the kernel kills the worker when the server ends in whatever way, and does not ask it"),
		lookSeccomp(),
	}
}

func lookPrivileges() sandbox.Protection {
	if _, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil {
		return missing(wallPrivileges, "the kernel refuses it (%v); it came with Linux 3.5", err)
	}
	return standing(wallPrivileges, "no program that it could start would have more rights than the worker")
}

func renouncePrivileges(Policy) error {
	if set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err == nil && set == 1 {
		return nil // it is inherited: all threads have it
	}
	if err := llsys.AllThreadsPrctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil {
		return fmt.Errorf("checking it: %w", err)
	}
	if set != 1 {
		return errors.New("the kernel took it and did not keep it")
	}
	return nil
}

func forbidDumps(Policy) error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

// endWithParent has the kernel kill the process when the thread that started it
// ends, which has to live as long as that process; whoever asks for this sees to
// it. A parent that ended before is found out by who has taken its place.
func endWithParent(p Policy) error {
	if p.Parent == 0 {
		return nil
	}
	// Each thread has its own; any will do.
	if err := llsys.AllThreadsPrctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	if now := unix.Getppid(); now != p.Parent {
		return fmt.Errorf("the parent is process %d and not %d: that has ended", now, p.Parent)
	}
	return nil
}
