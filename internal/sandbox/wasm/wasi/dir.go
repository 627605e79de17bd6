package wasi

import (
	"io"
	"io/fs"
	"math"
	"os"
	"sync"
)

// entryBytes is the least that a file, a folder or a link counts: a million
// empty files are not free.
const entryBytes = 4096

// Dir is a folder of the host. Whatever links a guest plants, no path leaves
// it. It is safe for concurrent use. A folder has one Dir, however many
// Systems use it: the limit is kept by counting what goes through the Dir.
type Dir struct {
	root     *os.Root
	top      rootDir // root, for shorter ways to what is in it
	limit    int64
	readOnly bool

	mu   sync.Mutex // guards what follows, and is held while anything grows or goes
	used int64      // what the files take, or more than that if stale
	// counted is false until the folder has been walked through.
	counted bool
	// stale tells that used may be too high: something is gone, and how much
	// room that gave is not known.
	stale bool
	files map[*hostFile]struct{}
}

// NewDir takes over root. limit bounds the sum of the files' sizes, each file,
// folder and link counting at least 4 KiB; 0 allows no growth. What is over the
// limit from the beginning can be read, changed in place, and removed.
func NewDir(root *os.Root, limit int64, readOnly bool) *Dir {
	return &Dir{root: root, limit: max(limit, 0), readOnly: readOnly, files: map[*hostFile]struct{}{}}
}

// Close closes the folder. Files that are open stay so until their Systems are
// closed.
func (d *Dir) Close() error {
	d.top.close()
	return d.root.Close()
}

// Changed tells the Dir that somebody else has changed the folder: what lies
// there is counted again before anything grows.
func (d *Dir) Changed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counted = false
}

// cost is what a file of size bytes counts.
func cost(size int64) int64 { return max(size, entryBytes) }

// reserveLocked counts n bytes more, or refuses.
func (d *Dir) reserveLocked(n int64) errno {
	if n <= 0 {
		return success
	}
	if !d.counted || d.stale && n > d.limit-d.used {
		d.countLocked()
	}
	if n > d.limit-d.used {
		return enospc
	}
	d.used += n
	return success
}

// releaseLocked counts n bytes less.
func (d *Dir) releaseLocked(n int64) { d.used = max(d.used-n, 0) }

// countLocked walks through the folder.
func (d *Dir) countLocked() {
	c := counter{seen: map[fileID]struct{}{}}
	c.walk(d.root, 0)
	for f := range d.files {
		if s, e := f.fstat(); e == success && s.links == 0 {
			if id := (fileID{s.device, s.inode}); c.first(id) {
				c.add(cost(s.size))
			}
		}
	}
	d.used, d.counted, d.stale = c.used, true, false
}

// counter adds up what a folder takes.
type counter struct {
	used int64
	seen map[fileID]struct{} // files with several names, or none
}

// fileID tells whether two names are of the same file.
type fileID struct{ device, inode uint64 }

func (c *counter) first(id fileID) bool {
	if _, seen := c.seen[id]; seen {
		return false
	}
	c.seen[id] = struct{}{}
	return true
}

func (c *counter) add(n int64) {
	if n > math.MaxInt64-c.used {
		n = math.MaxInt64 - c.used
	}
	c.used += n
}

// walk counts what is in root. What cannot be read counts nothing; what lies
// deeper than any path may be counts as if it were the whole disk.
func (c *counter) walk(root *os.Root, depth int) {
	f, err := root.Open(".")
	if err != nil {
		return
	}
	defer f.Close()
	for {
		entries, err := f.ReadDir(256)
		for _, e := range entries {
			c.entry(root, e, depth)
		}
		if err != nil {
			return
		}
	}
}

func (c *counter) entry(root *os.Root, e fs.DirEntry, depth int) {
	info, err := e.Info()
	if err != nil {
		return
	}
	s := statOf(e.Name(), info)
	switch {
	case s.kind == typeRegular && (s.links <= 1 || c.first(fileID{s.device, s.inode})):
		c.add(cost(s.size))
	case s.kind == typeFolder && depth >= maxDepth:
		c.add(math.MaxInt64)
	case s.kind == typeFolder:
		c.add(entryBytes)
		if sub, err := root.OpenRoot(e.Name()); err == nil {
			c.walk(sub, depth+1)
			sub.Close()
		}
	default:
		c.add(entryBytes)
	}
}

// goneLocked counts what was at a name that has been removed or replaced.
func (d *Dir) goneLocked(s stat) {
	id := fileID{s.device, s.inode}
	held := s.kind == typeRegular && (s.links != 1 || !stableInodes)
	for f := range d.files {
		held = held || f.id == id
	}
	switch {
	case held: // by another name, or by whoever has it open
		d.stale = true
	case s.kind == typeRegular:
		d.releaseLocked(cost(s.size))
	default:
		d.releaseLocked(entryBytes)
	}
}

// hostFile is an open file of a Dir.
type hostFile struct {
	dir  *Dir
	file *content
	name string
	id   fileID
}

func (f *hostFile) fstat() (stat, errno) {
	s, err := fileStat(f.name, f.file)
	return s, errnoOf(err)
}

func (f *hostFile) readAt(p []byte, offset int64) (int, errno) {
	if offset > math.MaxInt64-int64(len(p)) {
		return 0, einval
	}
	n, err := f.file.ReadAt(p, offset)
	if err == io.EOF {
		err = nil
	}
	return n, errnoOf(err)
}

// write writes pieces at offset, or in one go at the end if offset is
// negative, and tells where it ended. A file that may not grow takes nothing
// of the piece for which there is no room.
func (f *hostFile) write(v vectors, offset int64) (n int, end int64, e errno) {
	d := f.dir
	d.mu.Lock()
	defer d.mu.Unlock()
	s, e := f.fstat()
	if e != success {
		return 0, offset, e
	}
	size, end := s.size, offset
	if offset < 0 {
		end = size
	}
	n, e = v.each(func(p []byte) (int, errno) {
		if end > math.MaxInt64-int64(len(p)) {
			return 0, efbig
		}
		after := max(size, end+int64(len(p)))
		if e := d.reserveLocked(cost(after) - cost(size)); e != success {
			return 0, e
		}
		n, err := f.file.WriteAt(p, end)
		if err != nil {
			d.stale = true // how much of it came to be there is not known
		}
		size, end = after, end+int64(n)
		return n, errnoOf(err)
	})
	return n, end, e
}

// resize makes the file size bytes long, or at least that if grow is set.
func (f *hostFile) resize(size int64, grow bool) errno {
	f.dir.mu.Lock()
	defer f.dir.mu.Unlock()
	return f.resizeLocked(size, grow)
}

func (f *hostFile) resizeLocked(size int64, grow bool) errno {
	s, e := f.fstat()
	if e != success || size == s.size || grow && size < s.size {
		return e
	}
	more := cost(size) - cost(s.size)
	if e := f.dir.reserveLocked(more); e != success {
		return e
	}
	err := f.file.Truncate(size)
	switch {
	case err != nil:
		f.dir.stale = true
	case more < 0:
		f.dir.releaseLocked(-more)
	}
	return errnoOf(err)
}

func (f *hostFile) close() error {
	f.dir.mu.Lock()
	defer f.dir.mu.Unlock()
	delete(f.dir.files, f)
	if s, e := f.fstat(); e != success || s.links == 0 || !stableInodes {
		f.dir.stale = true // the last name may be gone, and now the room is free
	}
	return f.file.Close()
}
