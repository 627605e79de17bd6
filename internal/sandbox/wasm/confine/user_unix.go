//go:build linux || darwin

package confine

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"paddock/internal/sandbox"
)

func lookUser(p Policy) sandbox.Protection {
	switch {
	case os.Geteuid() != 0:
		return missing(wallUser, "the worker has paddock's own user; it becomes another one when paddock runs as root")
	case p.UID == 0:
		return missing(wallUser, "the worker runs as root: no user was given to it")
	}
	if why := obstacle(p); why != "" {
		return missing(wallUser, "the worker runs as root: %s", why)
	}
	return standing(wallUser, "the worker is user %d and group %d instead of root", p.UID, p.GID)
}

// becomeUser changes the user and all groups of all threads, for good.
func becomeUser(p Policy) error {
	// One group, the user's own: not every system takes an empty list.
	if err := syscall.Setgroups([]int{p.GID}); err != nil {
		return fmt.Errorf("giving up the groups: %w", err)
	}
	if err := syscall.Setgid(p.GID); err != nil {
		return fmt.Errorf("changing the group: %w", err)
	}
	if err := syscall.Setuid(p.UID); err != nil {
		return fmt.Errorf("changing the user: %w", err)
	}
	if os.Getuid() != p.UID || os.Geteuid() != p.UID || os.Getgid() != p.GID || os.Getegid() != p.GID {
		return errors.New("the system took the change and did not make it")
	}
	if syscall.Setuid(0) == nil {
		return errors.New("the change can be taken back")
	}
	return nil
}
