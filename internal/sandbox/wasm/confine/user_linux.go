package confine

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"unsafe"

	llsys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"
)

// obstacle says what keeps root from becoming the policy's user, and what to
// change; empty: nothing.
func obstacle(p Policy) string {
	held, err := heldCapabilities()
	switch {
	case err != nil:
		return fmt.Sprintf("its capabilities cannot be read (%v)", err)
	case !held.effective(unix.CAP_SETUID) || !held.effective(unix.CAP_SETGID):
		return "it lacks the capabilities SETUID and SETGID; start paddock with them, or as an ordinary user"
	case !mapped("/proc/self/uid_map", p.UID) || !mapped("/proc/self/gid_map", p.GID):
		return fmt.Sprintf("its user namespace has no user %d and group %d; map them, or start paddock as an ordinary user", p.UID, p.GID)
	}
	if b, err := os.ReadFile("/proc/self/setgroups"); err == nil && strings.TrimSpace(string(b)) == "deny" {
		return "its user namespace does not let groups be given up; start paddock as an ordinary user"
	}
	return ""
}

// mapped tells whether a map of a user namespace holds id. Where there is no
// map there is no namespace, and every id is there.
func mapped(path string, id int) bool {
	b, err := os.ReadFile(path)
	if err != nil {
		return true
	}
	for line := range strings.Lines(string(b)) {
		var inside, outside, count int
		if n, _ := fmt.Sscan(line, &inside, &outside, &count); n == 3 && id >= inside && id-inside < count {
			return true
		}
	}
	return false
}

// capabilities are the sets of a thread, the lower and the upper 32.
type capabilities [2]unix.CapUserData

func heldCapabilities() (capabilities, error) {
	var c capabilities
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	return c, unix.Capget(&head, &c[0])
}

func (c capabilities) effective(n int) bool { return c[n/32].Effective&(1<<(n%32)) != 0 }

// emptyBoundingSet takes away what a program with capabilities of its own
// could get. Who lacks the right to do that has no such rights to pass on, and
// has renounced new ones.
func emptyBoundingSet(Policy) error {
	held, err := heldCapabilities()
	if err != nil {
		return fmt.Errorf("reading them: %w", err)
	}
	if !held.effective(unix.CAP_SETPCAP) {
		return nil
	}
	for n := range 64 {
		bound, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(n), 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			return nil // the kernel's last one is behind us
		}
		if err != nil {
			return fmt.Errorf("reading the bounding set: %w", err)
		}
		if bound == 0 {
			continue
		}
		if err := llsys.AllThreadsPrctl(unix.PR_CAPBSET_DROP, uintptr(n), 0, 0, 0); err != nil {
			return fmt.Errorf("taking %d from the bounding set: %w", n, err)
		}
	}
	return nil
}

// dropCapabilities gives up on all threads what a change of user has left, or
// everything where there was none. The ambient set follows the permitted one.
func dropCapabilities(Policy) error {
	held, err := heldCapabilities()
	if err != nil {
		return fmt.Errorf("reading them: %w", err)
	}
	if held == (capabilities{}) {
		return nil
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var nothing capabilities
	_, _, e := psx.Syscall3(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&nothing)), 0)
	runtime.KeepAlive(&head)
	runtime.KeepAlive(&nothing)
	if e != 0 {
		return fmt.Errorf("giving them up: %w", e)
	}
	if held, err = heldCapabilities(); err != nil {
		return fmt.Errorf("checking them: %w", err)
	}
	if held != (capabilities{}) {
		return errors.New("the kernel took the change and did not make it")
	}
	return nil
}
