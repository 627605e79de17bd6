package pkgproxy

import (
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"time"

	"paddock/internal/fault"
)

// usedEvery is how often it is noted that a file is used.
const usedEvery = time.Minute

// maxKnown bounds how many files are remembered that were verified.
const maxKnown = 16 << 10

// stored is a file of the cache that is given out: it was verified, and what is read of it
// from its beginning is hashed once more on its way, so that one that was changed on the
// disk meanwhile, however little that shows, is never read to its end. A part that is read
// from elsewhere is read after all of it was verified again. It is for one goroutine.
type stored struct {
	s      *store
	name   string
	digest digest
	file   *os.File
	size   int64 // when it was opened; what is beyond is not given out

	at      int64     // where it is read next
	sum     hash.Hash // of its first bytes, so many:
	summed  int64
	whole   bool  // it was verified when it was open
	changed error // it is not what it has to be
}

var _ io.ReadSeekCloser = (*stored)(nil)

// errChanged is for a file that is not what was verified. It is fetched again then.
var errChanged = fault.New(fault.Unavailable, "a file in the cache of packages was changed on the disk").
	WithHint("try again: it is fetched again; tell the operator")

// Read implements [io.Reader]. The last bytes are given only of a file that has its digest.
func (f *stored) Read(b []byte) (int, error) {
	switch {
	case f.changed != nil:
		return 0, f.changed
	case f.at >= f.size:
		return 0, io.EOF
	case f.at == 0:
		f.sum.Reset()
		f.summed = 0
	case f.at != f.summed && !f.whole:
		if err := f.verify(); err != nil {
			return 0, err
		}
	}
	n, err := f.file.ReadAt(b[:min(int64(len(b)), f.size-f.at)], f.at)
	if errors.Is(err, io.EOF) && f.at+int64(n) < f.size {
		return 0, f.isChanged() // it is shorter than it was
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if f.at == f.summed {
		f.sum.Write(b[:n])
		if f.summed += int64(n); f.summed == f.size && !f.digest.is(f.sum) {
			return 0, f.isChanged()
		}
	}
	f.at += int64(n)
	return n, nil
}

// verify reads all of it.
func (f *stored) verify() error {
	sum := f.digest.hash()
	n, err := io.Copy(sum, io.NewSectionReader(f.file, 0, f.size))
	if err != nil {
		return err
	}
	if n != f.size || !f.digest.is(sum) {
		return f.isChanged()
	}
	f.whole = true
	return nil
}

// isChanged takes it out of the cache.
func (f *stored) isChanged() error {
	f.s.drop(f.name)
	f.changed = errChanged
	return f.changed
}

// Seek implements [io.Seeker].
func (f *stored) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += f.at
	case io.SeekEnd:
		offset += f.size
	}
	if offset < 0 {
		return 0, fs.ErrInvalid
	}
	f.at = offset
	return offset, nil
}

// Close implements [io.Closer].
func (f *stored) Close() error { return f.file.Close() }

// is tells whether a sum is this digest.
func (d digest) is(sum hash.Hash) bool { return hex.EncodeToString(sum.Sum(nil)) == d.value }

// verified opens a file that has its digest. It is read for that when this process has not
// done so before, or when anything shows that it was changed since.
func (s *store) verified(name string, d digest) (*stored, error) {
	file, err := s.root.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	known := s.knows(name, info)
	if age := time.Since(info.ModTime()); age < 0 || age > usedEvery {
		s.touch(name)
		if info, err = file.Stat(); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	f := &stored{s: s, name: name, digest: d, file: file, size: info.Size(), sum: d.hash()}
	if !known {
		if err := f.verify(); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	s.remember(name, info)
	return f, nil
}

// knows tells whether a file is one that was verified.
func (s *store) knows(name string, info fs.FileInfo) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.known[name]
	return was != nil && os.SameFile(was, info) && was.Size() == info.Size() && was.ModTime().Equal(info.ModTime())
}

// remember notes what a file was like before it was verified.
func (s *store) remember(name string, info fs.FileInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= maxKnown {
		clear(s.known)
	}
	s.known[name] = info
}

// drop removes a file that is not what it has to be.
func (s *store) drop(name string) {
	s.mu.Lock()
	delete(s.known, name)
	s.mu.Unlock()
	_ = s.root.Remove(name)
}

// touch notes that something was used.
func (s *store) touch(name string) {
	now := time.Now()
	_ = s.root.Chtimes(name, now, now)
}
