// Package iolimit has readers and writers that count what passes, and end with an error of
// the caller's what is more than may be. Unlike io.LimitedReader they tell too much from the
// end.
package iolimit

import (
	"context"
	"io"
)

// Reader reads at most Left bytes of R. If there are more, it gives Over after those. Left
// may be changed between two calls of Read.
type Reader struct {
	R    io.Reader
	Left int64 // how many bytes may still be read
	Over error // what Read says of more
}

// Read implements [io.Reader]. To see whether there is more than Left it reads one byte more.
func (r *Reader) Read(p []byte) (int, error) {
	if r.Left < 0 {
		return 0, r.Over
	}
	if int64(len(p)) > r.Left {
		p = p[:r.Left+1]
	}
	n, err := r.R.Read(p)
	if int64(n) > r.Left {
		n, r.Left = int(r.Left), -1
		return n, r.Over
	}
	r.Left -= int64(n)
	return n, err
}

// ReadAll reads all of r, if that is at most most bytes; else the error is over, and nothing
// is given.
func ReadAll(r io.Reader, most int64, over error) ([]byte, error) {
	limited := &Reader{R: r, Left: most, Over: over}
	data, err := io.ReadAll(limited)
	if limited.Left < 0 {
		return nil, over
	}
	return data, err
}

// Watch gives a reader of r that calls each with how many bytes each Read has read. An error
// of each ends the reading.
func Watch(r io.Reader, each func(n int) error) io.Reader { return &watched{r, each} }

type watched struct {
	r    io.Reader
	each func(n int) error
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	if over := w.each(n); over != nil {
		return n, over
	}
	return n, err
}

// WithContext gives a reader of r that fails with ctx's cause once ctx has ended. It does not
// interrupt a Read that waits.
func WithContext(ctx context.Context, r io.Reader) io.Reader { return &cancelled{ctx, r} }

type cancelled struct {
	ctx context.Context
	r   io.Reader
}

func (c *cancelled) Read(p []byte) (int, error) {
	if err := context.Cause(c.ctx); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// Writer writes at most Left bytes to W. A Write that does not fit writes nothing, and its
// error is Over.
type Writer struct {
	W    io.Writer
	N    int64 // how many bytes were written
	Left int64 // how many bytes may still be written
	Over error // what Write says of more
}

// Write implements [io.Writer].
func (w *Writer) Write(p []byte) (int, error) {
	if int64(len(p)) > w.Left {
		return 0, w.Over
	}
	n, err := w.W.Write(p)
	w.N, w.Left = w.N+int64(n), w.Left-int64(n)
	return n, err
}

// ReaderAt reads at most Left bytes of R in all, wherever they are. It is used by one
// goroutine at a time.
type ReaderAt struct {
	R    io.ReaderAt
	Left int64 // how many bytes may still be read
	Over error // what ReadAt says of more
}

// ReadAt implements [io.ReaderAt].
func (r *ReaderAt) ReadAt(p []byte, at int64) (int, error) {
	if r.Left -= int64(len(p)); r.Left < 0 {
		return 0, r.Over
	}
	return r.R.ReadAt(p, at)
}
