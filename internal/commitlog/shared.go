package commitlog

import (
	"cmp"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"paddock/internal/blob"
)

// Shared gives the files as [Log.Files] does, together with the deferred ones of other
// processes, which it reads from their logs. It is for who looks at what it has no claim on.
// Its SyncDir also syncs what other processes removed. What it writes and removes is as by
// Files.
func (l *Log) Shared() blob.Files { return shared{files{l.disk, l}, &l.others} }

type shared struct {
	files
	others *others
}

// Open opens a file.
func (s shared) Open(name string) (blob.File, error) {
	f, err := s.files.Open(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	in, missing := s.log.name(name)
	if missing != nil {
		return f, err
	}
	data, there, readErr := s.others.read(s.log, in)
	if readErr != nil {
		return nil, readErr
	}
	if there {
		return newContent(in, data), nil
	}
	return s.files.Open(name) // it may have just become a file
}

// Stat tells about a file or folder.
func (s shared) Stat(name string) (fs.FileInfo, error) {
	found, err := s.files.Stat(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return found, err
	}
	in, missing := s.log.name(name)
	if missing != nil {
		return found, err
	}
	h, there, readErr := s.others.find(s.log, in)
	if readErr != nil {
		return nil, readErr
	}
	if there {
		return newInfo(in, h.size), nil
	}
	return s.files.Stat(name)
}

// ReadDir lists a folder.
func (s shared) ReadDir(name string) ([]fs.DirEntry, error) {
	in, err := s.log.name(name)
	if err != nil {
		return s.files.ReadDir(name)
	}
	all := listing{}
	if err := s.others.list(s.log, in+"/", all); err != nil {
		return nil, err
	}
	return all.with(s.files.ReadDir(name))
}

// SyncDir makes what was removed in a folder outlast a power cut, whoever did it.
func (s shared) SyncDir(name string) error {
	if err := s.others.sync(s.log); err != nil {
		return err
	}
	err := s.files.SyncDir(name)
	if errors.Is(err, fs.ErrNotExist) {
		if in, e := s.log.name(name); e == nil && s.others.has(in+"/") {
			return nil
		}
	}
	return err
}

// others are what is known of other processes' logs. They are read when somebody asks, from
// where they were read the last time.
type others struct {
	mu   sync.Mutex
	logs map[string]*foreign
}

// foreign is another process's log.
type foreign struct {
	segments []*following // in the order of their use
	files    tree[remote]
	synced   bool // nothing was read since it was synced
}

// following is a segment of another process, read as far as it was written.
type following struct {
	path string
	use  use
	at   int64
}

// remote is a deferred content of another process.
type remote struct {
	path string
	salt [saltBytes]byte
	at   int64
	size int
	sum  uint32
}

// find returns where another process has a deferred content.
func (o *others) find(l *Log, name string) (r remote, there bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.followLocked(l); err != nil {
		return r, false, err
	}
	for _, f := range o.logs {
		if r, there := f.files.get(name); there {
			return r, true, nil
		}
	}
	return r, false, nil
}

// read reads a deferred content of another process. It is not there either where it became
// a file meanwhile.
func (o *others) read(l *Log, name string) (data []byte, there bool, err error) {
	r, there, err := o.find(l, name)
	if err != nil || !there {
		return nil, false, err
	}
	file, err := l.disk.Open(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer file.Close()
	data = make([]byte, r.size)
	if _, err := file.ReadAt(data, r.at); err != nil && !errors.Is(err, io.EOF) {
		return nil, false, err
	}
	if now, used, err := headerOf(file); err != nil || !used || now.salt != r.salt {
		return nil, false, err // the segment has another use
	}
	if crc32.Checksum(data, crcTable) != r.sum {
		return nil, false, errChanged
	}
	return data, true, nil
}

// list adds what other processes' logs have in a folder, whose name ends in a slash.
func (o *others) list(l *Log, dir string, all listing) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.followLocked(l); err != nil {
		return err
	}
	for _, f := range o.logs {
		f.files.list(dir, func(base string, r remote, folder bool) { all.add(base, r.size, folder) })
	}
	return nil
}

// has reports whether other processes' logs have a file in a folder, as far as they were
// read.
func (o *others) has(dir string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, f := range o.logs {
		if f.files.has(dir) {
			return true
		}
	}
	return false
}

// sync syncs other processes' logs, and with them what they forgot.
func (o *others) sync(l *Log) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.followLocked(l); err != nil {
		return err
	}
	for _, f := range o.logs {
		if f.synced {
			continue
		}
		for _, s := range f.segments {
			if err := l.disk.SyncFile(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		f.synced = true
	}
	return nil
}

// followLocked reads what was written into other processes' logs.
func (o *others) followLocked(l *Log) error {
	entries, err := l.disk.ReadDir(l.base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	own := l.folder()
	there := map[string]bool{}
	for _, e := range entries {
		if dir := filepath.Join(l.base, e.Name()); e.IsDir() && dir != own {
			there[dir] = true
		}
	}
	maps.DeleteFunc(o.logs, func(dir string, _ *foreign) bool { return !there[dir] })
	for dir := range there {
		if o.logs[dir] == nil {
			if o.logs == nil {
				o.logs = map[string]*foreign{}
			}
			o.logs[dir] = &foreign{}
		}
		if err := o.logs[dir].follow(l.disk, dir); err != nil {
			return err
		}
	}
	return nil
}

// follow reads what was written into a log.
func (f *foreign) follow(disk blob.Files, dir string) error {
	entries, err := disk.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) { // its process has ended
		*f = foreign{}
		return nil
	}
	if err != nil {
		return err
	}
	var now []*following
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".log") {
			continue
		}
		s := &following{path: filepath.Join(dir, e.Name()), at: sectorBytes}
		used, err := s.header(disk)
		if err != nil {
			return err
		}
		if used {
			now = append(now, s)
		}
	}
	slices.SortFunc(now, func(a, b *following) int { return cmp.Compare(a.use.order, b.use.order) })
	// What a segment that is gone had put is a file by now; what it forgot, a later one need
	// not say. So all is read again where one is gone.
	same := len(now) >= len(f.segments)
	for k := range min(len(now), len(f.segments)) {
		same = same && now[k].use == f.segments[k].use
	}
	if same {
		copy(now, f.segments)
	} else {
		*f = foreign{}
	}
	f.segments = now
	for _, s := range now {
		if err := f.read(disk, s); err != nil {
			return err
		}
	}
	return nil
}

