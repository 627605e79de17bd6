package confine

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// allowedHere and rulesHere are what only this architecture has.
var (
	allowedHere []uint32
	rulesHere   []rule
)
