package commitlog

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"paddock/internal/atomicfile"
	"paddock/internal/blob"
)

// group is what is written and synced together.
type group struct {
	// Guarded by Log.mu until it is written:
	parts []part
	bytes int  // that the parts take in a segment
	puts  int  // commits among the parts
	led   bool // a goroutine writes it, or is going to

	done    chan struct{} // closed when it is written; what follows is set then
	segment *segment      // where it is
	err     error
}

// part is what one commit has in a group.
type part struct {
	body    []byte
	entries []entry // without their contents, which the body has
	sums    []uint32
	at      int64 // where the body is in the segment, once it is written
}

func newGroup() *group { return &group{done: make(chan struct{})} }

// Commit makes these the contents of their files, as [blob.Commit] says. The disk is
// waited for once, together with all that commit at the same time.
func (l *Log) Commit(writes []blob.Write) error {
	entries := make([]entry, 0, len(writes))
	size := 0
	var now []blob.Write // whose files are made now
	for _, w := range writes {
		name, err := l.name(w.Name)
		if err != nil {
			return err
		}
		e := entry{kind: kindDeferred, name: name, content: w.Data}
		switch {
		case w.Remove && !l.holds(name):
			continue
		case w.Remove:
			e.kind = kindForget
			if err := l.syncPut(name); err != nil {
				return blob.Explain(err, "writing a part of the state")
			}
		case !w.Deferred:
			e.kind, now = kindPut, append(now, w)
		}
		entries = append(entries, e)
		size += len(w.Data) + len(name) + 32
	}
	if size > maxRecord {
		return l.commitLarge(writes, entries)
	}
	placing, err := l.prepare(now)
	defer placing.discard()
	if err != nil {
		return blob.Explain(err, "writing a part of the state")
	}
	g, err := l.enqueue(entries, true)
	if err != nil {
		return err
	}
	if err := l.flush(g); err != nil {
		return blob.Explain(err, "writing a part of the state")
	}
	err = placing.finish(l.disk)
	g.segment.placing.Done()
	if err != nil {
		// The log must not bring the last file, whether or not it has its name.
		last := entries[len(entries)-1].name
		return errors.Join(blob.Explain(err, "writing a part of the state"), l.settle([]string{last}), blob.ErrNamed)
	}
	blob.RemoveCommitted(l.disk, writes)
	return nil
}

// commitLarge commits without the log what is too large for it.
func (l *Log) commitLarge(writes []blob.Write, entries []entry) error {
	if err := blob.Commit(l.disk, writes); err != nil {
		return err
	}
	for k := range entries {
		entries[k].kind, entries[k].content = kindForget, nil
	}
	if err := l.forget(entries); err != nil {
		return errors.Join(blob.Explain(err, "writing a part of the state"), blob.ErrNamed)
	}
	return nil
}

// forget has the log not hold files any more that it may hold, whose contents are synced.
func (l *Log) forget(entries []entry) error {
	l.mu.Lock()
	left := entries[:0]
	for _, e := range entries {
		if l.heldLocked(e.name) {
			left = append(left, e)
		}
	}
	l.mu.Unlock()
	if len(left) == 0 {
		return nil
	}
	g, err := l.enqueue(left, false)
	if err != nil {
		return err
	}
	return l.flush(g)
}

// heldLocked reports whether the log may hold a file.
func (l *Log) heldLocked(name string) bool {
	if l.holders[name] != nil {
		return true
	}
	for _, p := range l.group.parts {
		if slices.ContainsFunc(p.entries, func(e entry) bool { return e.name == name }) {
			return true
		}
	}
	return false
}

// placing are files that are written and have no names yet.
type placing struct {
	writes []blob.Write
	temps  []string // of those that are written and not renamed yet
	disk   blob.Files
}

// prepare writes the contents beside the files. The disk is not waited for.
func (l *Log) prepare(writes []blob.Write) (*placing, error) {
	p := &placing{writes: writes, disk: l.disk}
	for _, w := range writes {
		temp := w.Temp
		if temp == "" {
			temp = filepath.Join(filepath.Dir(w.Name), blob.TempPrefix+randomName())
		}
		f, err := l.create(temp)
		if err != nil {
			return p, err
		}
		p.temps = append(p.temps, temp)
		_, err = f.Write(w.Data)
		if err = errors.Join(err, f.Close()); err != nil {
			return p, err
		}
	}
	return p, nil
}

// create makes a file, and its folder where that is missing: a folder need not outlast a
// power cut as long as the log has what is in it.
func (l *Log) create(path string) (blob.File, error) {
	f, err := l.disk.Create(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := blob.PlaceFolder(l.disk, filepath.Dir(path)); err != nil {
			return nil, err
		}
		return l.disk.Create(path)
	}
	return f, err
}

// finish gives the files their names, in order.
func (p *placing) finish(disk blob.Files) error {
	for _, w := range p.writes {
		err := disk.Rename(p.temps[0], w.Name)
		if errors.Is(err, fs.ErrNotExist) { // the file was made elsewhere
			if _, err = blob.PlaceFolder(disk, filepath.Dir(w.Name)); err == nil {
				err = disk.Rename(p.temps[0], w.Name)
			}
		}
		if err != nil {
			return err
		}
		p.temps = p.temps[1:]
	}
	return nil
}

// discard removes what got no name.
func (p *placing) discard() {
	for _, temp := range p.temps {
		_ = p.disk.Remove(temp) // what stays is swept
	}
}

// enqueue adds entries to the next group: those of a commit, or what is to be forgotten.
func (l *Log) enqueue(entries []entry, commit bool) (*group, error) {
	p := newPart(entries)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.enqueueLocked(p, commit)
}

