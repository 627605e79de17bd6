//go:build linux && (amd64 || arm64)

package linux

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/google/subcommands"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/cpuid"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/syscalls"
	calls "gvisor.dev/gvisor/pkg/sentry/syscalls/linux"
	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"

	"paddock/internal/sandbox/linux/gvisorfix"
)

// sentrySetup is what a sentry is told.
type sentrySetup struct {
	Who identity `json:"who"`
	// Args are the command line of gVisor's boot, without the program's name.
	Args []string `json:"args"`
	// OpenFiles bounds how many files of the host it may have open; 0: as inherited.
	OpenFiles uint64 `json:"open_files,omitempty"`
	// Ahead is how many huge pages a process may be given before it has filled them;
	// 0: there are none.
	Ahead int `json:"ahead,omitempty"`
	// Cached are folders that the sentry may remember, with Page, which of its files has
	// the number that is raised when they have changed from outside; 0: none has, and
	// nothing is remembered.
	Cached []gvisorfix.CachedFolder `json:"cached,omitempty"`
	Page   int                      `json:"page,omitempty"`
}

// runSentry is gVisor's kernel for one box. It sees nothing of the host but its
// own processes, and has no rights; then gVisor's own command takes over, which
// installs its filter of system calls before the box's first program starts.
func runSentry(socket *os.File) error {
	var setup sentrySetup
	if err := receive(socket, &setup); err != nil {
		return err
	}
	cpuid.Initialize() // looks into /proc
	if err := cacheFolders(setup); err != nil {
		fmt.Fprintln(os.Stderr, "folders are not cached:", err)
	}
	if err := newRoot(); err != nil {
		return err
	}
	if err := build([]step{{Path: "proc", Dir: 0o755}, {Path: "proc/own", Dir: 0o755}}); err != nil {
		return err
	}
	if err := ownProc(scaffold + "/proc/own"); err != nil {
		return err
	}
	if err := build([]step{{Path: "proc/self", Link: "own/self"}, {Path: "proc/cpuinfo", Link: "own/cpuinfo"}}); err != nil {
		return err
	}
	if err := enter(); err != nil {
		return err
	}
	if setup.OpenFiles > 0 {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: setup.OpenFiles, Max: setup.OpenFiles}); err != nil {
			return fmt.Errorf("limiting open files: %w", err)
		}
	}
	if err := drop(setup.Who); err != nil {
		return err
	}
	syscall.Umask(0) // what the sentry makes has the program's in it already
	if err := ready(socket); err != nil {
		return err
	}
	signal.Ignore(unix.SIGXFSZ) // a write beyond a limit is an error, see watch.shutLocked
	withoutReserving()
	gvisorfix.DropStaleEpollInterests()
	if err := gvisorfix.RegisterPlatform(setup.Ahead); err != nil {
		return err
	}
	os.Args = append([]string{"runsc-sandbox"}, setup.Args...)
	cli.Run(map[subcommands.Command]string{new(cmd.Boot): ""}, nil)
	return nil // not reached
}

// withoutReserving takes from a box's programs the one call that makes files take room
// on the disk without a byte being written: with it they would fill it between two
// looks of the watch. The C library writes zeros in its place.
func withoutReserving() {
	for _, table := range []*kernel.SyscallTable{calls.AMD64, calls.ARM64} {
		for number, call := range table.Table {
			if call.Name == "fallocate" {
				table.Table[number] = syscalls.Error(call.Name, linuxerr.EOPNOTSUPP, "", nil)
			}
		}
		table.Init()
	}
}

// ownProc shows the sentry's own processes; where a part of /proc is hidden from
// paddock itself, as it is in containers, a new one may not be mounted, and it is
// the old one with the same things hidden.
func ownProc(path string) error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_RDONLY
	err := unix.Mount("proc", path, "proc", flags, "")
	if err == nil {
		return nil
	}
	// What is shown of /proc must not hold the new root again.
	if err := unix.Mount("", scaffold, "", unix.MS_UNBINDABLE, ""); err != nil {
		return fmt.Errorf("keeping the new root apart: %w", err)
	}
	if again := unix.Mount("/proc", path, "", unix.MS_BIND|unix.MS_REC, ""); again != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC | unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, path, unix.AT_RECURSIVE, &attr); err != nil {
		return fmt.Errorf("protecting /proc: %w", err)
	}
	return nil
}
