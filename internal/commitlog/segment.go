package commitlog

import (
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"paddock/internal/blob"
)

// The sizes of segments, in bytes. The first one grows as it is written: a process that
// commits once or twice makes no more. The next ones are written with zeros beforehand, so
// that a sync of a record needs no change of the file system's own records. Each is twice
// as large as the one before, as who commits much syncs fewer files with longer segments:
// most are removed by then.
const (
	firstSegment = 512 << 10
	leastSpare   = 4 << 20
	mostSpare    = 64 << 20
)

// sparesAfter is how many commits show that more will come.
const sparesAfter = 8

// segment is a file of the log.
type segment struct {
	path  string
	file  blob.File
	limit int64 // of its records and its header, in bytes
	ready bool  // it has zeros up to limit

	// Guarded by Log.writing:
	at      int64          // where the next record begins; zero: the header is not written
	use     use            // what it is used for
	rest    *time.Timer    // retires it; nil: nothing was committed
	placing sync.WaitGroup // of commits that are in it, and whose files have no names yet
}

// append writes records and syncs them. It notes where their bodies are.
func (s *segment) append(parts []part) error {
	var buf []byte
	at := s.at
	if at == 0 {
		_, _ = rand.Read(s.use.salt[:]) // never fails
		buf = s.use.header()
	}
	for k, p := range parts {
		parts[k].at = at + int64(len(buf)) + headBytes
		buf = appendRecord(buf, s.use.salt, p.body)
	}
	n, err := s.file.WriteAt(buf, at)
	s.at = at + int64(n)
	if err != nil {
		return err
	}
	return s.file.Datasync()
}

// roomLocked gives a segment that has room for so many bytes. The caller holds Log.writing.
func (l *Log) roomLocked(bytes int) (*segment, error) {
	if err := l.beginLocked(); err != nil {
		return nil, err
	}
	need := int64(bytes) + sectorBytes
	l.mu.Lock()
	s := l.spare
	if now := l.current; now != nil && now.at+need <= now.limit && (now.ready || s == nil) {
		l.mu.Unlock()
		return now, nil
	}
	l.spare = nil
	l.mu.Unlock()
	l.retireLocked()
	l.awaitRetirees()
	if s != nil && need <= s.limit {
		l.current = s
		return s, nil
	}
	if s != nil {
		l.removeSegment(s)
	}
	s, err := l.newSegment()
	if err != nil {
		return nil, err
	}
	// Its name has to outlast a power cut as its records do.
	if err := l.disk.SyncDir(l.dir); err != nil {
		l.removeSegment(s)
		return nil, err
	}
	s.limit = max(firstSegment, need)
	l.current = s
	return s, nil
}

// newSegment makes an empty one. The caller holds Log.writing.
func (l *Log) newSegment() (*segment, error) {
	l.number++
	path := filepath.Join(l.dir, fmt.Sprintf("%06d.log", l.number))
	f, err := l.disk.Create(path)
	if err != nil {
		return nil, err
	}
	return &segment{path: path, file: f, use: use{boot: l.boot}}, nil
}

// spareSoon begins to make the next segment, where more is going to be committed. The
// caller holds Log.writing.
func (l *Log) spareSoon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.spare != nil || l.commits < sparesAfter {
		return
	}
	size := int64(leastSpare)
	if l.current != nil && l.current.ready {
		size = max(min(2*l.current.limit, mostSpare), leastSpare)
	}
	l.makeSpareLocked(size)
}

// makeSpareLocked begins to make a segment of that size. The caller holds Log.writing and
// Log.mu.
func (l *Log) makeSpareLocked(size int64) {
	if l.closed || l.sparing {
		return
	}
	l.sparing = true // where it cannot be made it is tried no more: the disk may be full
	s, err := l.newSegment()
	if err != nil {
		return
	}
	l.background.Go(func() {
		err := l.fill(s, size)
		l.mu.Lock()
		defer l.mu.Unlock()
		if err != nil || l.closed {
			l.removeSegment(s)
			return
		}
		l.spare, l.sparing = s, false
		l.shrinkSoonLocked()
	})
}

// shrinkSoonLocked has the log give back what it does not need when nothing is committed for
// a while. The caller holds Log.mu.
func (l *Log) shrinkSoonLocked() {
	l.seen = l.commits
	switch {
	case l.closed:
	case l.shrinking == nil:
		l.shrinking = time.AfterFunc(restTime, l.shrink)
	default:
		l.shrinking.Reset(restTime)
	}
}

// shrink replaces a large spare segment by a small one, as in a process that has just begun,
// if nothing is in use: the next commit finds a segment that is ready, too.
func (l *Log) shrink() {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != nil || l.commits != l.seen {
		l.shrinkSoonLocked()
		return
	}
	l.commits, l.seen = 0, 0
	s := l.spare
	if l.closed || s == nil || s.limit <= firstSegment {
		return
	}
	l.spare = nil
	l.background.Go(func() { l.removeSegment(s) })
	l.makeSpareLocked(firstSegment)
}

// zeros is what segments are filled with.
var zeros [256 << 10]byte

// fill writes zeros into a new segment.
func (l *Log) fill(s *segment, size int64) error {
	for at := int64(0); at < size; at += int64(len(zeros)) {
		if _, err := s.file.WriteAt(zeros[:], at); err != nil {
			return err
		}
	}
	if err := errors.Join(s.file.Sync(), l.disk.SyncDir(filepath.Dir(s.path))); err != nil {
		return err
	}
	s.limit, s.ready = size, true
	return nil
}

// removeSegment removes one that holds nothing.
func (l *Log) removeSegment(s *segment) {
	_ = s.file.Close()
	_ = l.disk.Remove(s.path) // or with the folder
}

// revoke makes a segment not hold what was written from a place on, which may not be synced.
func (s *segment) revoke(from int64) error {
	if from == 0 { // with its header
		return s.clear()
	}
	for at := from; at < s.at; at += int64(len(zeros)) {
		if _, err := s.file.WriteAt(zeros[:min(int64(len(zeros)), s.at-at)], at); err != nil {
			return err
		}
	}
	s.at = from
	return s.file.Datasync()
}

// clear makes a segment hold nothing, also after a power cut.
func (s *segment) clear() error {
	if s.at == 0 {
		return nil
	}
	if _, err := s.file.WriteAt(zeros[:sectorBytes], 0); err != nil {
		return err
	}
	if err := s.file.Datasync(); err != nil {
		return err
	}
	s.at = 0
	return nil
}

func randomName() string { return rand.Text() }
