package agent

import (
	"slices"
	"strconv"
	"strings"
)

// heap lets a kernel's malloc keep memory that a program gives back and takes again,
// as programs that work on arrays do with each of their steps: glibc's would have the
// kernel take it away and bring it again, page by page. What is kept is at most a
// sixteenth of the memory limit, or 64 MiB. The settings are glibc's; another C library
// does not know them. The driver is told in args what to forget of them, so that what
// a program starts does not have them. What somebody has set already stays.
func (in *instance) heap(args, env []string) (moreArgs, moreEnv []string) {
	keep := int64(64 << 20)
	if in.start.MemoryBytes > 0 {
		keep = min(keep, in.start.MemoryBytes/16)
	}
	if slices.ContainsFunc(env, func(pair string) bool { return strings.HasPrefix(pair, "MALLOC_") }) {
		return args, env
	}
	for _, s := range []struct {
		name  string
		bytes int64
	}{
		{"MALLOC_TRIM_THRESHOLD_", keep},
		// From here on memory is not the heap's; one of the two settings alone would fix
		// the other one at 128 KiB. 32 MiB is the most that glibc allows.
		{"MALLOC_MMAP_THRESHOLD_", keep / 2},
	} {
		moreArgs, moreEnv = append(moreArgs, s.name), append(moreEnv, s.name+"="+strconv.FormatInt(s.bytes, 10))
	}
	return slices.Concat(args, moreArgs), slices.Concat(env, moreEnv)
}
