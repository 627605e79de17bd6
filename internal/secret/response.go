package secret

import (
	"io"
	"net/http"
	"slices"

	"paddock/internal/egress"
	"paddock/internal/secret/redact"
)

// Response takes the session's values out of an answer, header and body, and puts the
// placeholders in their place. A body that is encoded, as its header says, is given
// decoded; one of a host that may know a value, which is compressed and does not say so,
// fails where a value is found in it; see inspected. Values are those that are kept now,
// and those that were in use since the engine was made.
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
	return clean(s.redactor, resp, s.knows(resp.Request))
}

// knows tells whether the host that a request went to may know a value.
func (s *state) knows(r *http.Request) bool {
	if r == nil || r.URL == nil {
		return true
	}
	_, host, port, err := egress.Origin(r.URL)
	if err != nil {
		return true
	}
	return slices.ContainsFunc(s.all, func(b *sessionSecret) bool { return b.hosts.near(host, port) }) ||
		slices.ContainsFunc(s.older, func(o retiredValue) bool { return o.hosts.near(host, port) })
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

// clean takes what a Redactor knows out of an answer, what follows its body too; look: the
// body is looked into, where it is compressed.
func clean(with *redact.Redactor, resp *http.Response, look bool) error {
	redactHeader(with, resp.Header)
	resp.Status = with.String(resp.Status)
	if resp.Body == nil || resp.Body == http.NoBody || resp.Request != nil && resp.Request.Method == http.MethodHead {
		return nil
	}
	r, closes, err := decoded(resp.Body, codings(resp.Header.Values("Content-Encoding")))
	if err != nil {
		return err
	}
	body := &redacted{closes: closes, src: resp.Body}
	if look {
		i := inspect(r, with)
		r, body.closes = i, func() { i.Close(); closes() }
	}
	body.r = with.Reader(r)
	body.ended = func() { redactHeader(with, resp.Trailer) }
	resp.Body = body
	resp.Header.Del("Content-Encoding")
	resp.Header.Del("Content-Length")
	resp.ContentLength, resp.Uncompressed = -1, true
	return nil
}

// redactHeader takes values out of a header. One whose name has a value is dropped.
func redactHeader(r *redact.Redactor, h http.Header) {
	for name, values := range h {
		if r.String(name) != name {
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
	ended  func()
	closes func()
	src    io.Closer
}

// Read implements [io.Reader].
func (b *redacted) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err != nil {
		b.ended()
	}
	return n, err
}

// Close closes the body.
func (b *redacted) Close() error {
	err := b.src.Close()
	b.closes()
	return err
}
