package blob

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"path/filepath"
)

// The file changesFile tells other processes by how much the store grew: a
// number of 8 bytes for each batch. Nothing but Bytes relies on it, so it is
// not synced. When it has become long a collection begins another, whose first
// number is random and tells the two apart.
const (
	changeBytes = 8
	maxChanges  = 64 << 10
)

// tally is what is known of the store's size.
type tally struct {
	known bool
	bytes int64             // what the store takes
	read  int64             // how much of changesFile is in that
	first [changeBytes]byte // what changesFile began with, when read is not zero
}

// Bytes is what the store's contents take on disk, each rounded up to 4 KiB.
// The first call of a process reads the store's folders. Later ones read what
// batches and collections told since, of other processes too, in a few
// microseconds; the figure is off by what a process did not live to tell,
// until somebody collects.
func (s *Store) Bytes() (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.followLocked()
	return s.tally.bytes, Explain(err, "measuring the stored state")
}

// followLocked brings the tally up to date.
func (s *Store) followLocked() error {
	log, err := s.files.Append(filepath.Join(s.dir, changesFile))
	if err != nil {
		return err
	}
	defer log.Close()
	t := &s.tally
	info, err := log.Stat()
	if err != nil {
		return err
	}
	var first [changeBytes]byte
	if info.Size() >= changeBytes {
		if _, err := log.ReadAt(first[:], 0); err != nil {
			return err
		}
	}
	switch {
	case !t.known, info.Size() < t.read, t.read == 0 && info.Size() > 0, t.read > 0 && first != t.first:
		return s.measureLocked(info.Size(), first)
	case info.Size() == t.read:
		return nil
	}
	news := make([]byte, (info.Size()-t.read)/changeBytes*changeBytes)
	if _, err := log.ReadAt(news, t.read); err != nil {
		return err
	}
	for k := 0; k < len(news); k += changeBytes {
		t.bytes += int64(binary.LittleEndian.Uint64(news[k:]))
	}
	t.read += int64(len(news))
	return nil
}

// measureLocked counts; read is how much had been told before.
func (s *Store) measureLocked(read int64, first [changeBytes]byte) error {
	bytes, err := s.eachBlob(func(Digest, int64) error { return nil })
	if err != nil {
		return err
	}
	s.tally = tally{known: true, bytes: bytes, read: read / changeBytes * changeBytes, first: first}
	return nil
}

// grew tells everybody. Who cannot be told finds out when somebody collects.
func (s *Store) grew(by int64) {
	if by == 0 {
		return
	}
	log, err := s.files.Append(filepath.Join(s.dir, changesFile))
	if err != nil {
		s.forget()
		return
	}
	defer log.Close()
	if _, err := log.Write(binary.LittleEndian.AppendUint64(nil, uint64(by))); err != nil {
		s.forget()
	}
}

// forget makes the next Bytes measure.
func (s *Store) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally = tally{}
}

// collected begins to tell anew, so that whoever has read before measures
// again. The caller keeps all others out; bytes is what the store takes, if sure.
func (s *Store) collected(bytes int64, sure bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally = tally{}
	var first [changeBytes]byte
	_, _ = rand.Read(first[:]) // never fails
	temp := filepath.Join(s.dir, newFolder, rand.Text())
	log, err := s.files.Create(temp)
	if err != nil {
		return // the next Bytes measures
	}
	_, err = log.Write(first[:])
	if err = errors.Join(err, log.Close()); err == nil {
		err = s.files.Rename(temp, filepath.Join(s.dir, changesFile))
	}
	if err == nil && sure {
		s.tally = tally{known: true, bytes: bytes, read: changeBytes, first: first}
	}
}
