package session

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/history"
)

// An exported session is a tar archive in zstd: archiveHead, then as
// blobFolder/<digest> the lists of files that it names, then every other content
// that it or the lists name, then archiveEnd, without which it is not all there.
// So whoever reads one knows before each content whether it is wanted. Digests
// say whether a content is what it was.
const (
	archiveHead = "paddock-session.json"
	archiveEnd  = "paddock-end.json"
	blobFolder  = "blobs/"

	archiveFormat = 1
	// maxHead bounds archiveHead, and what of it goes into a manifest: half of
	// what package history reads.
	maxHead = 4 << 20
	// archiveWindow is zstd's, in bytes: what reading an archive holds in memory.
	archiveWindow = 8 << 20
)

// archive is what archiveHead holds.
type archive struct {
	Format     int              `json:"format"`
	ExportedAt time.Time        `json:"exported_at"`
	Isolation  string           `json:"isolation"`
	Settings   Settings         `json:"settings"`
	Checkpoint history.Manifest `json:"checkpoint"`
}

// ending is what archiveEnd holds.
type ending struct {
	Blobs int `json:"blobs"`
}

// errArchive is for what is no archive of a session, or not all of one.
func errArchive(format string, args ...any) *fault.Error {
	return fault.New(fault.Invalid, "this is not a whole session archive: "+format, args...).WithHint("export the session again, and copy the file whole")
}

// scratchFolder is where archives lie while they are written and read, in the
// state folder. What is in it nobody needs, or it cannot be removed.
const scratchFolder = "scratch"

// scratch is a file that is gone when it is closed, at the latest with its
// process where the system removes open files; else the next archive's. It is
// written first and then read, by one goroutine.
type scratch struct {
	blob.File
	size int64
	gone func() // removes its name
}

func (m *Manager) scratch() (*scratch, error) {
	const doing = "keeping an archive for a moment"
	files, dir := m.config.files(), filepath.Join(m.config.Dir, scratchFolder)
	if err := files.Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, blob.Explain(err, doing)
	}
	m.sweepScratch()
	name := filepath.Join(dir, rand.Text())
	f, err := files.Append(name)
	if err != nil {
		return nil, blob.Explain(err, doing)
	}
	s := &scratch{File: f, gone: func() { _ = files.Remove(name) }} // what stays is swept
	s.gone()
	return s, nil
}

// sweepScratch removes what processes left that are gone. A file in use has no
// name any more, or cannot be removed.
func (m *Manager) sweepScratch() {
	files, dir := m.config.files(), filepath.Join(m.config.Dir, scratchFolder)
	entries, _ := files.ReadDir(dir) // the next archive sweeps again
	for _, e := range entries {
		_ = files.Remove(filepath.Join(dir, e.Name()))
	}
}

func (s *scratch) Write(p []byte) (int, error) {
	n, err := s.File.Write(p)
	s.size += int64(n)
	return n, blob.Explain(err, "keeping an archive for a moment")
}

// reader gives what was written, from its beginning.
func (s *scratch) reader() io.Reader { return io.NewSectionReader(s.File, 0, s.size) }

// Close gives the disk back. It works twice.
func (s *scratch) Close() error {
	err := s.File.Close()
	s.gone()
	return err
}

// bounded reads until ctx ends, and so many bytes at most: more is an error.
type bounded struct {
	ctx  context.Context
	from io.Reader
	left int64
}

var errTooLong = errors.New("session: there is more than there may be")

func (b *bounded) Read(p []byte) (int, error) {
	if err := context.Cause(b.ctx); err != nil {
		return 0, err
	}
	if b.left <= 0 {
		return 0, errTooLong
	}
	n, err := b.from.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
