package secret

import (
	"bufio"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"

	"paddock/internal/fault"
	"paddock/internal/iolimit"
)

const (
	// maxWindow bounds in bytes what zstd may look back, as RFC 9659 does for HTTP.
	maxWindow = 8 << 20
	// maxDecoded bounds what one body may become, in bytes: what a proxy lets in of a
	// session, if nothing else is said.
	maxDecoded = 10 << 30
	// maxCodings bounds how often a body may be encoded.
	maxCodings = 3
)

// codings are the names of a Content-Encoding, in the order in which they were applied;
// none for what is as it is.
func codings(lists []string) (all []string) {
	for _, list := range lists {
		for name := range strings.SplitSeq(list, ",") {
			if name = strings.ToLower(strings.TrimSpace(name)); name != "" && name != "identity" {
				all = append(all, name)
			}
		}
	}
	return all
}

// knownOf gives those of an Accept-Encoding that can be decoded here.
func knownOf(list string) string {
	var kept []string
	for item := range strings.SplitSeq(list, ",") {
		name, _, _ := strings.Cut(item, ";")
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "gzip", "x-gzip", "deflate", "br", "zstd", "identity":
			kept = append(kept, strings.TrimSpace(item))
		}
	}
	if len(kept) == 0 {
		return "identity"
	}
	return strings.Join(kept, ", ")
}

// decoded undoes encodings, while it is read; close lets go of what that takes, but not of
// src. A name that is not known is a fault.
func decoded(src io.Reader, names []string) (r io.Reader, closes func(), err error) {
	if len(names) > maxCodings {
		return nil, nil, fault.New(fault.Unavailable, "a body is encoded more than %d times", maxCodings)
	}
	var all []func()
	closes = func() {
		for _, f := range all {
			f()
		}
	}
	r = src
	for i := len(names) - 1; i >= 0; i-- {
		from := r
		switch names[i] {
		case "gzip", "x-gzip":
			r = &lazy{open: func() (io.Reader, error) { return gzip.NewReader(from) }}
		case "deflate":
			r = &lazy{open: func() (io.Reader, error) { return deflate(from) }}
		case "br":
			r = brotli.NewReader(from)
		case "zstd":
			d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
			if err != nil {
				closes()
				return nil, nil, err
			}
			all = append(all, d.Close)
			r = &lazy{open: func() (io.Reader, error) { return d, d.Reset(from) }}
		default:
			closes()
			return nil, nil, fault.New(fault.Unavailable, "a body is encoded as %.40q, which cannot be looked into", names[i]).
				WithHint("ask for gzip, deflate, br, zstd or no encoding")
		}
	}
	if len(names) > 0 {
		r = &iolimit.Reader{R: r, Left: maxDecoded, Over: errEndless}
	}
	return r, closes, nil
}

// deflate reads what servers call that: zlib's form, or without its header.
func deflate(src io.Reader) (io.Reader, error) {
	b := bufio.NewReader(src)
	head, err := b.Peek(2)
	if err == nil && head[0]&0x0f == 8 && (int(head[0])<<8|int(head[1]))%31 == 0 {
		return zlib.NewReader(b)
	}
	if len(head) == 0 {
		return nil, err
	}
	return flate.NewReader(b), nil
}

// lazy opens a decoder when it is first read: the beginning of what it decodes may be
// long in coming. Nothing at all is an empty text.
type lazy struct {
	open func() (io.Reader, error)
	r    io.Reader
	err  error
}

func (l *lazy) Read(p []byte) (int, error) {
	if l.r == nil && l.err == nil {
		l.r, l.err = l.open()
	}
	if l.err != nil {
		return 0, l.err
	}
	return l.r.Read(p)
}

const (
	// maxRatio bounds how many times as large a body becomes that is decoded only to be
	// looked into, beyond freeGrowth bytes: archives of logs become some fifty times as
	// large, and what is made to be work a thousand times.
	maxRatio   = 100
	freeGrowth = 64 << 20
)

// tooMuch reports whether what was read has become more than it is worth looking into.
func tooMuch(read, decoded int64) bool { return decoded > freeGrowth+maxRatio*read }

var errEndless = fault.New(fault.Exhausted, "a body has more than %d GiB when it is decoded", maxDecoded>>30)

// sniffed is the encoding that a body shows by its first bytes; "": none.
func sniffed(head string) string {
	switch {
	case strings.HasPrefix(head, "\x1f\x8b\x08"):
		return "gzip"
	case strings.HasPrefix(head, "\x28\xb5\x2f\xfd"):
		return "zstd"
	case len(head) > 1 && head[0] == 0x78 && (int(head[0])<<8|int(head[1]))%31 == 0:
		return "deflate"
	}
	return ""
}

// peek is a reader of a compressed body that is only looked at: what is written to it is
// decoded, and searched. What cannot be decoded is nobody's secret.
type peek struct {
	names []string // as its header says

	mu      sync.Mutex // a body may be closed while it is read; guards what follows
	head    string
	started bool
	in      *io.PipeWriter
	found   chan bool
}

// sniff is how many bytes show an encoding.
const sniff = 4

// write takes the next bytes, and tells that a placeholder is in them.
func (p *peek) write(part []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.writeLocked(part)
}

func (p *peek) writeLocked(part []byte) bool {
	if !p.started {
		if p.head += string(part); len(p.head) < sniff {
			return false
		}
		part = []byte(p.head)
		p.startLocked()
	}
	if p.in == nil {
		return false
	}
	_, err := p.in.Write(part)
	return errors.Is(err, errFound)
}

var errFound = errors.New("secret: a placeholder was found")

func (p *peek) startLocked() {
	p.started = true
	names := p.names
	if name := sniffed(p.head); len(names) == 0 && name != "" {
		names = []string{name}
	}
	if len(names) == 0 {
		return
	}
	out, in := io.Pipe()
	p.in, p.found = in, make(chan bool, 1)
	go func() {
		found := search(out, names)
		if found {
			_ = out.CloseWithError(errFound)
		}
		p.found <- found
		_, _ = io.Copy(io.Discard, out)
	}()
}

// search decodes a body and looks for a placeholder.
func search(src io.Reader, names []string) bool {
	read := int64(0)
	from := iolimit.Watch(src, func(n int) error {
		read += int64(n)
		return nil
	})
	r, closes, err := decoded(from, names)
	if err != nil {
		return false
	}
	defer closes()
	w, buffer, total := marks.Watch(), make([]byte, 16<<10), int64(0)
	for {
		n, err := r.Read(buffer)
		if w.Saw(buffer[:n]) || err != nil && w.End() {
			return true
		}
		if total += int64(n); err != nil || tooMuch(read, total) {
			return false
		}
	}
}

// end says that the body has ended, and tells whether a placeholder was in it. It works
// twice.
func (p *peek) end() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.started {
		p.writeLocked([]byte(strings.Repeat("\x00", sniff))) // shorter than any
	}
	if p.in == nil {
		return false
	}
	_ = p.in.Close()
	found := <-p.found
	p.found <- found
	return found
}
