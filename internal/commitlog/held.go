package commitlog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path"
	"slices"
	"time"

	"paddock/internal/blob"
)

// held is a content in the log that is not synced at its file's place.
type held struct {
	segment  *segment
	deferred bool  // the file need not be there
	placed   bool  // the file is there, if it is deferred; guarded by Log.mu
	refused  bool  // nothing: a commit that failed may be in the segment, and has to be forgotten
	at       int64 // where the content begins in the segment
	size     int
	sum      uint32 // of the content
}

// holdLocked notes what the log holds of a file now. The caller holds Log.mu.
func (l *Log) holdLocked(name string, h *held) {
	l.letGoLocked(name)
	l.holders[name] = h
	if h.deferred {
		l.unmade.put(name, h)
	}
}

// letGoLocked notes that the log does not hold a file. The caller holds Log.mu.
func (l *Log) letGoLocked(name string) {
	h := l.holders[name]
	delete(l.holders, name)
	if h != nil && h.deferred {
		l.unmade.remove(name)
	}
}

// deferred returns what the log holds of a file that need not be there; nil: nothing.
func (l *Log) deferred(name string) *held {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.holders[name]; h != nil && h.deferred {
		return h
	}
	return nil
}

// errChanged is for a content that is not what was committed.
var errChanged = errors.New("commitlog: a content in the log is not what was committed")

// read reads a content that was held a moment ago. An error says nothing where it is not
// held any more.
func (l *Log) read(h *held) ([]byte, error) {
	data := make([]byte, h.size)
	if _, err := h.segment.file.ReadAt(data, h.at); err != nil {
		return nil, err
	}
	if crc32.Checksum(data, crcTable) != h.sum {
		return nil, errChanged
	}
	return data, nil
}

// making is a deferred file on its way to its place.
type making struct {
	name string
	held *held
	temp string
}

// place makes the files of deferred contents, unless the log does not hold them any more. A
// file that has its name is whole, also after a power cut, whether or not the log still has it
// then. The folders are not synced.
func (l *Log) place(names []string) error {
	made := make([]*making, len(names))
	defer func() {
		for _, m := range made {
			if m != nil && m.temp != "" {
				_ = l.disk.Remove(m.temp) // what stays is swept by recovery.sweep
			}
		}
	}()
	numbers := make([]int, len(names))
	for k := range names {
		numbers[k] = k
	}
	if err := each(numbers, func(k int) (err error) { made[k], err = l.make(names[k]); return err }); err != nil {
		return err
	}
	made = slices.DeleteFunc(made, func(m *making) bool { return m == nil })
	if err := l.syncMade(made); err != nil {
		return err
	}
	return each(made, l.nameIfHeld)
}

// make writes the file of a deferred content, without its name; nil: it is there, or the log
// does not hold it any more.
func (l *Log) make(name string) (*making, error) {
	h := l.unplaced(name)
	if h == nil {
		return nil, nil
	}
	data, err := l.read(h)
	if err != nil {
		if l.deferred(name) != h {
			return nil, nil
		}
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	m := &making{name: name, held: h, temp: tempFor(l.path(name), l.folder())}
	f, err := l.create(m.temp)
	if err != nil {
		return nil, err
	}
	_, err = f.Write(data)
	return m, errors.Join(err, f.Close())
}

// syncMade syncs files that have no names yet.
func (l *Log) syncMade(made []*making) error {
	if all, ok := l.disk.(syncer); ok && len(made) >= manyFiles {
		folders := map[string]bool{}
		for _, m := range made {
			folders[topOf(m.name)] = true
		}
		return l.syncTops(all, folders)
	}
	return each(made, func(m *making) error { return l.disk.SyncFile(m.temp) })
}

// unplaced is deferred for a file that is not there.
func (l *Log) unplaced(name string) *held {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.holders[name]; h != nil && h.deferred && !h.placed {
		return h
	}
	return nil
}

// nameIfHeld gives a file its name, unless the log does not hold its content any more or
// another goroutine was first.
func (l *Log) nameIfHeld(m *making) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holders[m.name] != m.held || m.held.placed {
		return nil
	}
	err := l.disk.Rename(m.temp, l.path(m.name))
	if err == nil {
		m.held.placed, m.temp = true, ""
	}
	return err
}

// content is a content in the log as a file that is read.
type content struct {
	*bytes.Reader
	info info
}

var _ blob.File = content{}

func newContent(name string, data []byte) content {
	return content{bytes.NewReader(data), newInfo(name, len(data))}
}

func (c content) Stat() (fs.FileInfo, error)       { return c.info, nil }
func (content) Close() error                       { return nil }
func (content) Write([]byte) (int, error)          { return 0, fs.ErrPermission }
func (content) WriteAt([]byte, int64) (int, error) { return 0, fs.ErrPermission }
func (content) Sync() error                        { return nil }
func (content) Datasync() error                    { return nil }

// info tells about a file or a folder that is in the log.
type info struct {
	name string
	size int64
	mode fs.FileMode
}

// newInfo tells about a file, by its name in the log.
func newInfo(name string, size int) info { return info{name: path.Base(name), size: int64(size)} }

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) Mode() fs.FileMode  { return i.mode | 0o600 }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return i.mode.IsDir() }
func (info) Sys() any             { return nil }

// listing are a folder's entries that are in a log.
type listing map[string]fs.DirEntry

// add adds a file or a folder.
func (all listing) add(base string, size int, folder bool) {
	i := newInfo(base, size)
	if folder {
		i.mode = fs.ModeDir
	}
	if all[base] == nil {
		all[base] = fs.FileInfoToDirEntry(i)
	}
}

// with gives all entries of a folder, whose files on the disk are these.
func (all listing) with(disk []fs.DirEntry, err error) ([]fs.DirEntry, error) {
	if len(all) == 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return disk, err
	}
	for _, e := range disk {
		all[e.Name()] = e
	}
	entries := make([]fs.DirEntry, 0, len(all))
	for _, e := range all {
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	return entries, nil
}
