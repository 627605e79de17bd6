//go:build linux && (amd64 || arm64)

package linux

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	// entryBytes is what a file or folder counts at least, as in package workspace: an
	// empty one takes room on the disk, too.
	entryBytes = 4 << 10
	// mostWeight is what a sum of sizes is at most, likewise: what files with holes say
	// of themselves never becomes a negative sum.
	mostWeight = 1 << 50
)

// sizeOf sums up what is below a folder that a program may be changing meanwhile:
// no link is followed, and no folder is left out because the program took the right
// to read it away. It stops when there is more than most; zero: never. However deep
// folders lie in each other, it holds a few descriptors and no path. It ends with ctx,
// with what it has counted until then and an error.
func sizeOf(ctx context.Context, dir string, most int64) (sum int64, err error) {
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("opening a folder: %w", err)
	}
	defer unix.Close(root)
	w := &weigher{ctx: ctx, most: most}
	defer w.close()
	w.enter(root, ".")
	for len(w.levels) > 0 && !w.enough() {
		n := len(w.levels) - 1
		l := &w.levels[n]
		if len(l.folders) == 0 {
			w.leave()
			continue
		}
		next := l.folders[len(l.folders)-1]
		l.folders = l.folders[:len(l.folders)-1]
		if w.open(n) {
			w.enter(int(w.levels[n].dir.Fd()), next)
		}
	}
	return w.sum, ctx.Err()
}

// weigher walks through folders as package workspace does: it keeps open the few above
// it, and of those further up ever fewer; the others are opened again when it comes back
// to them.
type weigher struct {
	ctx       context.Context
	levels    []level // from the top to where it is
	sum, most int64
}

// level is a folder on the way to where a weigher is.
type level struct {
	name    string // in the folder above
	id      fileID
	folders []string // in it, that were not entered yet
	dir     *os.File // nil: it is not open now
}

// fileID tells a folder from another one that is there later.
type fileID struct{ dev, ino uint64 }

// near is how many levels are kept open of those above; of every second one twice as
// many, and so on.
const near = 8

// keeps tells whether a level stays open while the deepest one is n.
func keeps(k, n int) bool { return k == 0 || n-k < near*(k&-k) }

func (w *weigher) enough() bool {
	return w.most > 0 && w.sum > w.most || w.ctx.Err() != nil
}

// enter goes down into a folder, and counts what is in it.
func (w *weigher) enter(in int, name string) {
	dir, done, err := openBeneath(in, name)
	if err != nil {
		return // it has gone meanwhile, or is something else now
	}
	defer done()
	var s unix.Stat_t
	if unix.Fstat(int(dir.Fd()), &s) != nil {
		dir.Close()
		return
	}
	w.levels = append(w.levels, level{name: name, id: idOf(&s), dir: dir})
	n := len(w.levels) - 1
	w.read(&w.levels[n])
	w.trim(n)
}

func idOf(s *unix.Stat_t) fileID { return fileID{s.Dev, s.Ino} }

// read counts what is in a folder, and notes the folders.
func (w *weigher) read(l *level) {
	for names := []string{""}; len(names) > 0 && !w.enough(); {
		names, _ = l.dir.Readdirnames(1000)
		for _, name := range names {
			var s unix.Stat_t
			if unix.Fstatat(int(l.dir.Fd()), name, &s, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
			if w.sum = min(w.sum+weight(&s), mostWeight); s.Mode&unix.S_IFMT == unix.S_IFDIR {
				l.folders = append(l.folders, name)
			}
		}
	}
}

// trim closes the levels that need not be open while the deepest one is n.
func (w *weigher) trim(n int) {
	// Only those can be too far up now that are so many levels above.
	for far := near; far <= n; far *= 2 {
		if k := n - far; !keeps(k, n) {
			w.shut(k)
		}
	}
}

func (w *weigher) shut(k int) {
	if l := &w.levels[k]; l.dir != nil {
		l.dir.Close()
		l.dir = nil
	}
}

// leave goes back up.
func (w *weigher) leave() {
	n := len(w.levels) - 1
	w.shut(n)
	w.levels = w.levels[:n]
}

// open makes sure that level n is open, and tells whether it could be: a folder that
// was moved meanwhile is not found again.
func (w *weigher) open(n int) bool {
	k := n
	for w.levels[k].dir == nil {
		k--
	}
	for ; k < n; k++ {
		above, l := &w.levels[k], &w.levels[k+1]
		dir, done, err := openBeneath(int(above.dir.Fd()), l.name)
		if err == nil {
			done()
			var s unix.Stat_t
			if err = unix.Fstat(int(dir.Fd()), &s); err != nil || idOf(&s) != l.id {
				dir.Close()
				err = fs.ErrNotExist
			}
		}
		if err != nil {
			l.folders = nil
			w.levels[n].folders = nil
			return false
		}
		l.dir = dir
		if k > 0 && !keeps(k, n) {
			w.shut(k)
		}
	}
	return true
}

func (w *weigher) close() {
	for k := range w.levels {
		w.shut(k)
	}
}

// weight is what a file or folder counts.
func weight(s *unix.Stat_t) int64 {
	if s.Mode&unix.S_IFMT != unix.S_IFREG {
		return entryBytes
	}
	return min(max(s.Size, entryBytes), mostWeight)
}

// openBeneath opens a folder in another. If it may not be read, or the other not be
// entered, and they are ours, they are lent the right until done is called.
func openBeneath(in int, name string) (dir *os.File, done func(), err error) {
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV}
	fd, err := unix.Openat2(in, name, &how)
	done = func() {}
	if errors.Is(err, unix.EACCES) {
		fd, done, err = openLent(in, name, how)
	} else if err == nil {
		// A folder that may be read but not entered tells names only.
		done, err = lend(fd)
		if err != nil {
			done, err = func() {}, nil
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fd), name), done, nil
}

// openLent opens a folder that keeps us out, or lies in one that does.
func openLent(in int, name string, how unix.OpenHow) (fd int, done func(), err error) {
	doneIn, err := lend(in)
	if err != nil {
		return -1, nil, err
	}
	defer doneIn()
	only := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: how.Resolve}
	dir, err := unix.Openat2(in, name, &only)
	if err != nil {
		return -1, nil, err
	}
	defer unix.Close(dir)
	if done, err = lend(dir); err != nil {
		return -1, nil, err
	}
	if fd, err = unix.Openat2(in, name, &how); err != nil {
		done()
		return -1, nil, err
	}
	return fd, done, nil
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
