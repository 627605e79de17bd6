package blob

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"path/filepath"

	"paddock/internal/atomicfile"
)

// The file changesFile tells every process how large the store is: a head that
// says what it took when the file was begun, and by how much it grew since, a
// number of 8 bytes for each batch. Nothing but Bytes relies on it, so it is not
// synced: what a power cut or a full disk left of it is recognised by its head
// or its length, and it is begun again. So it is by every collection.
const (
	changesMagic = "pdsizes1"
	idBytes      = 8 // random, to tell one such file from the next
	changeBytes  = 8
	changesHead  = len(changesMagic) + idBytes + changeBytes
)

// tally is what is known of the store's size.
type tally struct {
	id    [idBytes]byte // of the file that was read
	bytes int64         // what the store takes
	read  int64         // how much of the file is in that; zero: nothing is known
}

// Bytes is what the store's contents take on disk, each rounded up to 4 KiB, as
// batches and collections of all processes have told; that takes some
// microseconds. The figure is off by what a process did not live to tell, until
// somebody collects. Where nobody has told anything it reads the store's folders.
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
	info, err := log.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	if size < int64(changesHead) || (size-int64(changesHead))%changeBytes != 0 {
		return s.measureLocked()
	}
	var head [changesHead]byte
	if _, err := log.ReadAt(head[:], 0); err != nil {
		return err
	}
	id := [idBytes]byte(head[len(changesMagic):])
	if t := &s.tally; t.read == 0 || id != t.id || size < t.read {
		if !bytes.HasPrefix(head[:], []byte(changesMagic)) {
			return s.measureLocked()
		}
		*t = tally{id: id, read: int64(changesHead), bytes: int64(binary.LittleEndian.Uint64(head[changesHead-changeBytes:]))}
	}
	news := make([]byte, size-s.tally.read)
	if _, err := log.ReadAt(news, s.tally.read); len(news) > 0 && err != nil {
		return err
	}
	for k := 0; k < len(news); k += changeBytes {
		s.tally.bytes += int64(binary.LittleEndian.Uint64(news[k:]))
	}
	if s.tally.read = size; s.tally.bytes < 0 {
		return s.measureLocked()
	}
	return nil
}

// measureLocked counts, and tells everybody.
func (s *Store) measureLocked() error {
	sum, err := s.eachBlob(0, func(Digest, int64) error { return nil })
	if err != nil {
		return err
	}
	s.tellLocked(sum)
	s.tally.bytes = sum
	return nil
}

// tellLocked begins the file again. Where that cannot be done the next Bytes measures.
func (s *Store) tellLocked(sum int64) {
	s.tally = tally{}
	head := append(make([]byte, 0, changesHead), changesMagic...)
	head = head[:len(changesMagic)+idBytes]
	_, _ = rand.Read(head[len(changesMagic):]) // never fails
	head = binary.LittleEndian.AppendUint64(head, uint64(sum))
	temp := filepath.Join(s.dir, newFolder, rand.Text())
	log, err := s.files.Create(temp)
	if err != nil {
		return
	}
	err = atomicfile.Finish(s.files, log, temp, filepath.Join(s.dir, changesFile), false, func() error {
		_, err := log.Write(head)
		return err
	})
	if err != nil {
		return // what may be left of it, a collection removes
	}
	s.tally = tally{id: [idBytes]byte(head[len(changesMagic):]), bytes: sum, read: int64(changesHead)}
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

// forget makes the next Bytes look again.
func (s *Store) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally = tally{}
}

// collected begins to tell again. The caller keeps all others out; bytes is what
// the store takes, if sure.
func (s *Store) collected(bytes int64, sure bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sure {
		s.tellLocked(bytes)
		return
	}
	s.tally = tally{}
	_ = s.files.Remove(filepath.Join(s.dir, changesFile)) // the next Bytes measures
}
