package commitlog

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/lock"
)

// Recover makes durable what processes left in their logs that have ended: after a power
// cut it makes the files again. It is called by who gets a claim that may have been such a
// process's. Where no log is left it takes some system calls.
func (l *Log) Recover() error {
	if _, err := l.disk.Stat(l.base); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	done, err := l.lockAll()
	if err != nil {
		return unrecovered(err)
	}
	defer done()
	entries, err := l.disk.ReadDir(l.base)
	if err != nil {
		return unrecovered(err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if err := l.recoverFolder(filepath.Join(l.base, e.Name())); err != nil {
			return unrecovered(err)
		}
	}
	return nil
}

func unrecovered(err error) error {
	if f := blob.Explain(err, "recovering what was committed"); fault.KindOf(f) == fault.Exhausted {
		return f
	}
	return fault.New(fault.Unavailable, "what was committed before the last end of paddock cannot be recovered").
		WithHint("the server's log says why; nothing is lost as long as the folder log in the state folder stays").WithCause(err)
}

// recoverFolder recovers one process's log, if the process has ended.
func (l *Log) recoverFolder(dir string) error {
	unlock, err := lock.Try(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE)
	if err != nil || unlock == nil { // nil: the process lives
		return err
	}
	err = l.recoverSegments(dir)
	unlock()
	if err != nil {
		return err
	}
	return l.removeFolder(dir)
}

// recoverSegments recovers what is in a folder, and removes its segments.
func (l *Log) recoverSegments(dir string) error {
	r := &recovery{log: l, dir: dir, found: map[string]place{}, folders: map[string]bool{}}
	err := r.read()
	if err == nil {
		err = r.apply()
	}
	if err == nil {
		err = r.sweep()
	}
	r.close()
	if err != nil || len(r.segments) == 0 {
		return err
	}
	// What was recovered must not be so again, over what is newer then.
	for _, s := range r.segments {
		if err := l.disk.Remove(s.path); err != nil {
			return err
		}
	}
	if err := l.disk.SyncDir(dir); err != nil {
		return err
	}
	l.log.Info("the state was recovered from the log", "files", len(r.found), "damaged", r.lost)
	return nil
}

// recovery is what one log holds.
type recovery struct {
	log      *Log
	dir      string // the folder of the log
	segments []*reading
	found    map[string]place // the newest content of each file
	folders  map[string]bool  // of all files that it names, also of those that it forgets
	lost     bool             // a part of it is not whole
}

// reading is a segment that is read.
type reading struct {
	path string
	file blob.File
	use  use
	used bool
}

// place is where a content is.
type place struct {
	segment  *reading
	deferred bool
	at       int64
	size     int
}

func (r *recovery) close() {
	for _, s := range r.segments {
		_ = s.file.Close() // it was only read
	}
}

// read finds what the segments hold.
func (r *recovery) read() error {
	entries, err := r.log.disk.ReadDir(r.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".log") {
			continue
		}
		if err := r.open(filepath.Join(r.dir, e.Name())); err != nil {
			return err
		}
	}
	slices.SortFunc(r.segments, func(a, b *reading) int { return cmp.Compare(a.use.order, b.use.order) })
	for _, s := range r.segments {
		if err := r.readSegment(s); err != nil {
			return err
		}
	}
	return nil
}

// open opens a segment and reads its header.
func (r *recovery) open(path string) error {
	f, err := r.log.disk.Open(path)
	if err != nil {
		return err
	}
	s := &reading{path: path, file: f}
	r.segments = append(r.segments, s)
	s.use, s.used, err = headerOf(f)
	return err
}

func (r *recovery) readSegment(s *reading) error {
	if !s.used {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(s.file, 2*mostSpare))
	if err != nil {
		return err
	}
	hole := false
	for at := sectorBytes; at < len(data); {
		b, size := recordAt(data[at:], s.use.salt)
		if size == 0 {
			hole = hole || slices.ContainsFunc(data[at:min(at+sectorBytes, len(data))], func(c byte) bool { return c != 0 })
			at += sectorBytes // a record that was not synced, or damage: what follows may be whole
			continue
		}
		r.lost = r.lost || hole
		if err := r.take(s, b, int64(at+headBytes)); err != nil {
			return err
		}
		at += size
	}
	return nil
}

// take notes what a record says whose body is at that place of the segment.
func (r *recovery) take(s *reading, b []byte, at int64) error {
	entries, err := entriesOf(b)
	if err != nil {
		return fmt.Errorf("%s: %w", s.path, err)
	}
	for _, e := range entries {
		if !filepath.IsLocal(filepath.FromSlash(e.name)) {
			return fmt.Errorf("%s: %w: it names %q", s.path, errRecord, e.name)
		}
		r.folders[slashDir(e.name)] = true
		if e.kind == kindForget {
			delete(r.found, e.name)
			continue
		}
		r.found[e.name] = place{s, e.kind == kindDeferred, at + int64(e.at), e.size}
	}
	return nil
}

// apply makes what was found durable.
func (r *recovery) apply() error {
	names := make([]string, 0, len(r.found))
	for name := range r.found {
		names = append(names, name)
	}
	slices.Sort(names)
	if err := each(names, r.restore); err != nil {
		return err
	}
	return r.log.syncFiles(names, names)
}

// restore makes one file. The operating system still has what the process wrote, unless it
// was started since: then a file that was not deferred may be newer than the log, by what
// need not have been synced, and is written anew as it is. A sync that failed before would
// say nothing.
func (r *recovery) restore(name string) error {
	p := r.found[name]
	if p.segment.use.boot == r.log.boot && !p.deferred {
		return r.log.rewrite(name, r.dir)
	}
	data := make([]byte, p.size)
	if _, err := p.segment.file.ReadAt(data, p.at); err != nil {
		return err
	}
	return r.log.write(r.log.path(name), data, r.dir)
}

// sweep removes the files that the process, or one that began to recover its log, was about
// to make and did not bring to their names.
func (r *recovery) sweep() error {
	temps := tempsOf(r.dir)
	for folder := range r.folders {
		dir := r.log.path(folder)
		entries, err := r.log.disk.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), temps) {
				continue
			}
			if err := r.log.disk.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}
