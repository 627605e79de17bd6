package confine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// parent is read before the walls stand: asking for it is among what they refuse.
var parent = os.Getppid()

// try is something that a confined process may want to do.
type try struct {
	name string
	// wall is what refuses it, and how; empty: it has to work.
	wall string
	how  syscall.Errno
	do   func(*confined) error
}

func tries() []try {
	var all []try
	add := func(wall string, how syscall.Errno, list []try) {
		for _, t := range list {
			t.wall, t.how = wall, how
			all = append(all, t)
		}
	}
	add(wallSeccomp, syscall.EPERM, calls())
	add(wallSeccomp, syscall.EPERM, deeds())
	add(wallLandlock, syscall.EACCES, trespasses())
	add(wallLimits, syscall.EFBIG, []try{{name: "a file beyond the limit", do: func(c *confined) error {
		f, err := c.root.Create("large")
		if err != nil {
			return err
		}
		_, err = f.WriteAt([]byte("x"), 1<<20)
		return errors.Join(err, f.Close(), c.root.Remove("large"))
	}}})
	add(wallLimits, syscall.EMFILE, []try{{name: "more open files than the limit", do: func(*confined) (err error) {
		var fds []int
		for range 400 {
			fd, e := unix.MemfdCreate("one of many", unix.MFD_CLOEXEC)
			if e != nil {
				err = e
				break
			}
			fds = append(fds, fd)
		}
		for _, fd := range fds {
			unix.Close(fd)
		}
		return err
	}}})
	if neverExecutable == 0 {
		return append(all, append(compiling(), needs()...)...)
	}
	add(wallSeccomp, syscall.EPERM, []try{{name: "memory that becomes executable", do: executable}})
	return append(all, needs()...)
}