// newPart takes the contents out of entries.
func newPart(entries []entry) part {
	p := part{body: body(entries), entries: entries, sums: make([]uint32, len(entries))}
	for k, e := range entries {
		p.sums[k] = crc32.Checksum(e.content, crcTable)
		entries[k].size, entries[k].content = len(e.content), nil // the body has it
	}
	return p
}

// enqueueLocked is enqueue. The caller holds Log.mu.
func (l *Log) enqueueLocked(p part, commit bool) (*group, error) {
	if l.closed {
		return nil, ErrClosed
	}
	g := l.group
	g.parts = append(g.parts, p)
	g.bytes += recordBytes(len(p.body))
	if commit {
		g.puts++
	}
	return g, nil
}

// flush waits until a group is on the disk. Whoever comes first writes it, with all that
// was added meanwhile: while the group before it was written, too.
func (l *Log) flush(g *group) error {
	l.mu.Lock()
	led := g.led
	g.led = true
	l.mu.Unlock()
	if led {
		<-g.done
		return g.err
	}
	time.Sleep(l.patience())
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	l.group = newGroup()
	l.mu.Unlock()
	l.writeLocked(g)
	close(g.done)
	return g.err
}

// A commit waits for others where that many are expected, as PostgreSQL does by its settings
// commit_siblings and commit_delay: they share its sync. Somebody alone never waits. Who is
// expected for longer than that does something else, such as writing much.
const (
	siblings     = 4
	perSibling   = 300 * time.Microsecond
	mostPatience = 5 * time.Millisecond
	mostExpected = 20 * time.Millisecond
)

// patience is how long to wait for others before a sync.
func (l *Log) patience() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.expected) < siblings {
		return 0
	}
	since, n := time.Now().Add(-mostExpected), 0
	for _, at := range l.expected {
		if at.After(since) {
			n++
		}
	}
	if n < siblings {
		return 0
	}
	return min(time.Duration(n)*perSibling, mostPatience)
}

// Expect says that a commit is about to come, until it comes or never is called, which works
// twice.
func (l *Log) Expect() (never func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expectations++
	n := l.expectations
	l.expected[n] = time.Now()
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.expected, n)
	}
}

// writeLocked appends a group to the log and syncs it. The caller holds Log.writing.
func (l *Log) writeLocked(g *group) {
	s, err := l.roomLocked(g.bytes)
	var from int64
	if err == nil {
		if from = s.at; from == 0 {
			l.order++
			s.use.order = l.order
		}
		err = s.append(g.parts)
	}
	if err != nil {
		g.err = l.abandonLocked(s, from, g, err)
		return
	}
	g.segment = s
	s.placing.Add(g.puts)
	l.restLocked(s)
	l.mu.Lock()
	for _, p := range g.parts {
		for k, e := range p.entries {
			if e.puts() {
				l.holdLocked(e.name, &held{segment: s, deferred: e.kind == kindDeferred, at: p.at + int64(e.at), size: e.size, sum: p.sums[k]})
			} else {
				l.letGoLocked(e.name)
			}
		}
	}
	l.commits += g.puts
	l.mu.Unlock()
	l.spareSoon()
}

// abandonLocked gives up a segment that could not be written or synced from a place on: what
// is there of the group must not come back, and what others committed into it stays. It gives
// the group's error.
func (l *Log) abandonLocked(s *segment, from int64, g *group, cause error) error {
	if s == nil {
		return cause
	}
	err := s.revoke(from)
	if err != nil {
		l.log.Error("a part of the log cannot be written", "segment", filepath.Base(s.path), "cause", errors.Join(cause, err))
		cause = errors.Join(cause, blob.ErrNamed)
		l.refuse(s, g)
	}
	l.retireLocked()
	return cause
}

// refuse notes that a segment may hold what was refused: a later one has to forget it.
func (l *Log) refuse(s *segment, g *group) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range g.parts {
		for _, e := range p.entries {
			if e.puts() {
				l.holdLocked(e.name, &held{segment: s, refused: true})
			}
		}
	}
}

// settle makes and syncs files, and has the log not hold them any more. What is not there
// is forgotten.
func (l *Log) settle(names []string) error {
	if err := l.persist(names); err != nil {
		return err
	}
	entries := make([]entry, len(names))
	for k, name := range names {
		entries[k] = entry{kind: kindForget, name: name}
	}
	return l.forget(entries)
}

// Settle makes and syncs what the log holds of files in these folders and below them: from
// then on another process may see and change them.
func (l *Log) Settle(folders ...string) error {
	prefixes := make([]string, 0, len(folders))
	for _, path := range folders {
		name, err := l.name(path)
		if err != nil {
			return err
		}
		prefixes = append(prefixes, name+"/")
	}
	names := l.heldBelow(prefixes)
	if len(names) == 0 {
		return nil
	}
	if err := l.settle(names); err != nil {
		return fmt.Errorf("syncing what was committed: %w", err)
	}
	return nil
}

// write makes a file's content what the log in a folder has, all at once. The caller syncs it
// later: until then the log keeps it.
func (l *Log) write(path string, data []byte, folder string) error {
	temp := tempFor(path, folder)
	f, err := l.create(temp)
	if err != nil {
		return err
	}
	return atomicfile.Finish(l.disk, f, temp, path, false, func() error {
		_, err := f.Write(data)
		return err
	})
}

// tempFor names a file that is to become path, whose content is in the log in that folder. By
// that name whoever recovers the log finds it, should the process be killed meanwhile.
func tempFor(path, folder string) string {
	return filepath.Join(filepath.Dir(path), tempsOf(folder)+randomName())
}

// tempsOf is how the names begin of files that are made of the log in that folder.
func tempsOf(folder string) string { return blob.TempPrefix + filepath.Base(folder) + "-" }
