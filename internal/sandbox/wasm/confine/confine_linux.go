package confine

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/landlock-lsm/go-landlock/landlock"
	llsys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"paddock/internal/sandbox"
)

func apply(p Policy) ([]sandbox.Protection, error) {
	var walls []sandbox.Protection
	for _, wall := range []func(Policy) (sandbox.Protection, error){
		applyLimits, applyLandlock, applyUser, applyCapabilities, applyDump, applySeccomp,
	} {
		w, err := wall(p)
		if err != nil {
			return walls, fmt.Errorf("%s: %w", w.Name, err)
		}
		walls = append(walls, w)
	}
	return append(walls, stands(wallPrivileges, "no program can give it more rights")), nil
}

func probe() []sandbox.Protection {
	walls := []sandbox.Protection{stands(wallLimits, limitsDetail), landlockWall(landlockABI())}
	if os.Geteuid() == 0 {
		walls = append(walls, stands(wallUser, userDetail))
	} else {
		walls = append(walls, missing(wallUser, userMissing))
	}
	return append(walls,
		stands(wallCapabilities, capabilitiesDetail), stands(wallDump, dumpDetail), seccompWall(),
		stands(wallPrivileges, "no program can give it more rights"))
}

const (
	limitsDetail       = "open files, file sizes and core dumps are bounded"
	userDetail         = "the worker is another user than paddock"
	userMissing        = "the worker has paddock's own user; it becomes another one when paddock runs as root"
	capabilitiesDetail = "the worker has none of root's rights"
	dumpDetail         = "other processes of the user cannot read its memory"
)

func applyLimits(Policy) (sandbox.Protection, error) {
	w := stands(wallLimits, limitsDetail)
	for _, l := range []struct {
		resource int
		max      uint64
	}{{unix.RLIMIT_CORE, 0}, {unix.RLIMIT_NOFILE, maxOpenFiles}, {unix.RLIMIT_FSIZE, maxFileSize}, {unix.RLIMIT_MEMLOCK, 0}} {
		var now unix.Rlimit
		if err := unix.Getrlimit(l.resource, &now); err != nil {
			return w, err
		}
		now.Max = min(now.Max, l.max)
		now.Cur = min(now.Max, l.max)
		if err := unix.Setrlimit(l.resource, &now); err != nil {
			return w, err
		}
	}
	return w, nil
}

// landlockABI is the version that the kernel has; 0: none.
func landlockABI() int {
	v, err := llsys.LandlockGetABIVersion()
	if err != nil {
		return 0
	}
	return v
}

func landlockWall(abi int) sandbox.Protection {
	if abi < 1 {
		return missing(wallLandlock, "the kernel has no Landlock, or it is not enabled (Linux 5.13 and later; lsm=landlock,… on the kernel's command line)")
	}
	return stands(wallLandlock, fmt.Sprintf("ABI %d: only the owner's folder can be changed, and only the cache be read", abi))
}

func applyLandlock(p Policy) (sandbox.Protection, error) {
	w := landlockWall(landlockABI())
	if !w.Active {
		return w, nil
	}
	// The newest version that the library knows, less what the kernel lacks;
	// everything that no rule allows is denied, the network included.
	return w, landlock.V6.BestEffort().Restrict(landlock.RWDirs(p.Writable...).WithRefer(), landlock.RODirs(p.Readable...))
}

func applyUser(p Policy) (sandbox.Protection, error) {
	if os.Geteuid() != 0 {
		return missing(wallUser, userMissing), nil
	}
	w := stands(wallUser, userDetail)
	if p.UID == 0 {
		return missing(wallUser, "the worker runs as root: no user was given to it"), nil
	}
	if err := syscall.Setgroups([]int{}); err != nil {
		return w, fmt.Errorf("giving up the groups: %w", err)
	}
	if err := syscall.Setresgid(p.GID, p.GID, p.GID); err != nil {
		return w, fmt.Errorf("changing the group: %w", err)
	}
	if err := syscall.Setresuid(p.UID, p.UID, p.UID); err != nil {
		return w, fmt.Errorf("changing the user: %w", err)
	}
	if os.Geteuid() != p.UID || syscall.Setuid(0) == nil {
		return w, errors.New("the user can be changed back")
	}
	return w, nil
}

// applyCapabilities checks what changing the user did: a process of another
// user has none, and without new privileges it gets none.
func applyCapabilities(Policy) (sandbox.Protection, error) {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&head, &sets[0]); err != nil {
		return stands(wallCapabilities, ""), err
	}
	if sets[0].Effective|sets[1].Effective|sets[0].Permitted|sets[1].Permitted != 0 {
		return missing(wallCapabilities, "the worker has capabilities, for it runs as root or was given them"), nil
	}
	return stands(wallCapabilities, capabilitiesDetail), nil
}

func applyDump(Policy) (sandbox.Protection, error) {
	return stands(wallDump, dumpDetail), unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}
