package confine

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"paddock/internal/sandbox"
)

// What the filter answers. A call that is not in its lists is refused like one
// for which rights are missing; a program for another architecture's calls
// cannot be ours and is ended.
const (
	allow  = unix.SECCOMP_RET_ALLOW
	kill   = unix.SECCOMP_RET_KILL_PROCESS
	refuse = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
)

// allowed is what Go's runtime, wazero and files below an os.Root need,
// whatever the arguments. There are no sockets, no programs, no other
// processes in it, and no way to change a file's rights or owner.
var allowed = append([]uint32{
	// Open files, an inherited socket among them.
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_PREAD64, unix.SYS_PWRITE64, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_LSEEK, unix.SYS_CLOSE,
	unix.SYS_FSTAT, unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE, unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_GETDENTS64,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_PPOLL, unix.SYS_EVENTFD2, unix.SYS_PIPE2,
	// Paths; Landlock decides on them.
	unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_NEWFSTATAT, unix.SYS_STATX, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, unix.SYS_READLINKAT,
	unix.SYS_MKDIRAT, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT, unix.SYS_SYMLINKAT, unix.SYS_UTIMENSAT,
	// Memory.
	unix.SYS_BRK, unix.SYS_MUNMAP, unix.SYS_MADVISE, unix.SYS_MEMFD_CREATE,
	// Threads and their signals; the C library's, under the race detector, have
	// robust lists and restartable sequences.
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL,
	unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
	// Time, randomness, and who we are.
	unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES, unix.SYS_GETTIMEOFDAY,
	unix.SYS_GETRANDOM, unix.SYS_GETRUSAGE, unix.SYS_UNAME,
	unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID,
}, allowedHere...)

// rule allows a system call when the masked lower half of an argument has one
// of some values. The kernel takes no more than that half of these arguments.
type rule struct {
	number, argument, mask uint32
	values                 []uint32
}

const every = ^uint32(0)

// The commands of linux/fs.h and linux/userfaultfd.h that are left.
const pagemapScan, uffdRegister, uffdUnregister = 0xc0606610, 0xc020aa00, 0x8010aa01

// rules are the calls that are harmless with some arguments only. pid is this
// process.
func rules(pid int) []rule {
	const (
		thread     = unix.CLONE_THREAD | unix.CLONE_VM | unix.CLONE_SIGHAND | unix.CLONE_FILES | unix.CLONE_FS | unix.CLONE_SYSVSEM
		threadData = unix.CLONE_SETTLS | unix.CLONE_PARENT_SETTID | unix.CLONE_CHILD_SETTID | unix.CLONE_CHILD_CLEARTID
	)
	const ( // of the operation on a futex, from linux/futex.h
		futexPrivate, futexRealtime                  = 128, 256
		futexWait, futexWake, futexWaitSet, futexSet = 0, 1, 9, 10
	)
	return append([]rule{
		// A new thread of this process, no new process and no namespace.
		{unix.SYS_CLONE, 0, every &^ threadData, []uint32{thread}},
		// Go preempts its own threads with signals.
		{unix.SYS_TGKILL, 0, every, []uint32{uint32(pid)}},
		// Not F_SETOWN, which has the kernel send signals to others.
		{unix.SYS_FCNTL, 1, every, []uint32{
			unix.F_DUPFD, unix.F_DUPFD_CLOEXEC, unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL, unix.F_ADD_SEALS, unix.F_GET_SEALS}},
		// Code is made by wazero only.
		{unix.SYS_MMAP, 2, neverExecutable, []uint32{0}}, {unix.SYS_MPROTECT, 2, neverExecutable, []uint32{0}},
		// Which pages of memory were written (package linear): searching a page map
		// and arming ranges, both by descriptors that were opened before, and no
		// other command to any file or device.
		{unix.SYS_IOCTL, 1, every, []uint32{pagemapScan, uffdRegister, uffdUnregister}},
		// Not the operations on priorities.
		{unix.SYS_FUTEX, 1, every &^ (futexPrivate | futexRealtime), []uint32{futexWait, futexWake, futexWaitSet, futexSet}},
	}, rulesHere...)
}

// absent are the calls for which callers have another way and look for it only
// when the kernel seems not to have them.
var absent = []struct {
	number uint32
	answer unix.Errno
}{
	{unix.SYS_CLONE3, unix.ENOSYS}, // its flags lie in memory, where no filter sees them
	{unix.SYS_COPY_FILE_RANGE, unix.ENOSYS}, {unix.SYS_SENDFILE, unix.ENOSYS}, {unix.SYS_SPLICE, unix.ENOSYS},
	{unix.SYS_PRCTL, unix.EINVAL}, // Go's names for its memory, which it stops giving then
}

// Of struct seccomp_data, little-endian on all architectures that we know.
const (
	offsetNumber    = 0
	offsetArch      = 4
	offsetArguments = 16
)

// filter is the program that the kernel runs at each system call of process
// pid. What is allowed whatever its arguments comes first: for these the
// kernel remembers the answer.
func filter(pid int) []bpf.Instruction {
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		bpf.RetConstant{Val: kill},
		bpf.LoadAbsolute{Off: offsetNumber, Size: 4},
		// The x32 numbers of amd64; no architecture has real ones up there.
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: 0x40000000, SkipTrue: 1},
		bpf.RetConstant{Val: kill},
	}
	for _, number := range allowed {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: number, SkipFalse: 1}, bpf.RetConstant{Val: allow})
	}
	for _, r := range rules(pid) {
		program = append(program,
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: r.number, SkipFalse: uint8(3 + 2*len(r.values))},
			bpf.LoadAbsolute{Off: offsetArguments + 8*r.argument, Size: 4},
			bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: r.mask})
		for _, v := range r.values {
			program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipFalse: 1}, bpf.RetConstant{Val: allow})
		}
		program = append(program, bpf.RetConstant{Val: refuse})
	}
	for _, a := range absent {
		program = append(program,
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: a.number, SkipFalse: 1},
			bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(a.answer)})
	}
	return append(program, bpf.RetConstant{Val: refuse})
}

func lookSeccomp() sandbox.Protection {
	action := uint32(kill)
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	switch e {
	case 0:
		return standing(wallSeccomp, "%d system calls are left: no sockets, no programs, no other processes", len(allowed)+len(rules(0)))
	case unix.EPERM, unix.EACCES:
		return missing(wallSeccomp, "seccomp is refused: a container around paddock has to allow the system call")
	}
	return missing(wallSeccomp, "the kernel has no filters that can end a process (%v): they came with Linux 4.14, as the option CONFIG_SECCOMP_FILTER", e)
}

func installFilter(Policy) error {
	raw, err := bpf.Assemble(filter(os.Getpid()))
	if err != nil {
		return fmt.Errorf("assembling the filter: %w", err)
	}
	code := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		code[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	program := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	stranger, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(code)
	if e != 0 {
		return fmt.Errorf("installing the filter: %w", e)
	}
	if stranger != 0 {
		return fmt.Errorf("thread %d has a filter of its own, so not all can have ours", stranger)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	if !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("the kernel took the filter and does not keep it: a socket could be made (%v)", err)
	}
	return nil
}
