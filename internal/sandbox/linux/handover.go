//go:build linux && (amd64 || arm64)

package linux

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"

	"paddock/internal/sandbox/linux/gvisorfix"
)

// Nothing that is open now is meant for a child.
func init() { gvisorfix.CloseFilesOnExec() }

// The names (argv[0]) of the paddock binary as a part of a box.
const (
	sentryRole = "paddock-sentry" // gVisor's kernel, which the box's programs run on
	goferRole  = "paddock-gofer"  // hands the box's folders to the sentry
)

// Where a part finds what it begins with.
const (
	setupFD   = 3 // a socket: how it is to set itself up, and when it may go on
	firstFile = 4 // its own files
)

// identity is whom a part becomes, in its user namespace.
type identity struct {
	ID int `json:"id"` // user and group
	// Change says that it begins as somebody else, who may change who they are.
	Change bool `json:"change,omitempty"`
}

// Requested tells whether this process was started as a part of a box.
func Requested(args []string) bool {
	return len(args) > 0 && (args[0] == sentryRole || args[0] == goferRole)
}

// Main is a part's whole life; it gives the process's exit code. It has to be
// called before anything else has been done: nothing may be open but what the
// server gave, and it gives up rights on every thread that there is.
func Main(args []string) int {
	runtime.LockOSThread() // the end of the server is told to a thread
	run := runGofer
	if args[0] == sentryRole {
		run = runSentry
	}
	socket := os.NewFile(setupFD, "setup")
	unix.CloseOnExec(setupFD)
	if err := run(socket); err != nil {
		// There is nobody but the server to tell, and it is waiting.
		_, _ = fmt.Fprintln(socket, err)
		return 1
	}
	return 0
}

// receive reads what the server says at first.
func receive(socket *os.File, setup any) error {
	var size [4]byte
	if _, err := io.ReadFull(socket, size[:]); err != nil {
		return fmt.Errorf("waiting for the set-up: %w", err)
	}
	body := make([]byte, *(*uint32)(unsafe.Pointer(&size)))
	if _, err := io.ReadFull(socket, body); err != nil {
		return fmt.Errorf("reading the set-up: %w", err)
	}
	return json.Unmarshal(body, setup)
}

// ready tells the server that everything stands, and waits for its word. The
// process ends with the server.
func ready(socket *os.File) error {
	if err := tie(); err != nil {
		return err
	}
	if _, err := socket.Write([]byte{0}); err != nil {
		return err
	}
	var word [1]byte
	if _, err := io.ReadFull(socket, word[:]); err != nil {
		return errors.New("the server has gone")
	}
	return socket.Close()
}

// tie lets this process end with the server, which the kernel forgets at a change
// of user. Where the server has gone already it is an error.
func tie() error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("asking to end with the server: %w", err)
	}
	hangup := []unix.PollFd{{Fd: setupFD}}
	n, err := unix.Poll(hangup, 0)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Poll(hangup, 0)
	}
	if err == nil && n > 0 {
		err = errors.New("the server has gone")
	}
	return err
}

// drop gives up every right on all threads, for good.
func drop(who identity) error {
	if who.Change {
		if err := syscall.Setgroups([]int{who.ID}); err != nil {
			return fmt.Errorf("giving up the groups: %w", err)
		}
		if err := syscall.Setresgid(who.ID, who.ID, who.ID); err != nil {
			return fmt.Errorf("changing the group: %w", err)
		}
		if err := syscall.Setresuid(who.ID, who.ID, who.ID); err != nil {
			return fmt.Errorf("changing the user: %w", err)
		}
		// At once: what follows takes every thread, and whoever waits for one that
		// does not come must not wait for ever.
		if err := tie(); err != nil {
			return err
		}
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var nothing [2]unix.CapUserData
	_, _, e := psx.Syscall3(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&nothing)), 0)
	runtime.KeepAlive(&head)
	runtime.KeepAlive(&nothing)
	if e != 0 {
		return fmt.Errorf("giving up capabilities: %w", e)
	}
	if _, _, e := psx.Syscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); e != 0 {
		return fmt.Errorf("giving up new privileges: %w", e)
	}
	held := [2]unix.CapUserData{{Effective: 1}}
	if err := unix.Capget(&head, &held[0]); err != nil || held != nothing {
		return fmt.Errorf("capabilities are left: %v, %w", held, err)
	}
	if os.Getuid() != who.ID || os.Geteuid() != who.ID || os.Getgid() != who.ID || os.Getegid() != who.ID {
		return errors.New("the system took the change of user and did not make it")
	}
	// No core dump, also none that a program of the host takes: to that, one byte is
	// none, and zero is not a limit.
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1}); err != nil {
		return fmt.Errorf("giving up core dumps: %w", err)
	}
	// A change of user makes a process one that cannot be looked into, not even
	// by itself; the sentry traces its own children.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("setting dumpable: %w", err)
	}
	return nil
}
