package web

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"paddock/internal/fault"
)

// body is a request's body that has so much time and so many bytes. What goes
// wrong with it is a fault: Exhausted when it is too large (an
// *http.MaxBytesError is the cause), Unavailable when it is too slow.
type body struct {
	io.ReadCloser
	control  *http.ResponseController
	most     int64
	each     time.Duration   // for each piece; zero: the time is that of all
	draining context.Context // ends when the server does

	mu      sync.Mutex // guards what follows
	waiting bool       // somebody reads
	hurried bool       // the server ends, and the time was set for that
}

// lastPiece is how long a body's next piece, or all of it where its time is
// that of all, is waited for when the server ends.
const lastPiece = 5 * time.Second

func (s *Server) maxBody(rt route) int64 {
	if rt.upload {
		return s.config.MaxUploadBytes
	}
	return s.config.MaxBodyBytes
}

// boundBody bounds a request's body, also one that nobody will read: net/http
// waits for some of it before the next request.
func (s *Server) boundBody(w http.ResponseWriter, r *http.Request, rt route) (done func()) {
	if r.Body == nil || r.Body == http.NoBody {
		return func() {}
	}
	b := &body{control: http.NewResponseController(w), most: s.maxBody(rt), draining: s.draining}
	b.ReadCloser = http.MaxBytesReader(w, r.Body, b.most)
	if rt.upload {
		b.each = s.config.BodyTimeout
	}
	_ = b.control.SetReadDeadline(time.Now().Add(s.config.BodyTimeout))
	r.Body = b
	stop := context.AfterFunc(s.draining, b.hurry)
	return func() { stop() }
}

// hurry leaves the client little time for what is waited for. Where nobody
// reads, a time that passes would end the request: net/http watches the
// connection then.
func (b *body) hurry() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting {
		b.hurried = true
		_ = b.control.SetReadDeadline(time.Now().Add(lastPiece))
	}
}

// wait sets the time for the next piece.
func (b *body) wait() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = true
	late := b.draining.Err() != nil
	switch {
	case b.each > 0 && late:
		_ = b.control.SetReadDeadline(time.Now().Add(min(b.each, lastPiece)))
	case b.each > 0:
		_ = b.control.SetReadDeadline(time.Now().Add(b.each))
	case late && !b.hurried:
		_ = b.control.SetReadDeadline(time.Now().Add(lastPiece))
	}
	b.hurried = late
}

// came says that there is a piece, or the last one.
func (b *body) came(last bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = false
	if last {
		// From now on the connection is only watched for its end, without hurry.
		_ = b.control.SetReadDeadline(time.Time{})
	}
}

func (b *body) Read(p []byte) (int, error) {
	b.wait()
	n, err := b.ReadCloser.Read(p)
	b.came(errors.Is(err, io.EOF))
	var large *http.MaxBytesError
	switch {
	case err == nil, errors.Is(err, io.EOF):
	case errors.As(err, &large):
		err = tooLarge(b.most).WithCause(err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = refusal{fault.New(fault.Unavailable, "the request's body came too slowly").WithCause(err), http.StatusRequestTimeout}
	}
	return n, err
}

func tooLarge(most int64) refusal {
	return refusal{fault.New(fault.Exhausted, "the request is larger than %d bytes", most).WithHint("send less at once, or have the operator raise the limit"), http.StatusRequestEntityTooLarge}
}

// WithCause keeps the status.
func (r refusal) WithCause(err error) refusal { return refusal{r.fault.WithCause(err), r.status} }
