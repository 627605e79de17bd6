package session

import (
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"unicode/utf8"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// spooled is how many times as much as is kept of a stream in a result may be printed: all
// of it becomes a file. A program that prints more is stopped.
const spooled = 64

// Stream tells what there is of a stream beyond the text of a Result. The zero value:
// that has all of it.
type Stream struct {
	// Bytes is how many were printed, and LeftOut how many of them the text has a mark
	// for, between the beginning and the end.
	Bytes, LeftOut int64
	// End is where in the text the end begins that follows the mark; 0 without one.
	End int
	// Path is the file of the workspace with all of it; Problem is why there is none, or
	// why what it has is the text alone.
	Path, Problem string
}

// recorder keeps the beginning and the end of what is printed on a stream, has all of it
// in a file once that is more, and passes the beginning on.
type recorder struct {
	limit int64     // of what is kept
	also  io.Writer // gets as much as that
	head  []byte    // the first bytes, as many as the limit
	tail  []byte    // the last of those that came after them, at least a third of the limit
	bytes int64     // of all
	cut   bool      // some never came
	spool spool
}

// begin has it go on after what was printed before: its first bytes, its last ones, how
// many, and whether some never came.
func (r *recorder) begin(head, tail []byte, all int64, cut bool) {
	r.head, r.tail, r.bytes, r.cut = slices.Clone(head), slices.Clone(tail), max(all, int64(len(head))), cut
	r.limit = max(r.limit, int64(len(head)))
	if r.more() {
		r.limit = int64(len(head))
		r.spool.problem = "it had printed so much before it waited for a person"
	}
}

// more tells that more was printed than is kept.
func (r *recorder) more() bool { return r.bytes > int64(len(r.head)) }

func (r *recorder) Write(p []byte) (int, error) {
	first := p[:min(int64(len(p)), r.limit-int64(len(r.head)))]
	r.head = append(r.head, first...)
	r.bytes += int64(len(p))
	if rest := p[len(first):]; len(rest) > 0 {
		r.spool.write(r.head, rest)
		r.tail = append(r.tail, rest...)
		if keep := int(r.limit / 3); len(r.tail) > 2*keep+len(rest) {
			r.tail = append(r.tail[:0], r.tail[len(r.tail)-keep:]...)
		}
	}
	if r.also != nil && len(first) > 0 {
		if n, err := r.also.Write(first); err != nil {
			return n, err
		}
	}
	return len(p), nil
}

// text is what is kept: all of it, or two thirds of that from the beginning, a mark, and
// the end.
func (r *recorder) text() (string, Stream) {
	if !r.more() {
		return string(r.head), Stream{}
	}
	third := len(r.head) / 3
	first, last := r.head[:len(r.head)-third], r.tail
	if len(last) < third {
		last = append(slices.Clone(r.head[len(r.head)-third+len(last):]), last...)
	}
	last = last[len(last)-third:]
	for n := 1; n < utf8.UTFMax && n <= len(first); n++ { // no half of a character
		if b := first[len(first)-n]; utf8.RuneStart(b) {
			if !utf8.FullRune(first[len(first)-n:]) {
				first = first[:len(first)-n]
			}
			break
		}
	}
	for n := 1; n < utf8.UTFMax && len(last) > 0 && !utf8.RuneStart(last[0]); n++ {
		last = last[1:]
	}
	leftOut := r.bytes - int64(len(first)+len(last))
	begun := fmt.Sprintf("%s\n[… %d bytes left out …]\n", first, leftOut)
	return begun + string(last), Stream{Bytes: r.bytes, LeftOut: leftOut, End: len(begun)}
}

// spool is a file that has all that was printed on a stream. It has no name, and is gone
// with the server. The zero value is one that is not to be.
type spool struct {
	dir     string // where it is made; "": nowhere
	most    int64  // bytes
	file    *os.File
	bytes   int64
	problem string // why there is none
}

// spool is where all is kept that the run prints on a stream.
func (r *run) spool() spool {
	return spool{dir: r.s.dir, most: r.s.manager.config.DiskBytes}
}

// write adds more to it, after head where it is new.
func (s *spool) write(head, more []byte) {
	if s.dir == "" || s.problem != "" {
		return
	}
	if s.file == nil {
		if s.file, s.problem = s.open(head); s.problem != "" {
			return
		}
	}
	if s.bytes += int64(len(more)); s.bytes > s.most {
		s.close()
		s.problem = "it is more than the session's disk limit"
	} else if _, err := s.file.Write(more); err != nil {
		s.close()
		s.problem = unspooled
	}
}

const unspooled = "the server's disk does not take it"

func (s *spool) open(head []byte) (f *os.File, problem string) {
	f, err := os.CreateTemp(s.dir, "printed-")
	if err != nil {
		return nil, unspooled
	}
	s.bytes = int64(len(head))
	if err := os.Remove(f.Name()); err != nil {
		problem = unspooled
	} else if _, err := f.Write(head); err != nil {
		problem = unspooled
	}
	if problem != "" {
		_ = f.Close()
		return nil, problem
	}
	return f, ""
}

func (s *spool) close() {
	if s.file != nil {
		_ = s.file.Close()
		s.file = nil
	}
}

// file makes a file of the workspace of what was printed on a stream, where that is more
// than the result has.
func (r *run) file(from *recorder, p *Stream, name, text string) {
	if !from.more() || r.s.isEphemeral() {
		return
	}
	err := error(nil)
	p.Problem = from.spool.problem
	if from.spool.file != nil {
		p.Path, err = r.putFileFrom(name, io.NewSectionReader(from.spool.file, 0, from.spool.bytes), from.spool.bytes)
	}
	if p.Path == "" {
		if err != nil {
			p.Problem = fault.ProblemOf(err).Message
		}
		p.Path, _ = r.putFile(name, []byte(text)) // the same problem may be one here
	}
}

// sameStart is how many bytes two texts begin with alike.
func sameStart(a, b string) (n int) {
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	for n > 0 && n < len(b) && !utf8.RuneStart(b[n]) {
		n--
	}
	return n
}

// displays collects what was shown.
type displays struct {
	mu  sync.Mutex
	all []sandbox.Display
}

func (d *displays) add(one sandbox.Display) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, one)
}

func (d *displays) take() []sandbox.Display {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.all
}
