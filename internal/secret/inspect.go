package secret

import (
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"

	"paddock/internal/fault"
	"paddock/internal/secret/redact"
)

const (
	// maxHeld bounds in bytes what is held back of a body that is looked into, until it is
	// known that no value is in it.
	maxHeld = 1 << 20
	// decodedPart is the largest part that a decoder gives at once: a block of zstd. A
	// decoder that is read with so much room has nothing decoded left.
	decodedPart = 128 << 10
	// maxBegun is how many bytes of a value may have begun in what is given out.
	maxBegun = 3
)

// inspected gives a body as it is, and fails where it is compressed and a value is in what
// it becomes: gzip, zlib and zstd are found by their first bytes, within one another too,
// whatever the body's header says. What a decoder has not looked at yet is held back, and
// so is what a value may have begun in. What cannot be decoded passes as it is.
type inspected struct {
	raw    *layer // src, whose bytes are held
	held   []byte // read and not given out
	base   int64  // where that begins in the body
	free   int64  // up to where it may be given out
	with   *redact.Redactor
	src    io.Reader
	open   []func() // lets go of decoders
	top    *layer
	watch  *redact.Watch
	total  int64
	parts  []byte
	passes bool // the rest is as it is
	err    error
}

// inspect looks into a body; its Close lets go of decoders, and is called once nobody
// reads any more.
func inspect(src io.Reader, with *redact.Redactor) *inspected {
	return &inspected{src: src, with: with}
}

// Close lets go of decoders.
func (i *inspected) Close() {
	for _, f := range i.open {
		f()
	}
	i.open = nil
}

// Read implements [io.Reader].
func (i *inspected) Read(p []byte) (int, error) {
	for {
		if n := min(i.free-i.base, int64(len(i.held))); n > 0 {
			m := copy(p, i.held[:n])
			i.held, i.base = i.held[m:], i.base+int64(m)
			return m, nil
		}
		switch {
		case len(p) == 0:
			return 0, nil
		case i.passes && len(i.held) == 0 && i.err == nil:
			return i.src.Read(p)
		case i.err != nil:
			return 0, i.err
		case i.top == nil:
			i.begin()
		default:
			i.step()
		}
	}
}

// begin looks which encodings the body shows.
func (i *inspected) begin() {
	if i.raw == nil {
		i.raw = &layer{src: held{i}, room: make([]byte, 16<<10)}
	}
	i.top = i.raw
	for range maxCodings {
		name := sniffed(i.top.head())
		if name == "" {
			break
		}
		next, closes, err := unpacked(i.top, name)
		if err != nil {
			break
		}
		if closes != nil {
			i.open = append(i.open, closes)
		}
		i.top = &layer{src: next, under: i.top}
	}
	if i.top == i.raw {
		i.pass()
	} else if i.watch, i.total = i.with.Watch(), 0; i.parts == nil {
		i.parts = make([]byte, decodedPart)
	}
}

// unpacked decodes one layer. It reads byte by byte, and no further than it gives.
func unpacked(from *layer, name string) (io.Reader, func(), error) {
	switch name {
	case "gzip":
		return &lazy{open: func() (io.Reader, error) { return gzip.NewReader(from) }}, nil, nil
	case "deflate":
		return &lazy{open: func() (io.Reader, error) { return zlib.NewReader(from) }}, nil, nil
	}
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, nil, err
	}
	return &lazy{open: func() (io.Reader, error) { return d, d.Reset(from) }}, d.Close, nil
}

