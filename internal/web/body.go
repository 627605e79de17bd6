package web

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"paddock/internal/fault"
)

// body is a request's body that has so much time and so many bytes. What goes
// wrong with it is a fault: Exhausted when it is too large (an
// *http.MaxBytesError is the cause), Unavailable when it is too slow.
type body struct {
	io.ReadCloser
	control *http.ResponseController
	most    int64
	each    time.Duration // for each piece; zero: the time is that of all
}

func (s *Server) maxBody(rt route) int64 {
	if rt.upload {
		return s.config.MaxUploadBytes
	}
	return s.config.MaxBodyBytes
}

// boundBody bounds a request's body, also one that nobody will read: net/http
// waits for some of it before the next request.
func (s *Server) boundBody(w http.ResponseWriter, r *http.Request, rt route) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	b := &body{control: http.NewResponseController(w), most: s.maxBody(rt)}
	b.ReadCloser = http.MaxBytesReader(w, r.Body, b.most)
	if rt.upload {
		b.each = s.config.BodyTimeout
	}
	_ = b.control.SetReadDeadline(time.Now().Add(s.config.BodyTimeout))
	r.Body = b
}

func (b *body) Read(p []byte) (int, error) {
	if b.each > 0 {
		_ = b.control.SetReadDeadline(time.Now().Add(b.each))
	}
	n, err := b.ReadCloser.Read(p)
	var large *http.MaxBytesError
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		// From now on the connection is only watched for its end, without hurry.
		_ = b.control.SetReadDeadline(time.Time{})
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
