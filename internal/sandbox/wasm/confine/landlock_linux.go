package confine

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/landlock-lsm/go-landlock/landlock"
	llsys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"paddock/internal/sandbox"
)

// What the folders are opened for. Programs cannot be run from them. Pipes and
// sockets are there because moving one counts as making it; the filter of
// system calls lets none be made.
const (
	reading = llsys.AccessFSReadFile | llsys.AccessFSReadDir
	writing = reading | llsys.AccessFSWriteFile | llsys.AccessFSTruncate |
		llsys.AccessFSRemoveFile | llsys.AccessFSRemoveDir |
		llsys.AccessFSMakeReg | llsys.AccessFSMakeDir | llsys.AccessFSMakeSym | llsys.AccessFSMakeFifo | llsys.AccessFSMakeSock
)

// closes tells what each version of Landlock closes beyond the one before.
var closes = []struct {
	abi  int
	what string
}{
	{1, "no opening of files outside of its folders"},
	{3, "no truncating of them"},
	{4, "no TCP"},
	{5, "no device commands"},
	{6, "no signals or abstract sockets to processes outside"},
	{9, "no named sockets of processes outside"},
	{10, "no UDP"},
}

func lookLandlock() sandbox.Protection {
	abi, err := llsys.LandlockGetABIVersion()
	if err != nil || abi < 1 {
		return missing(wallLandlock, "%s", withoutLandlock(err))
	}
	var all []string
	for _, c := range closes {
		if c.abi <= abi {
			all = append(all, c.what)
		}
	}
	return standing(wallLandlock, "version %d: %s", abi, strings.Join(all, ", "))
}

// withoutLandlock says why there is none, and what to change.
func withoutLandlock(err error) string {
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return "the kernel has Landlock, but it is switched off: add landlock to lsm= on the kernel's command line"
	case errors.Is(err, unix.ENOSYS):
		return "the kernel has no Landlock: it came with Linux 5.13, as the option CONFIG_SECURITY_LANDLOCK"
	case err != nil:
		return fmt.Sprintf("Landlock is refused (%v): a container around paddock has to allow the system calls landlock_*", err)
	}
	return "the kernel names no version of Landlock"
}

// restrictFiles lets all threads open files below the policy's folders only,
// and closes whatever else the kernel's Landlock knows.
func restrictFiles(p Policy) error {
	abi, err := llsys.LandlockGetABIVersion()
	if err != nil {
		return err
	}
	write := landlock.AccessFSSet(writing)
	if abi >= 2 {
		// Version 1 refuses moves between folders whatever is asked for, and the
		// library would rather do nothing at all than ask for them there.
		write |= llsys.AccessFSRefer
	}
	err = landlock.V11.BestEffort().Restrict(
		landlock.PathAccess(write, p.Writable...), landlock.PathAccess(reading, p.Readable...))
	if err != nil {
		return err
	}
	if slices.ContainsFunc(slices.Concat(p.Writable, p.Readable), func(dir string) bool { return filepath.Clean(dir) == "/" }) {
		return nil
	}
	fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
		return errors.New("the kernel took the rules and does not keep them")
	}
	return nil
}