// step looks at what is decoded next.
func (i *inspected) step() {
	n, err := i.top.Read(i.parts)
	i.total += int64(n)
	over := i.total > freeGrowth+maxRatio*(i.base+int64(len(i.held)))
	switch {
	case i.watch.Saw(i.parts[:n]) || err != nil && i.watch.End():
		i.fail(fault.New(fault.Denied, "the answer is compressed, and has the value of a secret").
			WithHint("ask for it without compression, or with Accept-Encoding: gzip, deflate, br or zstd, so that the value can be replaced"))
	case over:
		i.fail(fault.New(fault.Exhausted, "the answer is compressed, and becomes more than %d times as large, so that it cannot be looked into for secrets", maxRatio))
	case err != nil && errors.Is(i.raw.err, errHeld):
		i.fail(fault.New(fault.Exhausted, "the answer is compressed, and has more than %d KiB from which nothing comes, so that it cannot be looked into for secrets", maxHeld>>10))
	case errors.Is(err, io.EOF) && i.raw.fill() == nil: // another may follow
		i.free, i.top = i.raw.done(), nil
	case err != nil:
		i.pass()
	case i.watch.Begun() <= maxBegun:
		i.free = i.top.done()
	}
}

// pass has the rest given as it is.
func (i *inspected) pass() {
	i.passes, i.free = true, i.base+int64(len(i.held))
	if i.raw != nil && i.raw.err != nil { // the source's own, its end too
		i.err = i.raw.err
	}
}

func (i *inspected) fail(err error) { i.err, i.held = err, nil }

var errHeld = errors.New("secret: too much is held back")

// held reads the source, and keeps what it gives.
type held struct{ i *inspected }

func (h held) Read(p []byte) (int, error) {
	i := h.i
	if len(i.held) > maxHeld {
		return 0, errHeld
	}
	n, err := i.src.Read(p)
	i.held = append(i.held, p[:n]...)
	return n, err
}

// layer is what a decoder reads: a text, and which part of the body it has been made of.
// It is read byte by byte by what decodes it further, so that nothing is read ahead.
type layer struct {
	src   io.Reader
	under *layer // what src decodes; nil: it is the body
	part  []byte // read of src and not by anyone
	err   error  // src's
	size  int64  // the bytes read of src
	whole int64  // the bytes of the body that all parts before this one were made of
	next  int64  // the same, with this one
	room  []byte
}

// done is how much of the body has been read through this layer to its end.
func (l *layer) done() int64 {
	switch {
	case l.under == nil:
		return l.size - int64(len(l.part))
	case len(l.part) > 0:
		return l.whole
	}
	return l.next
}

func (l *layer) fill() error {
	if l.room == nil {
		l.room = make([]byte, decodedPart)
	}
	for tries := 0; len(l.part) == 0; tries++ {
		if l.err != nil {
			return l.err
		}
		if tries > 100 {
			l.err = io.ErrNoProgress
			continue
		}
		n, err := l.src.Read(l.room)
		l.part, l.err, l.whole = l.room[:n], err, l.next
		if l.size += int64(n); n > 0 && l.under != nil {
			l.next = l.under.done()
		}
	}
	return nil
}

// head is how the text begins, of which nothing is read thereby, as far as it takes to
// know its encoding.
func (l *layer) head() string {
	if l.fill() != nil {
		return ""
	}
	for tries := 0; tries < 100 && l.err == nil && begun(string(l.part)); tries++ {
		n := copy(l.room, l.part)
		var more int
		more, l.err = l.src.Read(l.room[n:])
		if l.part, l.size = l.room[:n+more], l.size+int64(more); more > 0 && l.under != nil {
			l.next = l.under.done()
		}
	}
	return string(l.part[:min(sniff, len(l.part))])
}

// begun tells whether more has to be read for the encoding to be known.
func begun(head string) bool {
	return len(head) < sniff && (strings.HasPrefix("\x1f\x8b\x08", head) || strings.HasPrefix("\x28\xb5\x2f\xfd", head) || head == "x")
}

// Read implements [io.Reader].
func (l *layer) Read(p []byte) (int, error) {
	if err := l.fill(); err != nil {
		return 0, err
	}
	n := copy(p, l.part)
	l.part = l.part[n:]
	return n, nil
}

// ReadByte implements [io.ByteReader].
func (l *layer) ReadByte() (byte, error) {
	if err := l.fill(); err != nil {
		return 0, err
	}
	c := l.part[0]
	l.part = l.part[1:]
	return c, nil
}
