package files

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strconv"

	"paddock/internal/fault"
	"paddock/internal/web"
)

// refusal is a fault with a status of its own.
type refusal struct {
	fault  *fault.Error
	status int
}

func (r refusal) Error() string { return r.fault.Error() }

// Unwrap leads to the fault.
func (r refusal) Unwrap() error { return r.fault }

// fail answers with an error; what is the operator's business is logged.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	f := fault.Of(err)
	if cause := errors.Unwrap(f); f.Kind == fault.Internal || f.Kind == fault.Unavailable && r.Context().Err() == nil {
		h.config.Log.WarnContext(r.Context(), "moving files failed", "error", f.Message, "cause", cause)
	}
	status := statusOf(err)
	answer(w, r, status, map[string]fault.Problem{"error": web.Describe(w, err, status)})
}

// statusOf is the HTTP status of an error: a limit that time lifts is 429, one
// of space 507.
func statusOf(err error) int {
	var own refusal
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &own):
		return own.status
	case errors.As(err, &large):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded):
		return http.StatusRequestTimeout
	}
	f := fault.Of(err)
	if f.Kind == fault.Exhausted && f.RetryAfter == 0 {
		return http.StatusInsufficientStorage
	}
	return web.StatusOf(f.Kind)
}

// answer writes JSON. What a handler said about a file's content goes.
func answer(w http.ResponseWriter, r *http.Request, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic("files: " + err.Error()) // of this package's own types
	}
	head := w.Header()
	for _, name := range []string{"Content-Disposition", "Content-Range", "Last-Modified"} {
		head.Del(name)
	}
	safe(head)
	head.Set("Cache-Control", "no-store")
	head.Set("Content-Type", "application/json")
	head.Set("Content-Length", strconv.Itoa(len(text)+1))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(append(text, '\n')) // whoever does not read has gone
	}
}
