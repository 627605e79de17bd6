//go:build linux || darwin

package confine

import (
	"fmt"

	"golang.org/x/sys/unix"

	"paddock/internal/sandbox"
)

// limit is a resource and how much of it the policy leaves.
type limit struct {
	resource int
	most     func(Policy) uint64
}

func none(Policy) uint64 { return 0 }

var limits = append([]limit{
	{unix.RLIMIT_CORE, none},
	{unix.RLIMIT_MEMLOCK, none},
	{unix.RLIMIT_NOFILE, func(p Policy) uint64 { return p.MaxOpenFiles }},
	{unix.RLIMIT_FSIZE, func(p Policy) uint64 { return p.MaxFileSize }},
}, limitsHere...)

func lookLimits(p Policy) sandbox.Protection {
	return standing(wallLimits, "at most %d open files and %d MiB in one; no core dumps, no locked memory", p.MaxOpenFiles, p.MaxFileSize>>20)
}

// setLimits lowers what is higher; what is lower already stays.
func setLimits(p Policy) error {
	for _, l := range limits {
		var now unix.Rlimit
		if err := unix.Getrlimit(l.resource, &now); err != nil {
			return fmt.Errorf("reading limit %d: %w", l.resource, err)
		}
		now.Max = min(now.Max, l.most(p))
		now.Cur = min(now.Cur, now.Max)
		if err := unix.Setrlimit(l.resource, &now); err != nil {
			return fmt.Errorf("lowering limit %d: %w", l.resource, err)
		}
	}
	return nil
}
