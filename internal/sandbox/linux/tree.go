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

// sizeOf sums up what is below a folder that a program may be changing meanwhile:
// no link is followed, and no folder is left out because the program took the right
// to read it away. It stops when there is more than most; zero: never.
func sizeOf(dir string, most int64) (sum int64, err error) {
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("opening a folder: %w", err)
	}
	defer unix.Close(root)
	w := &walk{most: most}
	defer w.close()
	top := w.hold(root)
	for left := []place{{top, ".", 0}}; len(left) > 0 && !w.enough(); {
		at := left[len(left)-1]
		left = w.look(at, left[:len(left)-1])
		w.release(at.from)
	}
	return w.sum, nil
}

// walk counts files. Folders are opened from an anchor not far above them: one at
// any depth costs no more than others.
type walk struct {
	sum, most int64
	anchors   map[*anchor]struct{} // the open ones
}

// anchor is an open folder, until nothing below it is left to be looked at.
type anchor struct{ fd, below int }

// place is a folder that has to be looked at.
type place struct {
	from  *anchor
	path  string
	depth int // below the anchor
}

// anchorEvery is how many folders are between anchors at most. Names have 255
// bytes: the path stays short enough for the kernel.
const anchorEvery = 15

// hold makes an anchor, for the place that is pushed next.
func (w *walk) hold(dir int) *anchor {
	fd, err := unix.FcntlInt(uintptr(dir), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		fd = -1 // what is below it cannot be opened
	}
	if w.anchors == nil {
		w.anchors = map[*anchor]struct{}{}
	}
	a := &anchor{fd: fd, below: 1}
	w.anchors[a] = struct{}{}
	return a
}

func (w *walk) release(a *anchor) {
	if a.below--; a.below == 0 {
		unix.Close(a.fd)
		delete(w.anchors, a)
	}
}

func (w *walk) close() {
	for a := range w.anchors {
		unix.Close(a.fd)
	}
}

func (w *walk) enough() bool { return w.most > 0 && w.sum > w.most }

// look counts what is in a folder, and adds its folders to those that are left.
func (w *walk) look(at place, left []place) []place {
	folder, err := openBeneath(at.from.fd, at.path)
	if err != nil {
		return left // it has gone meanwhile, or is something else now
	}
	defer folder.Close()
	from, path, depth := at.from, at.path+"/", at.depth+1
	if from.below++; depth > anchorEvery {
		w.release(from)
		from, path, depth = w.hold(int(folder.Fd())), "", 1
	}
	defer func() { w.release(from) }()
	for names := []string{""}; len(names) > 0 && !w.enough(); {
		names, _ = folder.Readdirnames(1000)
		for _, name := range names {
			var s unix.Stat_t
			if unix.Fstatat(int(folder.Fd()), name, &s, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
			if w.sum += weight(&s); s.Mode&unix.S_IFMT == unix.S_IFDIR {
				from.below++
				left = append(left, place{from, path + name, depth})
			}
		}
	}
	return left
}

// weight is what a file or folder counts.
func weight(s *unix.Stat_t) int64 {
	if s.Mode&unix.S_IFMT != unix.S_IFREG {
		return entryBytes
	}
	return max(s.Size, entryBytes)
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
