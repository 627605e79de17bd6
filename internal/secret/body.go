package secret

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"paddock/internal/fault"
	"paddock/internal/secret/redact"
)

// maxWhole is how many bytes of a body whose length is known are read before anything is
// sent: then nothing is sent where something may not be, and the length is right.
const maxWhole = 1 << 20

// body looks at the body.
func (o *outgoing) body() error {
	if o.r.Body == nil || o.r.Body == http.NoBody {
		return nil
	}
	f := o.filler()
	o.r.GetBody = nil
	if o.r.ContentLength < 0 || o.r.ContentLength > maxWhole {
		if f.fills {
			o.r.ContentLength = -1
			o.r.Header.Del("Content-Length")
		}
		o.r.Body = f
		return nil
	}
	whole, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if len(whole) == 0 {
		o.r.Body, o.r.ContentLength = http.NoBody, 0
		return nil
	}
	o.r.Body, o.r.ContentLength = io.NopCloser(bytes.NewReader(whole)), int64(len(whole))
	if o.r.Header.Get("Content-Length") != "" {
		o.r.Header.Set("Content-Length", strconv.Itoa(len(whole)))
	}
	return nil
}

// filler gives a body with values in it. It fails where a placeholder begins that may not
// be there.
type filler struct {
	o     *outgoing
	src   io.ReadCloser
	fills bool // some value may be put in
	as    encode
	watch *redact.Watch
	peek  *peek

	in, out []byte // what was read and not looked at; what may be given
	buffer  []byte
	err     error
}

const theBody = "the body"

func (o *outgoing) filler() *filler {
	f := &filler{o: o, src: o.r.Body, watch: marks.Watch(), buffer: make([]byte, 16<<10)}
	f.peek = &peek{names: codings(o.r.Header.Values("Content-Encoding"))}
	kind, _, _ := mime.ParseMediaType(o.r.Header.Get("Content-Type"))
	f.as = bodyEncoding(kind)
	for _, b := range o.state.all {
		f.fills = f.fills || len(f.peek.names) == 0 && b.places.body && o.may(b) == nil
	}
	return f
}

// bodyEncoding is how a value is written in a body of a kind.
func bodyEncoding(kind string) encode {
	switch {
	case kind == "application/json" || strings.HasSuffix(kind, "+json") || strings.HasSuffix(kind, "json-seq") || strings.HasSuffix(kind, "ndjson"):
		return func(b *sessionSecret) (string, error) {
			if !utf8.Valid(b.value) {
				return "", fault.New(fault.Denied, "the secret %s is not text, which JSON could hold", b.name)
			}
			var text bytes.Buffer
			e := json.NewEncoder(&text)
			e.SetEscapeHTML(false)
			if err := e.Encode(string(b.value)); err != nil {
				return "", err
			}
			return strings.TrimSuffix(strings.TrimPrefix(text.String(), `"`), "\"\n"), nil
		}
	case kind == "application/x-www-form-urlencoded":
		return func(b *sessionSecret) (string, error) { return url.QueryEscape(string(b.value)), nil }
	case strings.HasSuffix(kind, "/xml") || strings.HasSuffix(kind, "+xml"):
		return func(b *sessionSecret) (string, error) {
			var text bytes.Buffer
			err := xml.EscapeText(&text, b.value)
			return text.String(), err
		}
	}
	return asItIs
}

func inBody(b *sessionSecret) error {
	if !b.places.body {
		return b.errPlace(theBody, "body")
	}
	return nil
}

// Read implements [io.Reader].
func (f *filler) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(f.out) == 0 {
		if f.err != nil {
			return 0, f.err
		}
		n, err := f.src.Read(f.buffer)
		last := errors.Is(err, io.EOF)
		if denied := f.take(f.buffer[:n], last); denied != nil {
			f.out, f.err = nil, denied
			break
		}
		f.err = err
	}
	n := copy(p, f.out)
	f.out = f.out[n:]
	if n == 0 {
		return 0, f.err
	}
	return n, nil
}

// take looks at a part of the body, which may be the last.
func (f *filler) take(part []byte, last bool) error {
	if f.peek.write(part) || last && f.peek.end() {
		return errMalformedPlaceholder(theBody)
	}
	f.in, f.out = append(f.in, part...), f.out[:0]
	for {
		at := bytes.Index(f.in, []byte(Marker))
		if at < 0 {
			break
		}
		if err := f.plain(at); err != nil {
			return err
		}
		if len(f.in) < maxPlaceholder && !last {
			return nil
		}
		if err := f.one(); err != nil {
			return err
		}
	}
	if err := f.plain(len(f.in) - f.begun(last)); err != nil {
		return err
	}
	if !last {
		return nil
	}
	if f.watch.End() {
		return errMalformedPlaceholder(theBody)
	}
	for _, values := range f.o.r.Trailer {
		if marks.In(strings.Join(values, "\x00")) {
			return errMalformedPlaceholder("what follows the body")
		}
	}
	return nil
}

// begun is how many bytes at the end may be the beginning of a placeholder.
func (f *filler) begun(last bool) int {
	for n := min(len(Marker)-1, len(f.in)); n > 0 && !last; n-- {
		if bytes.HasSuffix(f.in, []byte(Marker[:n])) {
			return n
		}
	}
	return 0
}

// plain lets bytes pass in which no placeholder is as it is.
func (f *filler) plain(n int) error {
	if f.watch.Saw(f.in[:n]) {
		return errMalformedPlaceholder(theBody)
	}
	f.out = append(f.out, f.in[:n]...)
	f.in = f.in[n:]
	return nil
}

// one puts a value in for the placeholder that comes next.
func (f *filler) one() error {
	placeholder := cutPlaceholder(string(f.in[:min(len(f.in), maxPlaceholder)]))
	used := len(f.o.used)
	value, err := f.o.value(placeholder, inBody, f.as)
	if err != nil {
		return err
	}
	if len(f.peek.names) > 0 { // what is encoded would be another text
		return errMalformedPlaceholder(theBody)
	}
	f.o.engine.store.note(f.o.used[used:])
	if f.watch.End() { // what stood before is over
		return errMalformedPlaceholder(theBody)
	}
	f.out = append(f.out, value...)
	f.in = f.in[len(placeholder):]
	return nil
}

// Close closes the body.
func (f *filler) Close() error {
	f.peek.end()
	return f.src.Close()
}