// calls are system calls with arguments that are harmless, or senseless, so
// that trying them without the filter does nothing either.
func calls() []try {
	parent, never := uintptr(parent), ^uintptr(0)
	var list []try
	for _, c := range []struct {
		name      string
		number    uintptr
		arguments [6]uintptr
	}{
		{"a TCP socket", unix.SYS_SOCKET, [6]uintptr{unix.AF_INET, unix.SOCK_STREAM}},
		{"a socket of the machine", unix.SYS_SOCKET, [6]uintptr{unix.AF_UNIX, unix.SOCK_DGRAM}},
		{"a process that shares nothing", unix.SYS_CLONE, [6]uintptr{unix.CLONE_THREAD}}, // not valid, so not made
		{"tracing a process", unix.SYS_PTRACE, [6]uintptr{unix.PTRACE_ATTACH, 1 << 30}},
		{"reading a process's memory", unix.SYS_PROCESS_VM_READV, [6]uintptr{parent, 0, 0, 0, 0, 1}},
		{"writing a process's memory", unix.SYS_PROCESS_VM_WRITEV, [6]uintptr{parent, 0, 0, 0, 0, 1}},
		{"comparing with a process", unix.SYS_KCMP, [6]uintptr{parent, parent}},
		{"a handle of a process", unix.SYS_PIDFD_OPEN, [6]uintptr{parent}},
		{"a signal to the parent", unix.SYS_KILL, [6]uintptr{parent}},
		{"a signal to itself as a process", unix.SYS_KILL, [6]uintptr{uintptr(os.Getpid())}},
		{"a signal to a thread of the parent", unix.SYS_TGKILL, [6]uintptr{parent, parent}},
		{"a signal to a thread by its number alone", unix.SYS_TKILL, [6]uintptr{parent}},
		{"a signal with a message", unix.SYS_RT_SIGQUEUEINFO, [6]uintptr{parent}},
		{"leaving a namespace", unix.SYS_UNSHARE, [6]uintptr{}},
		{"joining a namespace", unix.SYS_SETNS, [6]uintptr{never}},
		{"unmounting", unix.SYS_UMOUNT2, [6]uintptr{}},
		{"opening a file system", unix.SYS_FSOPEN, [6]uintptr{}},
		{"moving a mount", unix.SYS_MOVE_MOUNT, [6]uintptr{never, 0, never}},
		{"another root", unix.SYS_CHROOT, [6]uintptr{}},
		{"the keys of the kernel", unix.SYS_KEYCTL, [6]uintptr{9999}},
		{"a new key", unix.SYS_ADD_KEY, [6]uintptr{}},
		{"programs in the kernel", unix.SYS_BPF, [6]uintptr{9999}},
		{"performance counters", unix.SYS_PERF_EVENT_OPEN, [6]uintptr{}},
		{"an io_uring", unix.SYS_IO_URING_SETUP, [6]uintptr{}},
		{"faults of its own", unix.SYS_USERFAULTFD, [6]uintptr{1 << 30}},
		{"another kernel", unix.SYS_KEXEC_LOAD, [6]uintptr{0, 0, 0, 1 << 20}},
		{"a module", unix.SYS_INIT_MODULE, [6]uintptr{}},
		{"a module from a file", unix.SYS_FINIT_MODULE, [6]uintptr{never}},
		{"a file by its handle", unix.SYS_OPEN_BY_HANDLE_AT, [6]uintptr{never}},
		{"a file's handle", unix.SYS_NAME_TO_HANDLE_AT, [6]uintptr{never}},
		{"asking for the personality", unix.SYS_PERSONALITY, [6]uintptr{0xffffffff}},
		{"a command to a device", unix.SYS_IOCTL, [6]uintptr{0, unix.TIOCGWINSZ}},
		{"the parent's limits", unix.SYS_PRLIMIT64, [6]uintptr{parent, unix.RLIMIT_NOFILE}},
		{"capabilities", unix.SYS_CAPSET, [6]uintptr{}},
		{"groups", unix.SYS_SETGROUPS, [6]uintptr{1 << 20}},
		{"root's user", unix.SYS_SETUID, [6]uintptr{}},
		{"another filter", unix.SYS_SECCOMP, [6]uintptr{9999}},
		{"shared memory", unix.SYS_SHMGET, [6]uintptr{}},
		{"watching files", unix.SYS_INOTIFY_INIT1, [6]uintptr{1}},
		{"another folder to work in", unix.SYS_CHDIR, [6]uintptr{}},
		{"moving waiters to a futex with priorities", unix.SYS_FUTEX, [6]uintptr{0, 12}},
	} {
		do := func() error {
			a := c.arguments
			_, _, e := syscall.RawSyscall6(c.number, a[0], a[1], a[2], a[3], a[4], a[5])
			if e != 0 {
				return e
			}
			return nil
		}
		list = append(list,
			try{name: c.name, do: func(*confined) error { return do() }},
			try{name: c.name + ", on an older thread", do: func(f *confined) error { return f.onOldThread(do) }})
	}
	return list
}

// deeds are refused by the filter too, but need more than a number.
func deeds() []try {
	onSocket := func(number uintptr) func(*confined) error {
		return func(c *confined) error {
			if _, _, e := syscall.RawSyscall(number, c.socket, 0, 0); e != 0 {
				return e
			}
			return nil
		}
	}
	return []try{
		{name: "connecting the inherited socket", do: onSocket(unix.SYS_CONNECT)},
		{name: "binding the inherited socket", do: onSocket(unix.SYS_BIND)},
		{name: "listening on the inherited socket", do: onSocket(unix.SYS_LISTEN)},
		{name: "accepting from the inherited socket", do: onSocket(unix.SYS_ACCEPT4)},
		{name: "sending descriptors", do: onSocket(unix.SYS_SENDMSG)},
		{name: "receiving descriptors", do: onSocket(unix.SYS_RECVMSG)},
		{name: "signals of a descriptor to the parent", do: func(c *confined) error {
			_, err := unix.FcntlInt(c.socket, unix.F_SETOWN, parent)
			return err
		}},
		{name: "starting a program", do: func(*confined) error {
			_, err := syscall.ForkExec("/bin/true", []string{"true"}, nil)
			return err
		}},
		{name: "becoming a program", do: func(*confined) error { return syscall.Exec("/nowhere", nil, nil) }},
		{name: "becoming a program that lies in memory", do: func(*confined) error {
			none := [1]byte{}
			_, _, e := syscall.RawSyscall6(unix.SYS_EXECVEAT, ^uintptr(0), uintptr(unsafe.Pointer(&none)), 0, 0, unix.AT_EMPTY_PATH, 0)
			return e
		}},
		{name: "mounting", do: func(c *confined) error { return unix.Mount("none", c.writable, "no-such-thing", 0, "") }},
		{name: "a pipe with a name", do: func(c *confined) error {
			path := filepath.Join(c.writable, "pipe")
			defer os.Remove(path)
			return unix.Mkfifo(path, 0o600)
		}},
		{name: "rights of its own file", do: func(c *confined) error {
			f, err := c.root.Create("rights")
			if err != nil {
				return err
			}
			return errors.Join(f.Chmod(0o777), f.Close())
		}},
		{name: "rights of a file outside", do: func(c *confined) error { return os.Chmod(filepath.Join(c.Outside, "secret"), 0o666) }},
		{name: "the owner of its own file", do: func(c *confined) error { return c.root.Chown("rights", os.Getuid(), os.Getgid()) }},
	}
}