// header reads what a segment is used for.
func (s *following) header(disk blob.Files) (used bool, err error) {
	file, err := disk.Open(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	s.use, used, err = headerOf(file)
	return used, err
}

// headerOf reads a segment's header.
func headerOf(file io.ReaderAt) (u use, used bool, err error) {
	b := make([]byte, sectorBytes)
	n, err := file.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return u, false, err
	}
	u, used = readHeader(b[:n])
	return u, used, nil
}

// read reads a segment on, up to what is not a whole record: it may be being written.
func (f *foreign) read(disk blob.Files, s *following) error {
	file, err := disk.Open(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	head := make([]byte, sectorBytes)
	for {
		n, err := file.ReadAt(head, s.at)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		size := claimedBytes(head[:n])
		if size == 0 {
			return nil
		}
		record := make([]byte, size)
		n, err = file.ReadAt(record, s.at)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		b, size := recordAt(record[:n], s.use.salt)
		if size == 0 {
			return nil
		}
		entries, err := entriesOf(b)
		if err != nil {
			return err
		}
		for _, e := range entries {
			f.files.remove(e.name)
			if e.kind == kindDeferred {
				f.files.put(e.name, remote{s.path, s.use.salt, s.at + headBytes + int64(e.at), e.size, crc32.Checksum(e.content, crcTable)})
			}
		}
		s.at += int64(size)
		f.synced = false
	}
}
