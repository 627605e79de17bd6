package web

import (
	"context"
	"net/http"
	"strings"
	"time"
)

// response is around a ResponseWriter: it counts, and no write waits for ever
// on a client that does not read. What else the writer can do is found through
// [http.ResponseController].
type response struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration // for each piece of a write
	until   time.Time     // for all of them; zero: no end
	status  int           // zero: nothing was written yet
	bytes   int64
}

func newResponse(w http.ResponseWriter, stall time.Duration) *response {
	return &response{ResponseWriter: w, control: http.NewResponseController(w), stall: stall}
}

// Unwrap is for [http.ResponseController].
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader tells proxies to pass a stream on as it comes.
func (w *response) WriteHeader(status int) {
	if status >= 200 && w.status == 0 {
		w.status = status
		if strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream") {
			w.Header().Set("X-Accel-Buffering", "no")
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// piece is how much of a write has a time of its own, in bytes: a client that
// reads slowly makes progress all the same.
const piece = 64 << 10

func (w *response) Write(p []byte) (written int, err error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	defer w.lift()
	for first := true; first || len(p) > 0 && err == nil; first = false {
		w.last()
		var n int
		n, err = w.ResponseWriter.Write(p[:min(len(p), piece)])
		written, p = written+n, p[n:]
	}
	w.bytes += int64(written)
	return written, err
}

// FlushError is how [http.ResponseController] flushes.
func (w *response) FlushError() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	defer w.lift()
	w.last()
	return w.control.Flush()
}

// Flush is [http.Flusher]'s.
func (w *response) Flush() { _ = w.FlushError() }

// lift takes a write's deadline away: over HTTP/2 one that passes ends the
// stream though nothing waits to be written.
func (w *response) lift() { _ = w.control.SetWriteDeadline(time.Time{}) }

// last bounds what is still to be written when the handler is done.
func (w *response) last() {
	at := time.Now().Add(w.stall)
	if !w.until.IsZero() && w.until.Before(at) {
		at = w.until
	}
	_ = w.control.SetWriteDeadline(at) // a writer of a test has none
}

// outcome is the status for the log: that of a client that left before there
// was one is 499, as nginx has it.
func (w *response) outcome(ctx context.Context) int {
	switch {
	case w.status != 0:
		return w.status
	case ctx.Err() != nil:
		return 499
	}
	return http.StatusOK
}