// trespasses reach beyond the policy's folders. The files' own rights allow
// them to everybody.
func trespasses() []try {
	read := func(path string) func(*confined) error {
		return func(*confined) error {
			_, err := os.ReadFile(path)
			return err
		}
	}
	list := func(path string) func(*confined) error {
		return func(*confined) error {
			_, err := os.ReadDir(path)
			return err
		}
	}
	// at does something with a path outside, or in the readable folder.
	outside := func(name string, do func(path string) error) func(*confined) error {
		return func(c *confined) error { return do(filepath.Join(c.Outside, name)) }
	}
	readable := func(name string, do func(path string) error) func(*confined) error {
		return func(c *confined) error { return do(filepath.Join(c.readable, name)) }
	}
	create := func(path string) error { return os.WriteFile(path, nil, 0o600) }
	change := func(path string) error {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return f.Close()
	}
	return []try{
		{name: "listing the root folder", do: list("/")},
		{name: "listing the root folder, on an older thread", do: func(c *confined) error {
			return c.onOldThread(func() error { return list("/")(c) })
		}},
		{name: "the list of users", do: read("/etc/passwd")},
		{name: "its own environment", do: read("/proc/self/environ")},
		{name: "its own memory", do: func(*confined) error { return change("/proc/self/mem") }},
		{name: "the parent's command line", do: read(fmt.Sprintf("/proc/%d/cmdline", parent))},
		{name: "the system's settings", do: list("/sys")},
		{name: "a device", do: func(*confined) error { return change("/dev/null") }},
		{name: "reading outside", do: outside("secret", func(path string) error { return read(path)(nil) })},
		{name: "listing outside", do: outside("", func(path string) error { return list(path)(nil) })},
		{name: "changing outside", do: outside("secret", change)},
		{name: "making a file outside", do: outside("new", create)},
		{name: "making a folder outside", do: outside("folder", func(path string) error { return os.Mkdir(path, 0o700) })},
		{name: "making a link outside", do: outside("link", func(path string) error { return os.Symlink("secret", path) })},
		{name: "removing outside", do: outside("victim", os.Remove)},
		{name: "following a planted link outside", do: func(c *confined) error {
			link := filepath.Join(c.writable, "planted")
			if err := os.Symlink(filepath.Join(c.Outside, "secret"), link); err != nil {
				return err
			}
			return read(link)(c)
		}},
		{name: "taking a file in from outside", do: outside("loot", func(path string) error {
			return os.Rename(path, path+" moved")
		})},
		{name: "moving a file out", do: func(c *confined) error {
			if err := c.root.WriteFile("own", nil, 0o600); err != nil {
				return err
			}
			return os.Rename(filepath.Join(c.writable, "own"), filepath.Join(c.Outside, "own"))
		}},
		{name: "changing what may be read", do: readable("file", change)},
		{name: "making a file among what may be read", do: readable("new", create)},
		{name: "removing what may be read", do: readable("victim", os.Remove)},
	}
}
