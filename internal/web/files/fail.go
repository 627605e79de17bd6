package files

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"os"
	"strconv"

	"paddock/internal/fault"
)

// refusal is a fault with a status of its own.
type refusal struct {
	fault  *fault.Error
	status int
}

func (r refusal) Error() string { return r.fault.Error() }

// Unwrap leads to the fault.
func (r refusal) Unwrap() error { return r.fault }

// failure is an error as clients read it; retry_after are seconds.
type failure struct {
	Code       fault.Kind `json:"code"`
	Message    string     `json:"message"`
	Hint       string     `json:"hint"`
	Retryable  bool       `json:"retryable"`
	RetryAfter int        `json:"retry_after,omitempty"`
}

// fail answers with an error; what is the operator's business is logged.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	f := fault.Of(err)
	if cause := errors.Unwrap(f); f.Kind == fault.Internal || f.Kind == fault.Unavailable && r.Context().Err() == nil {
		h.config.Log.WarnContext(r.Context(), "moving files failed", "error", f.Message, "cause", cause)
	}
	status := statusOf(err)
	e := failure{Code: f.Kind, Message: f.Message, Hint: f.Hint, Retryable: f.Retryable() && status != http.StatusRequestEntityTooLarge}
	if f.RetryAfter > 0 {
		e.RetryAfter = max(1, int(math.Ceil(f.RetryAfter.Seconds())))
		w.Header().Set("Retry-After", strconv.Itoa(e.RetryAfter))
	}
	answer(w, r, status, map[string]failure{"error": e})
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
	switch f.Kind {
	case fault.Invalid:
		return http.StatusBadRequest
	case fault.Denied:
		return http.StatusForbidden
	case fault.NotFound:
		return http.StatusNotFound
	case fault.Conflict:
		return http.StatusConflict
	case fault.Exhausted:
		if f.RetryAfter > 0 {
			return http.StatusTooManyRequests
		}
		return http.StatusInsufficientStorage
	case fault.Unsupported:
		return http.StatusNotImplemented
	case fault.Unavailable, fault.Cancelled:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
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
