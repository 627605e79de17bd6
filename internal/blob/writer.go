package blob

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"

	"paddock/internal/fault"
)

// Form is what a content is like.
type Form int

const (
	// Plain is a content as it comes: it is compressed if that helps.
	Plain Form = iota
	// Packed is one that is compressed already.
	Packed
)

// A stored file begins with a magic number and the way in which it is written.
const (
	magic  = "pdblob1"
	raw    = 'r'
	packed = 'z' // a zstd frame

	headerBytes = len(magic) + 1
)

// headBytes is how much of a content is held in memory before a file is made:
// what fits is hashed first, and not written when the store has it already.
const headBytes = 128 << 10

// window bounds what an encoder looks back at, and with it its memory. A
// decoder refuses larger ones.
const (
	window    = 512 << 10
	maxWindow = 8 << 20
)

var heads = sync.Pool{New: func() any { return new([headBytes]byte) }}

// Writer takes one content of a [Batch], from one goroutine. It ends with Close
// or Discard.
type Writer struct {
	batch *Batch
	form  Form
	hash  hash.Hash
	size  int64
	err   error // what ended it

	buffer *[headBytes]byte
	head   int // bytes of buffer that are in use

	// When the content does not fit into buffer:
	file    File
	name    string
	stored  int64
	encoder *zstd.Encoder
}

// Writer gives a writer for one content.
func (b *Batch) Writer(f Form) *Writer {
	return &Writer{batch: b, form: f, hash: sha256.New(), buffer: heads.Get().(*[headBytes]byte)}
}

// Write takes a part of the content.
func (w *Writer) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	w.hash.Write(p)
	w.size += int64(len(p))
	if w.file == nil {
		if len(p) <= headBytes-w.head {
			w.head += copy(w.buffer[w.head:], p)
			return len(p), nil
		}
		if w.err = w.spill(); w.err != nil {
			return 0, w.err
		}
	}
	if w.err = w.write(p); w.err != nil {
		return 0, w.err
	}
	return len(p), nil
}

// ReadFrom takes what r gives until its end. An error of r is given back as it is.
func (w *Writer) ReadFrom(r io.Reader) (n int64, err error) {
	if w.err != nil {
		return 0, w.err
	}
	for w.file == nil && w.head < headBytes {
		k, err := r.Read(w.buffer[w.head:])
		w.hash.Write(w.buffer[w.head : w.head+k])
		w.head += k
		w.size += int64(k)
		n += int64(k)
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
	piece := heads.Get().(*[headBytes]byte)
	defer heads.Put(piece)
	for {
		k, err := r.Read(piece[:])
		if k > 0 {
			if _, err := w.Write(piece[:k]); err != nil {
				return n, err
			}
			n += int64(k)
		}
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// spill makes a file of what has been held in memory.
func (w *Writer) spill() error {
	var err error
	if w.file, w.name, err = w.batch.temp(); err != nil {
		return err
	}
	way := byte(raw)
	if w.form == Plain && shrinks(w.buffer[:w.head]) {
		way = packed
		w.encoder = encoders.get()
	}
	if _, err := w.put(append([]byte(magic), way)); err != nil {
		return Explain(err, "keeping state")
	}
	if w.encoder != nil {
		w.encoder.Reset(sink(w.put))
	}
	err = w.write(w.buffer[:w.head])
	w.head = 0
	return err
}

// sink makes an io.Writer of a function.
type sink func([]byte) (int, error)

func (s sink) Write(p []byte) (int, error) { return s(p) }

// put writes to the file.
func (w *Writer) put(p []byte) (int, error) {
	n, err := w.file.Write(p)
	w.stored += int64(n)
	return n, err
}

func (w *Writer) write(p []byte) (err error) {
	if w.encoder != nil {
		_, err = w.encoder.Write(p)
	} else {
		_, err = w.put(p)
	}
	return Explain(err, "keeping state")
}

// shrinks tells whether a content of which this is the beginning is worth
// compressing: by a sixteenth at least.
func shrinks(head []byte) bool {
	e := encoders.get()
	defer encoders.put(e)
	return len(e.EncodeAll(head, make([]byte, 0, len(head)))) < len(head)-len(head)/16
}

// Close ends the content and gives what refers to it, from the batch's Sync on.
func (w *Writer) Close() (Ref, error) {
	if w.err != nil {
		w.Discard()
		return Ref{}, w.err
	}
	digest := Digest(w.hash.Sum(nil))
	if w.encoder != nil {
		if err := w.encoder.Close(); err != nil {
			w.err = Explain(err, "keeping state")
			w.Discard()
			return Ref{}, w.err
		}
	}
	ref, found, replace := w.batch.find(digest, w.size)
	var small []byte
	if !found && w.file == nil {
		small, w.err = w.writeHead()
	}
	if found || w.err != nil {
		err := w.err
		w.Discard()
		return ref, err
	}
	it := &item{digest: digest, temp: w.name, file: w.file, data: small, replace: replace, ref: Ref{Digest: digest, Size: w.size, Stored: w.stored}}
	w.file = nil
	w.Discard()
	return w.batch.add(it)
}

// writeHead makes the file of a content that fits into memory; a small one's is given
// back, and made by the batch's commit.
func (w *Writer) writeHead() (small []byte, err error) {
	content := w.buffer[:w.head]
	whole := append(append(make([]byte, 0, headerBytes+len(content)), magic...), raw)
	if w.form == Plain {
		e := encoders.get()
		frame := e.EncodeAll(content, whole)
		encoders.put(e)
		if len(frame)-headerBytes < len(content)-len(content)/16 {
			frame[len(magic)] = packed
			whole = frame
		}
	}
	if whole[len(magic)] == raw {
		whole = append(whole[:headerBytes], content...)
	}
	if w.batch.holds(len(whole)) {
		w.stored = int64(len(whole))
		return whole, nil
	}
	if w.file, w.name, err = w.batch.temp(); err != nil {
		return nil, err
	}
	_, err = w.put(whole)
	return nil, Explain(err, "keeping state")
}

var errDone = fault.New(fault.Internal, "paddock made a mistake").WithCause(errors.New("blob: the writer is closed"))

// Discard gives the content up. It may be called after Close, and twice.
func (w *Writer) Discard() {
	if w.err == nil {
		w.err = errDone
	}
	if w.encoder != nil {
		w.encoder.Reset(nil)
		encoders.put(w.encoder)
		w.encoder = nil
	}
	if w.file != nil {
		w.batch.drop(w.file, w.name)
		w.file = nil
	}
	if w.buffer != nil {
		heads.Put(w.buffer)
		w.buffer = nil
	}
}

// decoder gives back the plain content of a zstd frame; put has to be called
// when it is no longer read.
func decoder(r io.Reader) (d *zstd.Decoder, put func(), err error) {
	d = decoders.get()
	put = func() {
		_ = d.Reset(bytes.NewReader(nil)) // it lets go of r
		decoders.put(d)
	}
	if err := d.Reset(r); err != nil {
		put()
		return nil, nil, err
	}
	return d, put, nil
}
