package confine

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// allowedHere and rulesHere are what only this architecture has.
var (
	allowedHere = []uint32{unix.SYS_EPOLL_WAIT, unix.SYS_POLL}
	// ARCH_SET_FS: where a new thread has its own data. ARCH_SET_GS: where a
	// native guest has its memory, on a processor that cannot set that itself.
	rulesHere = []rule{{unix.SYS_ARCH_PRCTL, 0, every, []uint32{0x1002, 0x1001}}}
)
