//go:build linux && (amd64 || arm64)

package linux

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/unet"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/fsgofer"
	"gvisor.dev/gvisor/runsc/fsgofer/filter"
)

// goferSetup is what a gofer is told.
type goferSetup struct {
	Who   identity `json:"who"`
	Steps []step   `json:"steps"`
	// Exports are the folders that the sentry gets, one for each of the gofer's
	// files, in that order.
	Exports []export `json:"exports"`
}

type export struct {
	Path     string `json:"path"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// fdsPath is where a gofer's root has its list of open files, while it needs one.
const fdsPath = "/fds"

// runGofer shows the host's folders to the sentry until that has gone. It sees
// nothing of the host but them. The code that serves is gVisor's; what gVisor's
// own command does before it, in three processes one after the other, is done
// here in one.
func runGofer(socket *os.File) error {
	var setup goferSetup
	if err := receive(socket, &setup); err != nil {
		return err
	}
	if err := newRoot(); err != nil {
		return err
	}
	steps := append([]step{{Path: fdsPath, Bind: "/proc/self/fd", ReadOnly: true}}, setup.Steps...)
	if err := build(steps); err != nil {
		return err
	}
	if err := enter(); err != nil {
		return err
	}
	// The folder alone, not all of /proc: nothing leads out of it.
	if err := fsgofer.OpenProcSelfFD(fdsPath); err != nil {
		return err
	}
	if err := unix.Unmount(fdsPath, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("hiding open files: %w", err)
	}
	if err := drop(setup.Who); err != nil {
		return err
	}
	syscall.Umask(0) // what the sentry asks for has the program's in it already
	if err := ready(socket); err != nil {
		return err
	}
	if err := filter.Install(filter.Options{DirectFS: true, CgoEnabled: config.CgoEnabled}); err != nil {
		return fmt.Errorf("installing the filter of system calls: %w", err)
	}
	return serveFolders(setup)
}

func serveFolders(setup goferSetup) error {
	server := fsgofer.NewLisafsServer(fsgofer.Config{
		HostUDS: config.HostUDSNone, HostFifo: config.HostFifoNone, DonateMountPointFD: true,
		RUID: setup.Who.ID, EUID: setup.Who.ID, RGID: setup.Who.ID, EGID: setup.Who.ID,
	})
	for n, e := range setup.Exports {
		socket, err := unet.NewSocket(firstFile + n)
		if err != nil {
			return fmt.Errorf("using a socket: %w", err)
		}
		conn, err := server.CreateConnection(socket, e.Path, e.ReadOnly)
		if err != nil {
			return fmt.Errorf("serving a folder: %w", err)
		}
		server.StartConnection(conn)
	}
	server.Wait()
	server.Destroy()
	return nil
}
