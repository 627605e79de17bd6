package confine

import (
	"encoding/binary"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// verdict runs the filter of process 42 in Go's own machine for such programs,
// which reads words as they come from a network; so we write them that way.
func verdict(t *testing.T, arch, number uint32, arguments ...uint64) uint32 {
	t.Helper()
	machine, err := bpf.NewVM(filter(42))
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[offsetNumber:], number)
	binary.BigEndian.PutUint32(data[offsetArch:], arch)
	for i, a := range arguments {
		binary.BigEndian.PutUint32(data[offsetArguments+8*i:], uint32(a))
		binary.BigEndian.PutUint32(data[offsetArguments+8*i+4:], uint32(a>>32))
	}
	v, err := machine.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(v)
}

func TestTheFilterLooksAtArguments(t *testing.T) {
	const (
		goThread = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_SYSVSEM | unix.CLONE_THREAD
		cThread  = goThread | unix.CLONE_SETTLS | unix.CLONE_PARENT_SETTID | unix.CLONE_CHILD_CLEARTID
		noSys    = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
		invalid  = unix.SECCOMP_RET_ERRNO | uint32(unix.EINVAL)
		other    = unix.AUDIT_ARCH_ARM // none of ours
	)
	for _, c := range []struct {
		name      string
		arch      uint32
		number    uint32
		arguments []uint64
		want      uint32
	}{
		{"reading", auditArch, unix.SYS_READ, nil, allow},
		{"a socket", auditArch, unix.SYS_SOCKET, nil, refuse},
		{"a number of no call", auditArch, 5000, nil, refuse},
		{"another architecture's call of an allowed number", other, unix.SYS_READ, nil, kill},
		{"a 32-bit number on a 64-bit kernel", auditArch, 0x40000000 | unix.SYS_READ, nil, kill},
		{"a number with its highest bit set", auditArch, 0x80000000 | unix.SYS_READ, nil, kill},
		{"a thread as Go makes it", auditArch, unix.SYS_CLONE, []uint64{goThread}, allow},
		{"a thread as the C library makes it", auditArch, unix.SYS_CLONE, []uint64{cThread}, allow},
		{"a process", auditArch, unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD)}, refuse},
		{"a process that shares memory", auditArch, unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_VFORK | uint64(unix.SIGCHLD)}, refuse},
		{"a thread in a new user namespace", auditArch, unix.SYS_CLONE, []uint64{goThread | unix.CLONE_NEWUSER}, refuse},
		{"a thread that is traced like its parent", auditArch, unix.SYS_CLONE, []uint64{goThread | unix.CLONE_PTRACE}, refuse},
		{"a thread with a signal at its end", auditArch, unix.SYS_CLONE, []uint64{goThread | uint64(unix.SIGCHLD)}, refuse},
		{"a clone whose flags cannot be seen", auditArch, unix.SYS_CLONE3, nil, noSys},
		{"a signal to a thread of ours", auditArch, unix.SYS_TGKILL, []uint64{42, 43}, allow},
		{"a signal to a thread of another", auditArch, unix.SYS_TGKILL, []uint64{41, 42}, refuse},
		{"a signal to a process whose number is ours in its lower half only, which is all the kernel takes", auditArch, unix.SYS_TGKILL, []uint64{1<<32 | 42, 43}, allow},
		{"asking for a descriptor's flags", auditArch, unix.SYS_FCNTL, []uint64{3, unix.F_GETFL}, allow},
		{"naming a process that gets a descriptor's signals", auditArch, unix.SYS_FCNTL, []uint64{3, unix.F_SETOWN, 1}, refuse},
		{"naming it in the newer way", auditArch, unix.SYS_FCNTL, []uint64{3, unix.F_SETOWN_EX, 1}, refuse},
		{"choosing that signal", auditArch, unix.SYS_FCNTL, []uint64{3, unix.F_SETSIG, 9}, refuse},
		{"waiting on a futex", auditArch, unix.SYS_FUTEX, []uint64{0, 128}, allow},
		{"waiting on a futex until a time of day", auditArch, unix.SYS_FUTEX, []uint64{0, 9 | 128 | 256}, allow},
		{"moving waiters to a futex with priorities", auditArch, unix.SYS_FUTEX, []uint64{0, 12 | 128}, refuse},
		{"searching the page map", auditArch, unix.SYS_IOCTL, []uint64{3, 0xc0606610}, allow},
		{"searching it with other bits above", auditArch, unix.SYS_IOCTL, []uint64{3, 1<<32 | 0xc0606610}, allow},
		{"arming memory", auditArch, unix.SYS_IOCTL, []uint64{3, 0xc020aa00}, allow},
		{"moving a page into memory where it faults", auditArch, unix.SYS_IOCTL, []uint64{3, 0xc028aa03}, refuse},
		{"typing into a terminal", auditArch, unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI}, refuse},
		{"setting a process's attributes", auditArch, unix.SYS_PRCTL, []uint64{unix.PR_SET_DUMPABLE, 1}, invalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := verdict(t, c.arch, c.number, c.arguments...); got != c.want {
				t.Errorf("the filter says %#x, want %#x", got, c.want)
			}
		})
	}
}

