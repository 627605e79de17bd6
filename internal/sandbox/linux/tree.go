//go:build linux && (amd64 || arm64)

package linux

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// entryBytes is what a file or folder counts at least, as in package workspace: an
// empty one takes room on the disk, too.
const entryBytes = 4 << 10

// maxDepth is how deep folders are counted; no tree that programs need is deeper,
// and what is below it would cost the host more and more to find.
const maxDepth = 500

// errTooDeep tells that folders lie deeper than maxDepth.
var errTooDeep = errors.New("folders are nested too deep")

// sizeOf sums up what is below a folder that a program may be changing meanwhile:
// no link is followed, and no folder is left out because the program took the right
// to read it away. It stops when there is more than most; zero: never.
func sizeOf(dir string, most int64) (sum int64, err error) {
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("opening a folder: %w", err)
	}
	defer unix.Close(root)
	type place struct {
		path  string
		depth int
	}
	for left := []place{{".", 0}}; len(left) > 0; {
		at := left[len(left)-1]
		left = left[:len(left)-1]
		folder, err := openBeneath(root, at.path)
		if err != nil {
			continue // it has gone meanwhile, or is something else now
		}
		for {
			names, _ := folder.Readdirnames(1000)
			for _, name := range names {
				var s unix.Stat_t
				if unix.Fstatat(int(folder.Fd()), name, &s, unix.AT_SYMLINK_NOFOLLOW) != nil {
					continue
				}
				if sum += weight(&s); s.Mode&unix.S_IFMT == unix.S_IFDIR {
					if at.depth == maxDepth {
						err = errTooDeep
					}
					left = append(left, place{at.path + "/" + name, at.depth + 1})
				}
			}
			if len(names) == 0 || err != nil || most > 0 && sum > most {
				break
			}
		}
		folder.Close()
		if err != nil || most > 0 && sum > most {
			return sum, err
		}
	}
	return sum, nil
}

// weight is what a file or folder counts. What is reserved beyond its end counts
// where it is more than the file systems do by themselves.
func weight(s *unix.Stat_t) int64 {
	if s.Mode&unix.S_IFMT != unix.S_IFREG {
		return entryBytes
	}
	n := max(s.Size, entryBytes)
	if taken := s.Blocks * 512; taken > 2*n+64<<10 {
		return taken
	}
	return n
}

// openBeneath opens a folder below another. One that may not be read is lent the
// right for that moment, if it is ours.
func openBeneath(root int, path string) (*os.File, error) {
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV}
	fd, err := unix.Openat2(root, path, &how)
	if errors.Is(err, unix.EACCES) {
		fd, err = openLent(root, path, how)
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// openLent finds the first folder on the way that keeps us out.
func openLent(root int, path string, how unix.OpenHow) (int, error) {
	done, err := lend(root)
	if err != nil {
		return -1, err
	}
	defer done()
	parts := strings.Split(path, "/")
	for n := 1; n <= len(parts); n++ {
		only := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: how.Resolve}
		dir, err := unix.Openat2(root, strings.Join(parts[:n], "/"), &only)
		if err != nil {
			return -1, err
		}
		done, err := lend(dir)
		unix.Close(dir)
		if err != nil {
			return -1, err
		}
		defer done()
	}
	return unix.Openat2(root, path, &how)
}

// lend makes a folder of ours readable until done is called.
func lend(dir int) (done func(), err error) {
	var s unix.Stat_t
	if err := unix.Fstat(dir, &s); err != nil {
		return nil, err
	}
	mode := fs.FileMode(s.Mode & 0o7777)
	if mode&0o500 == 0o500 {
		return func() {}, nil
	}
	// The descriptor itself cannot be used for this: it is only a place.
	name := "/proc/self/fd/" + strconv.Itoa(dir)
	if err := unix.Chmod(name, uint32(mode|0o500)); err != nil {
		return nil, err
	}
	again, err := unix.Open(name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return func() {
		_ = unix.Fchmod(again, uint32(mode)) // it may be gone
		unix.Close(again)
	}, nil
}

// unnamed sums up the files that a process has open and that have no name any
// more, by the folder of the gofer in which they were.
func unnamed(pid int) (map[string]int64, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	sums, seen := map[string]int64{}, map[[2]uint64]bool{}
	for _, e := range entries {
		path := dir + "/" + e.Name()
		target, err := os.Readlink(path)
		if err != nil || !strings.HasSuffix(target, " (deleted)") {
			continue
		}
		top, _, _ := strings.Cut(strings.TrimPrefix(target, "/"), "/")
		var s unix.Stat_t
		if unix.Stat(path, &s) != nil || s.Nlink > 0 || s.Mode&unix.S_IFMT != unix.S_IFREG || seen[[2]uint64{s.Dev, s.Ino}] {
			continue
		}
		seen[[2]uint64{s.Dev, s.Ino}] = true
		sums[top] += weight(&s)
	}
	return sums, nil
}
