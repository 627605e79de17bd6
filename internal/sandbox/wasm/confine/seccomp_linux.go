package confine

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"paddock/internal/sandbox"
)

// allowed is what Go's runtime, wazero (memory that becomes executable) and
// files below an os.Root need. There are no sockets, no programs, no other
// processes in it.
var allowed = append([]uint32{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_PREAD64, unix.SYS_PWRITE64, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_CLOSE,
	unix.SYS_FSTAT, unix.SYS_NEWFSTATAT, unix.SYS_STATX, unix.SYS_LSEEK, unix.SYS_GETDENTS64,
	unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_MKDIRAT, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2,
	unix.SYS_LINKAT, unix.SYS_SYMLINKAT, unix.SYS_READLINKAT, unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FACCESSAT,
	unix.SYS_FACCESSAT2, unix.SYS_UTIMENSAT, unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE, unix.SYS_FSYNC, unix.SYS_FDATASYNC,
	unix.SYS_FCNTL, unix.SYS_DUP, unix.SYS_DUP3,
	unix.SYS_MMAP, unix.SYS_MPROTECT, unix.SYS_MUNMAP, unix.SYS_MADVISE, unix.SYS_MREMAP, unix.SYS_BRK, unix.SYS_MINCORE,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK,
	unix.SYS_FUTEX, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES,
	unix.SYS_GETTIMEOFDAY, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_RESTART_SYSCALL, unix.SYS_MEMBARRIER,
	unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID, unix.SYS_GETRUSAGE,
	unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_GETRANDOM, unix.SYS_UNAME,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2, unix.SYS_EVENTFD2, unix.SYS_PIPE2,
	unix.SYS_PPOLL,
}, allowedHere...)

// Of struct seccomp_data.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArg0   = 16
)

const (
	retAllow = unix.SECCOMP_RET_ALLOW
	retKill  = unix.SECCOMP_RET_KILL_PROCESS
	retPerm  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	retNoSys = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
)

// filter is the program that the kernel runs at each system call.
func filter(pid int) ([]bpf.RawInstruction, error) {
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		bpf.RetConstant{Val: retKill},
		bpf.LoadAbsolute{Off: offsetNumber, Size: 4},
		// The x32 numbers of amd64; no architecture has real ones up there.
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: 0x40000000, SkipTrue: 1},
		bpf.RetConstant{Val: retKill},
	}
	for _, number := range allowed {
		program = append(program,
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: number, SkipFalse: 1},
			bpf.RetConstant{Val: retAllow})
	}
	threads := uint32(unix.CLONE_THREAD | unix.CLONE_VM)
	program = append(program,
		// Go falls back to clone where there is no clone3, whose flags lie in memory.
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_CLONE3, SkipFalse: 1},
		bpf.RetConstant{Val: retNoSys},
		// A new thread, not a new process.
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_CLONE, SkipFalse: 5},
		bpf.LoadAbsolute{Off: offsetArg0, Size: 4},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: threads},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: threads, SkipTrue: 1},
		bpf.RetConstant{Val: retPerm},
		bpf.RetConstant{Val: retAllow},
		// Go preempts its own threads with signals.
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_TGKILL, SkipFalse: 4},
		bpf.LoadAbsolute{Off: offsetArg0, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(pid), SkipTrue: 1},
		bpf.RetConstant{Val: retPerm},
		bpf.RetConstant{Val: retAllow},
		bpf.RetConstant{Val: retPerm})
	return bpf.Assemble(program)
}

// seccompWall tells whether the kernel has what applySeccomp needs.
func seccompWall() sandbox.Protection {
	action := uint32(unix.SECCOMP_RET_ERRNO)
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	if e != 0 {
		return missing(wallSeccomp, "the kernel has no seccomp filters")
	}
	return stands(wallSeccomp, fmt.Sprintf("%d system calls are allowed: no sockets, no programs, no other processes", len(allowed)+2))
}

func applySeccomp(Policy) (sandbox.Protection, error) {
	w := seccompWall()
	if !w.Active {
		return w, nil
	}
	raw, err := filter(os.Getpid())
	if err != nil {
		return w, err
	}
	code := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		code[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	program := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	// The filter goes to all threads at once, and this one's renunciation of
	// new privileges with it; so both have to come from the same thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return w, fmt.Errorf("renouncing new privileges: %w", err)
	}
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(code)
	if e != 0 {
		return w, e
	}
	return w, nil
}
