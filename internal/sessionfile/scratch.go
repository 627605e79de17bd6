package sessionfile

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path/filepath"

	"paddock/internal/blob"
	"paddock/internal/iolimit"
)

// Scratch is a folder where archives and their parts lie while they are written
// and read. What is in it nobody needs, or it cannot be removed. It is safe for
// concurrent use, also by several processes.
type Scratch struct {
	Files blob.Files
	Dir   string // made when it is missing
}

// keeping is what is being done when a file of a Scratch fails.
const keeping = "keeping an archive for a moment"

// File makes an empty file, and removes what processes left that are gone.
func (s Scratch) File() (*File, error) {
	if err := s.Files.Mkdir(s.Dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, blob.Explain(err, keeping)
	}
	s.Sweep()
	name := filepath.Join(s.Dir, rand.Text())
	f, err := s.Files.Append(name)
	if err != nil {
		return nil, blob.Explain(err, keeping)
	}
	file := &File{file: f, remove: func() { _ = s.Files.Remove(name) }} // what stays is swept
	file.remove()
	return file, nil
}

// Sweep removes what processes left that are gone. A file in use has no name any
// more, or cannot be removed.
func (s Scratch) Sweep() {
	entries, _ := s.Files.ReadDir(s.Dir) // the next archive sweeps again
	for _, e := range entries {
		_ = s.Files.Remove(filepath.Join(s.Dir, e.Name()))
	}
}

// File is one that is gone when it is closed, at the latest with its process
// where the system removes open files; else when the next one is made. It is
// written first and then read, by one goroutine.
type File struct {
	file   blob.File
	size   int64
	remove func() // takes its name away
}

// Write adds to the file.
func (f *File) Write(p []byte) (int, error) {
	n, err := f.file.Write(p)
	f.size += int64(n)
	return n, blob.Explain(err, keeping)
}

// Size is how many bytes were written.
func (f *File) Size() int64 { return f.size }

// Reader gives what was written, from its beginning.
func (f *File) Reader() io.Reader { return io.NewSectionReader(f.file, 0, f.size) }

// Copy gives to w what was written, until ctx ends.
func (f *File) Copy(ctx context.Context, w io.Writer) error {
	_, err := io.Copy(w, iolimit.WithContext(ctx, f.Reader()))
	return err
}

// spoolBytes is how much of an archive is read between two looks at the limits.
const spoolBytes = 1 << 20

// Spool reads an archive into the file, to its end: as far as Limits.Bytes and
// Limits.Room allow, and until ctx ends.
func (f *File) Spool(ctx context.Context, r io.Reader, limits Limits) error {
	from := &iolimit.Reader{R: iolimit.WithContext(ctx, r), Left: limits.Bytes, Over: errTooLong}
	for {
		_, err := io.CopyN(f, from, spoolBytes)
		if errors.Is(err, errTooLong) {
			return limits.exceeded()
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("reading the archive: %w", err)
		}
		if full := limits.room(f.size); full != nil {
			return full
		}
		if err != nil {
			return nil
		}
	}
}

// Close gives the disk back. It works twice.
func (f *File) Close() error {
	err := f.file.Close()
	f.remove()
	return err
}

// Layer is an interpreter's whole state, which is in no store. It is written
// first, like its file.
type Layer struct {
	*File
	hash hash.Hash
}

// Layer makes an empty one.
func (s Scratch) Layer() (*Layer, error) {
	f, err := s.File()
	if err != nil {
		return nil, err
	}
	return &Layer{f, sha256.New()}, nil
}

// Write adds to the state.
func (l *Layer) Write(p []byte) (int, error) {
	n, err := l.File.Write(p)
	l.hash.Write(p[:n])
	return n, err
}

// Ref is how a manifest names what was written.
func (l *Layer) Ref() blob.Ref {
	return blob.Ref{Digest: blob.Digest(l.hash.Sum(nil)), Size: l.size, Stored: l.size}
}