// What is refused by number alone, whatever the lists above it become.
func TestTheFilterNeverAllowsWhatReachesOutside(t *testing.T) {
	for number := range uint32(1024) {
		if dangerous[number] != "" && verdict(t, auditArch, number) == allow {
			t.Errorf("%s is allowed", dangerous[number])
		}
	}
}

var dangerous = map[uint32]string{
	unix.SYS_SOCKET: "socket", unix.SYS_SOCKETPAIR: "socketpair", unix.SYS_CONNECT: "connect", unix.SYS_BIND: "bind",
	unix.SYS_LISTEN: "listen", unix.SYS_ACCEPT: "accept", unix.SYS_ACCEPT4: "accept4", unix.SYS_SENDTO: "sendto",
	unix.SYS_SENDMSG: "sendmsg", unix.SYS_RECVMSG: "recvmsg", unix.SYS_EXECVE: "execve", unix.SYS_EXECVEAT: "execveat",
	unix.SYS_PTRACE: "ptrace", unix.SYS_PROCESS_VM_READV: "process_vm_readv", unix.SYS_PROCESS_VM_WRITEV: "process_vm_writev",
	unix.SYS_PROCESS_MADVISE: "process_madvise", unix.SYS_KCMP: "kcmp", unix.SYS_KILL: "kill", unix.SYS_TKILL: "tkill",
	unix.SYS_RT_SIGQUEUEINFO: "rt_sigqueueinfo", unix.SYS_RT_TGSIGQUEUEINFO: "rt_tgsigqueueinfo",
	unix.SYS_PIDFD_OPEN: "pidfd_open", unix.SYS_PIDFD_GETFD: "pidfd_getfd", unix.SYS_PIDFD_SEND_SIGNAL: "pidfd_send_signal",
	unix.SYS_MOUNT: "mount", unix.SYS_UMOUNT2: "umount2", unix.SYS_PIVOT_ROOT: "pivot_root", unix.SYS_CHROOT: "chroot",
	unix.SYS_MOVE_MOUNT: "move_mount", unix.SYS_OPEN_TREE: "open_tree", unix.SYS_FSOPEN: "fsopen", unix.SYS_FSMOUNT: "fsmount",
	unix.SYS_FSPICK: "fspick", unix.SYS_FSCONFIG: "fsconfig", unix.SYS_MOUNT_SETATTR: "mount_setattr",
	unix.SYS_KEYCTL: "keyctl", unix.SYS_ADD_KEY: "add_key", unix.SYS_REQUEST_KEY: "request_key", unix.SYS_BPF: "bpf",
	unix.SYS_PERF_EVENT_OPEN: "perf_event_open", unix.SYS_IO_URING_SETUP: "io_uring_setup", unix.SYS_IO_URING_ENTER: "io_uring_enter",
	unix.SYS_IO_URING_REGISTER: "io_uring_register", unix.SYS_USERFAULTFD: "userfaultfd", unix.SYS_UNSHARE: "unshare",
	unix.SYS_SETNS: "setns", unix.SYS_KEXEC_LOAD: "kexec_load", unix.SYS_INIT_MODULE: "init_module",
	unix.SYS_FINIT_MODULE: "finit_module", unix.SYS_DELETE_MODULE: "delete_module", unix.SYS_OPEN_BY_HANDLE_AT: "open_by_handle_at",
	unix.SYS_NAME_TO_HANDLE_AT: "name_to_handle_at", unix.SYS_PERSONALITY: "personality", unix.SYS_PRCTL: "prctl",
	unix.SYS_IOCTL: "ioctl", unix.SYS_SETUID: "setuid", unix.SYS_SETGID: "setgid", unix.SYS_SETRESUID: "setresuid",
	unix.SYS_SETRESGID: "setresgid", unix.SYS_SETGROUPS: "setgroups", unix.SYS_CAPSET: "capset", unix.SYS_SECCOMP: "seccomp",
	unix.SYS_PRLIMIT64: "prlimit64", unix.SYS_SETRLIMIT: "setrlimit", unix.SYS_FCHMOD: "fchmod", unix.SYS_FCHMODAT: "fchmodat",
	unix.SYS_FCHOWN: "fchown", unix.SYS_FCHOWNAT: "fchownat", unix.SYS_SETXATTR: "setxattr", unix.SYS_MKNODAT: "mknodat",
	unix.SYS_REBOOT: "reboot", unix.SYS_SWAPON: "swapon", unix.SYS_SYSLOG: "syslog", unix.SYS_CLOCK_SETTIME: "clock_settime",
	unix.SYS_SETTIMEOFDAY: "settimeofday", unix.SYS_ADJTIMEX: "adjtimex", unix.SYS_SHMGET: "shmget", unix.SYS_MSGGET: "msgget",
	unix.SYS_SEMGET: "semget", unix.SYS_MQ_OPEN: "mq_open", unix.SYS_INOTIFY_INIT1: "inotify_init1", unix.SYS_FANOTIFY_INIT: "fanotify_init",
	unix.SYS_CLONE: "clone without a thread's flags",
}
