package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// nativeRole is this program's name (argv[0]) where it becomes a program of an
// image, on this machine's own kernel.
const nativeRole = "paddock-bench-native"

// nativeUser is whom such a program runs as: nobody, as in a box.
const nativeUser = 65534

// nativeRequested tells whether this process was started for that.
func nativeRequested(args []string) bool { return args[0] == nativeRole }

// native runs a program of an image with the image as its root and a folder of
// the host as its working folder, and gives what it prints. It needs root.
func native(image, folder string, env []string, program ...string) (string, error) {
	cmd := nativeCommand(image, folder, env, program...)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s on this machine's kernel: %w %s", program[0], err, complaint.String())
	}
	return string(out), err
}

func nativeCommand(image, folder string, env []string, program ...string) *exec.Cmd {
	return &exec.Cmd{
		Path: "/proc/self/exe", Args: append([]string{nativeRole, image, folder}, program...), Env: env,
		SysProcAttr: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID, Pdeathsig: unix.SIGKILL},
	}
}

// nativeMain is such a process until it becomes the program.
func nativeMain(args []string) error {
	if len(args) < 4 {
		return errors.New("an image, a folder and a program are needed")
	}
	image, folder, program := args[1], args[2], args[3:]
	const work = "/mnt"
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
	}{
		{"", "/", "", unix.MS_PRIVATE | unix.MS_REC},
		{image, image, "", unix.MS_BIND},
		{"proc", image + "/proc", "proc", 0},
		{"/dev", image + "/dev", "", unix.MS_BIND | unix.MS_REC},
		{folder, image + work, "", unix.MS_BIND},
		{"tmp", image + "/tmp", "tmpfs", 0},
	} {
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", m.target, err)
		}
	}
	if err := errors.Join(syscall.Chroot(image), os.Chdir(work)); err != nil {
		return fmt.Errorf("changing the root: %w", err)
	}
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(nativeUser), syscall.Setuid(nativeUser)); err != nil {
		return fmt.Errorf("changing the user: %w", err)
	}
	for _, dir := range filepath.SplitList("/usr/local/bin:/usr/bin:/bin") {
		err := syscall.Exec(filepath.Join(dir, program[0]), program, append(os.Environ(), "PATH=/usr/local/bin:/usr/bin:/bin", "HOME="+work, "LANG=C.UTF-8"))
		if !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("executing %s: %w", program[0], err)
		}
	}
	return fmt.Errorf("there is no %s in the image", program[0])
}
