//go:build unix

package privatefile

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"paddock/internal/fault"
)

// exposed says why a file is not its user's alone; empty: it is.
func exposed(info fs.FileInfo) string {
	switch s, ok := info.Sys().(*syscall.Stat_t); {
	case !info.Mode().IsRegular():
		return "is not a file"
	case ok && int(s.Uid) != os.Geteuid():
		return "belongs to another user"
	case info.Mode().Perm()&0o077 != 0:
		return "can be read or changed by other users"
	}
	return ""
}

// OfAnother reports whether a file belongs neither to this user nor to root.
func OfAnother(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) != os.Geteuid() && s.Uid != 0
}

// CheckFolder refuses to have root write into a state folder of another user's, who could
// not read the files then and would let no client in. A folder that is not there is fine.
func CheckFolder(dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fault.New(fault.Unavailable, "the state folder cannot be read").WithHint("the server's log says why").WithCause(err)
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok || s.Uid == 0 {
		return nil
	}
	owner := strconv.FormatUint(uint64(s.Uid), 10)
	if u, err := user.LookupId(owner); err == nil {
		owner = u.Username
	}
	return fault.New(fault.Denied, "the state folder belongs to the user %s, and files that root makes there are of no use to it", owner).
		WithHint("do it as that user: runuser -u %s -- paddock …", owner)
}
