package wasi

import (
	"errors"
	"io/fs"
	"os"
	"sync"
)

// entryBytes is what a file or a folder counts beside its content: a million
// empty files are not free.
const entryBytes = 4096

var errFull = errors.New("the folder's limit is reached")

// Dir is a folder of the host. No path leaves it, whatever links a guest
// plants: everything goes through os.Root. It is safe for concurrent use, and
// one folder has one Dir, however many guests share it.
type Dir struct {
	root     *os.Root
	limit    int64
	readOnly bool

	mu      sync.Mutex // guards what follows, and every write that grows a file
	counted bool
	removed bool // something was, since the last count
	used    int64
	open    map[*os.File]struct{} // files that may have been unlinked since
}

// NewDir takes root over. limit bounds the sum of the files' sizes, each
// counted with 4 KiB more; it is checked when something grows, so that a folder
// that is over it already can be read and emptied.
func NewDir(root *os.Root, limit int64, readOnly bool) *Dir {
	return &Dir{root: root, limit: limit, readOnly: readOnly, open: map[*os.File]struct{}{}}
}

// Close closes the folder; files that are open stay so.
func (d *Dir) Close() error { return d.root.Close() }

// growLocked counts n bytes more, or refuses.
func (d *Dir) growLocked(n int64) error {
	if n <= 0 {
		return nil
	}
	if !d.counted || d.used+n > d.limit && d.removed {
		d.countLocked()
	}
	if d.used+n > d.limit {
		return errFull
	}
	d.used += n
	return nil
}

func (d *Dir) countLocked() {
	d.used, d.counted, d.removed = 0, true, false
	// A folder that vanishes meanwhile counts nothing.
	_ = fs.WalkDir(d.root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if name != "." {
			d.used += entryBytes
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			d.used += info.Size()
		}
		return nil
	})
	for f := range d.open {
		if info, err := f.Stat(); err == nil && links(info) == 0 {
			d.used += info.Size()
		}
	}
}

// gone notes that something was removed or shrank.
func (d *Dir) gone() {
	d.mu.Lock()
	d.removed = true
	d.mu.Unlock()
}

// make counts a new entry and makes it.
func (d *Dir) make(create func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.growLocked(entryBytes); err != nil {
		return err
	}
	err := create()
	if err != nil {
		d.used -= entryBytes
	}
	return err
}

func (d *Dir) track(f *os.File) {
	d.mu.Lock()
	d.open[f] = struct{}{}
	d.mu.Unlock()
}

// closeFile closes f; if it was unlinked its space is free only now.
func (d *Dir) closeFile(f *os.File) {
	d.mu.Lock()
	delete(d.open, f)
	d.removed = true
	d.mu.Unlock()
	f.Close()
}

// writeAt writes p at offset, or at f's end where that is negative, and gives
// the offset behind it.
func (d *Dir) writeAt(f *os.File, p []byte, offset int64) (n int, end int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	if offset < 0 {
		offset = info.Size()
	}
	if err := d.growLocked(offset + int64(len(p)) - info.Size()); err != nil {
		return 0, offset, err
	}
	n, err = f.WriteAt(p, offset)
	return n, offset + int64(n), err
}

// resize makes f size bytes long.
func (d *Dir) resize(f *os.File, size int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := d.growLocked(size - info.Size()); err != nil {
		return err
	}
	d.removed = d.removed || size < info.Size()
	return f.Truncate(size)
}

// lookup opens what is at name. Special files are never opened: they would
// block, or be somebody else's.
func (d *Dir) lookup(name string, flag int) (*os.File, fs.FileInfo, error) {
	f, err := d.root.OpenFile(name, flag|nonblock, 0o666)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		err = fs.ErrPermission
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}
