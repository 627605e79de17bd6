package secret

import (
	"io"
	"net/http"

	"paddock/internal/egress"
	"paddock/internal/secret/redact"
)

// Response takes the session's values out of an answer, header and body, and puts the
// placeholders in their place. A body that is encoded is given decoded. Values are those
// that are kept now, and those that were in use since the engine was made.
func (e *Engine) Response(resp *http.Response) error {
	s, err := e.current()
	if err != nil {
		return err
	}
	if err := s.unreadFor(resp.Request); err != nil {
		return err
	}
	if s.redactor == nil {
		return nil
	}
	return clean(s.redactor, resp)
}

// unreadFor says why a value is not known that a host may know; nil: all are.
func (s *state) unreadFor(r *http.Request) error {
	if r == nil || s.unread() == nil {
		return nil
	}
	_, host, port, err := egress.Origin(r.URL)
	for _, b := range s.all {
		if err == nil && b.err != nil && b.hosts.near(host, port) {
			return b.err
		}
	}
	return err
}

// clean takes what a Redactor knows out of an answer.
func clean(with *redact.Redactor, resp *http.Response) error {
	redactHeader(with, resp.Header)
	resp.Status = with.String(resp.Status)
	if resp.Body == nil || resp.Body == http.NoBody || resp.Request != nil && resp.Request.Method == http.MethodHead {
		return nil
	}
	r, closes, err := decoded(resp.Body, codings(resp.Header.Values("Content-Encoding")))
	if err != nil {
		return err
	}
	resp.Body = &redacted{r: with.Reader(r), closes: closes, src: resp.Body}
	resp.Header.Del("Content-Encoding")
	resp.Header.Del("Content-Length")
	resp.ContentLength, resp.Uncompressed = -1, true
	return nil
}

// redactHeader takes values out of a header. One whose name has a value is dropped.
func redactHeader(r *redact.Redactor, h http.Header) {
	for name, values := range h {
		if r.Names(name) || r.String(name) != name {
			delete(h, name)
			continue
		}
		for i, v := range values {
			values[i] = r.String(v)
		}
	}
}

// redacted is an answer's body.
type redacted struct {
	r      io.Reader
	closes func()
	src    io.Closer
}

// Read implements [io.Reader].
func (b *redacted) Read(p []byte) (int, error) { return b.r.Read(p) }

// Close closes the body.
func (b *redacted) Close() error {
	err := b.src.Close()
	b.closes()
	return err
}
