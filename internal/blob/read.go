package blob

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"

	"paddock/internal/fault"
)

const reading = "reading the stored state"

// Open gives the content that r refers to. What is read is compared with the
// digest: only who reads to the end, and gets io.EOF there, has read what was
// put; anything else is an ErrDamaged, at the end at the latest. A content that
// is not there is an ErrMissing. It needs no batch where something that is kept
// refers to the content.
func (s *Store) Open(r Ref) (io.ReadCloser, error) {
	f, err := s.files.Open(s.path(r.Digest))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing(r.Digest)
	}
	if err != nil {
		return nil, Explain(err, reading)
	}
	c := &content{ref: r, file: f, hash: sha256.New()}
	if err := c.begin(); err != nil {
		_ = f.Close() // it was only read
		return nil, err
	}
	return c, nil
}

// Load gives a whole content; one of more than limit bytes is a
// fault.Exhausted. See [Store.Open].
func (s *Store) Load(r Ref, limit int64) ([]byte, error) {
	if r.Size < 0 || r.Size > limit {
		return nil, fault.New(fault.Exhausted, "a part of the stored state has %d bytes, more than %d", r.Size, limit)
	}
	c, err := s.Open(r)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	// One byte more than the content has makes the reader see its end.
	data := make([]byte, r.Size+1)
	n, err := io.ReadFull(c, data)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return data[:n:n], nil
	}
	if err == nil {
		err = damaged(r.Digest, "it is too long")
	}
	return nil, err
}

// Check tells whether all of these contents are there, by the sizes of their
// files: one system call each. Only what has another size is read. The error is
// that of the first that is missing or damaged.
func (s *Store) Check(refs []Ref) error {
	for _, r := range refs {
		info, err := s.files.Stat(s.path(r.Digest))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return missing(r.Digest)
		case err != nil:
			return Explain(err, reading)
		case info.Size() != r.Stored:
			// Another paddock may have compressed it better.
			if _, err := s.verify(r.Digest, r.Size); err != nil {
				return err
			}
		}
	}
	return nil
}

// verify reads a content to its end and gives the size of its file.
func (s *Store) verify(d Digest, size int64) (stored int64, err error) {
	c, err := s.Open(Ref{Digest: d, Size: size})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	piece := heads.Get().(*[headBytes]byte)
	defer heads.Put(piece)
	for {
		if _, err := c.Read(piece[:]); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return 0, err
		}
	}
	info, err := c.(*content).file.Stat()
	if err != nil {
		return 0, Explain(err, reading)
	}
	return info.Size(), nil
}

// content reads one and compares it.
type content struct {
	ref  Ref
	file File
	src  io.Reader // what gives the plain content
	put  func()    // of the decoder; nil: there is none
	hash hash.Hash
	n    int64
	disk error // what the file's Read said; it is not damage
	err  error // what ended it
}

// begin reads the header.
func (c *content) begin() error {
	header := make([]byte, headerBytes)
	if _, err := io.ReadFull(sourceOf(c), header); err != nil {
		return c.explain(err)
	}
	switch {
	case string(header[:len(magic)]) != magic:
		return damaged(c.ref.Digest, "its file does not begin as it should")
	case header[len(magic)] == raw:
		c.src = sourceOf(c)
	case header[len(magic)] == packed:
		d, put, err := decoder(sourceOf(c))
		if err != nil {
			return c.explain(err)
		}
		c.src, c.put = d, put
	default:
		return damaged(c.ref.Digest, fmt.Sprintf("it is written in the unknown way %q", header[len(magic)]))
	}
	return nil
}

// source is the file of a content; it remembers what the disk said.
type source struct{ c *content }

func sourceOf(c *content) source { return source{c} }

func (s source) Read(p []byte) (int, error) {
	n, err := s.c.file.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.c.disk = err
	}
	return n, err
}

// explain makes an error of what ended the reading too early.
func (c *content) explain(err error) error {
	if c.disk != nil {
		return Explain(c.disk, reading)
	}
	return damaged(c.ref.Digest, err.Error())
}

// Read gives a part of the content, and io.EOF when all of it was right.
func (c *content) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.src.Read(p)
	c.hash.Write(p[:n])
	c.n += int64(n)
	switch {
	case c.n > c.ref.Size:
		c.err = damaged(c.ref.Digest, "it is too long")
		return 0, c.err
	case errors.Is(err, io.EOF) && c.n == c.ref.Size && Digest(c.hash.Sum(nil)) == c.ref.Digest:
		c.err = io.EOF
	case errors.Is(err, io.EOF):
		c.err = damaged(c.ref.Digest, fmt.Sprintf("its %d bytes are not what was put", c.n))
	case err != nil:
		c.err = c.explain(err)
	}
	return n, c.err
}

// Close lets go of the file. It works twice, and says nothing of the content.
func (c *content) Close() error {
	if c.put != nil {
		c.put()
		c.put = nil
	}
	if c.file != nil {
		_ = c.file.Close() // it was only read
		c.file = nil
		c.err = fs.ErrClosed
	}
	return nil
}
