package image

import (
	"errors"
	"io"
	"sync/atomic"

	"paddock/internal/fault"
	"paddock/internal/iolimit"
)

// room is what an image may take, of which its layers take shares at the same
// time.
type room struct {
	maxBytes, maxEntries int64
	bytes, entries       atomic.Int64
}

// share begins what one layer takes.
func (r *room) share() *share { return &share{of: r} }

// share is what one layer took.
type share struct {
	of             *room
	bytes, entries int64
}

// entry takes one entry.
func (s *share) entry() error {
	s.entries++
	if s.of.entries.Add(1) > s.of.maxEntries {
		return errTooLarge("it has more than %d files and folders", s.of.maxEntries)
	}
	return nil
}

// grow takes so many bytes of disk, which are no more than an image may have.
func (s *share) grow(n int64) error {
	s.bytes += n
	if s.of.bytes.Add(n) > s.of.maxBytes {
		return s.of.tooMuch()
	}
	return nil
}

// giveBack returns all of it, for another try.
func (s *share) giveBack() {
	s.of.bytes.Add(-s.bytes)
	s.of.entries.Add(-s.entries)
	s.bytes, s.entries = 0, 0
}

func (r *room) tooMuch() error { return errTooLarge("it takes more than %d MiB", r.maxBytes>>20) }

func errTooLarge(format string, args ...any) error {
	return fault.New(fault.Exhausted, "the image is too large: "+format, args...).
		WithHint("sandbox.max_image_mb and sandbox.max_image_files say how large one may be; nothing of it was kept")
}

// errBroken marks that what a layer is read from broke off, or is not what its
// digest says.
var errBroken = errors.New("a layer breaks off")

// slack is what a tar has besides what it unpacks to, for each entry that may be.
const slack = 2 << 10

// bound ends what decompresses to more than fits into any image.
func (r *room) bound(in io.Reader) io.Reader {
	return &iolimit.Reader{R: in, Left: r.maxBytes + slack*r.maxEntries, Over: r.tooMuch()}
}

// add takes the room of a layer that was unpacked before.
func (r *room) add(c contents) error {
	if r.bytes.Add(c.Bytes) > r.maxBytes {
		return r.tooMuch()
	}
	if r.entries.Add(c.Entries) > r.maxEntries {
		return errTooLarge("it has more than %d files and folders", r.maxEntries)
	}
	return nil
}
