//go:build linux && (amd64 || arm64)

package gvisorfix

import (
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
)

// SkipMembarrier spares the processes that this thread starts from here on a wait of 8 to
// 13 ms, for as long as the thread lives. One of gVisor's packages, when it is
// initialized, has the kernel wait until every processor has passed a point, for
// barriers that no platform but KVM uses. The kernel now answers that one request
// with success, and does nothing. Only root may ask for that without giving up new
// privileges, which profiles of AppArmor take amiss; without it they wait.
func SkipMembarrier() {
	// seccomp_data: the number of the call is at 0, its first argument's lower half
	// at 16. The architecture does not matter: another one's call of that number
	// and argument is not made, for the same binary is what is started.
	const number, argument = 0, 16
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_MEMBARRIER, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: argument},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: linux.MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, _ = unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&filter)))
}
