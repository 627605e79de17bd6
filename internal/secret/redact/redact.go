// Package redact finds texts in streams of bytes, in the forms in which programs and
// servers write them, and puts others in their place: as they are; in base64 and base32,
// in either alphabet and wherever it begins; in hexadecimal; in base64 of UTF-16. Each of
// these is found with letters of either case, in UTF-16 and UTF-32, in lines, and with the
// escapes of URLs, JSON, sources, HTML and quoted-printable, two of these on one another,
// also where only some of the bytes are escaped, and where they are split over many reads.
//
// What is looked for is held back only as far as it may be the beginning of a match: a
// stream whose parts end in something else flows on as it comes.
package redact

import (
	"errors"
	"io"
)

// Text is a text that is to be replaced.
type Text struct {
	Value   []byte // an empty one is looked for nowhere
	Instead string // what is put in its place
}

// Redactor replaces texts. It does not change, and is for any number of goroutines. The
// nil Redactor replaces nothing.
type Redactor struct {
	automaton *automaton
	instead   []string
}

// New makes a Redactor. It takes memory of some 500 bytes for each byte of the texts.
func New(texts []Text) *Redactor {
	r := &Redactor{}
	var patterns []pattern
	for _, t := range texts {
		if len(t.Value) == 0 {
			continue
		}
		for _, form := range forms(t.Value) {
			patterns = append(patterns, pattern{form, int32(len(r.instead))})
		}
		r.instead = append(r.instead, t.Instead)
	}
	if len(patterns) == 0 {
		return nil
	}
	r.automaton = newAutomaton(patterns)
	return r
}

// Bytes gives a text without what is to be replaced: the same slice where there is
// nothing of it.
func (r *Redactor) Bytes(text []byte) []byte {
	if r == nil {
		return text
	}
	s := newScan(r.automaton)
	s.read(text)
	s.end()
	if len(s.spans) == 0 {
		return text
	}
	st := stream{scan: s, instead: r.instead, held: text}
	return st.release(nil, s.pos)
}

// String is Bytes of a string.
func (r *Redactor) String(text string) string {
	if r == nil || text == "" {
		return text
	}
	return string(r.Bytes([]byte(text)))
}

// Reader gives what src gives without what is to be replaced. After an error other than
// io.EOF what was held back is not given.
func (r *Redactor) Reader(src io.Reader) io.Reader {
	if r == nil {
		return src
	}
	return &reader{src: src, stream: stream{scan: newScan(r.automaton), instead: r.instead}, buffer: make([]byte, 16<<10)}
}

// longest bounds in bytes what is held back of matches that overlap each other, as a text
// of one letter has them.
const longest = 64 << 10

// stream is a text that is read in parts.
type stream struct {
	*scan
	instead []string
	held    []byte // what was read and not given out
	base    int64  // where that begins
}

// release appends what is held back and stands before a place to out.
func (s *stream) release(out []byte, before int64) []byte {
	done := 0
	for _, f := range s.spans {
		if f.end > before && before-f.start < longest {
			before = min(before, f.start)
			break
		}
		out = append(out, s.held[:f.start-s.base]...)
		if !f.given {
			out = append(out, s.instead[f.id]...)
		}
		if f.end > before { // it goes on, and nobody knows for how long
			s.skip(before)
			s.spans[done].start, s.spans[done].given = before, true
			break
		}
		s.skip(f.end)
		done++
	}
	s.spans = s.spans[:copy(s.spans, s.spans[done:])]
	if before > s.base {
		out = append(out, s.held[:before-s.base]...)
		s.skip(before)
	}
	return out
}

func (s *stream) skip(to int64) {
	s.held = s.held[to-s.base:]
	s.base = to
}

type reader struct {
	src io.Reader
	stream
	buffer []byte
	store  []byte // what held is in
	room   []byte // what out is in
	out    []byte // what is to be given
	err    error
}

// maxEmpty is how often a source may give nothing and no error.
const maxEmpty = 100

// Read implements [io.Reader].
func (r *reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for empty := 0; len(r.out) == 0; {
		if r.err != nil {
			return 0, r.err
		}
		n, err := r.src.Read(r.buffer)
		if empty++; n > 0 {
			empty = 0
		}
		if empty > maxEmpty {
			err = io.ErrNoProgress
		}
		r.err = err
		r.take(r.buffer[:n], errors.Is(err, io.EOF))
	}
	n := copy(p, r.out)
	r.out = r.out[n:]
	return n, nil
}

// take reads a part, which may be the last.
func (r *reader) take(part []byte, last bool) {
	r.read(part)
	if cap(r.held)-len(r.held) < len(part) { // what is held back is copied once in a while alone
		room := r.store[:0]
		if need := 2*len(r.held) + len(part); cap(room) < need {
			room = make([]byte, 0, 2*need)
			r.store = room
		}
		r.held = append(room, r.held...)
	}
	r.held = append(r.held, part...)
	before := r.hold()
	if last {
		r.end()
		before = r.pos
	}
	r.room = r.release(r.room[:0], before)
	r.out = r.room
}
