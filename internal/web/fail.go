package web

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"paddock/internal/fault"
)

// fail answers with an error, and logs what the operator should know of.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, rt route, err error) {
	if f := fault.Of(err); f.Kind == fault.Internal || f.Kind == fault.Unavailable {
		s.log.WarnContext(r.Context(), "a request failed", Attr(r.Context()), "error", f.Message, "cause", errors.Unwrap(f))
	}
	answer(w, r, rt, err)
}

// answer writes an error as JSON, and where JSON-RPC is spoken as an error of
// no request.
func answer(w http.ResponseWriter, r *http.Request, rt route, err error) {
	f, status := fault.Of(err), Status(err)
	e := Describe(w, err, status)
	content := any(map[string]fault.Problem{"error": e})
	if rt.e2b {
		content = map[string]any{"code": status, "message": e.Message}
	}
	if rt.rpc {
		content = map[string]any{"jsonrpc": "2.0", "id": nil, "error": map[string]any{"code": rt.code(f.Kind), "message": e.Message, "data": e}}
	}
	writeJSON(w, r, status, content)
}

// Status is the HTTP status of an error: its own, or that of its kind.
func Status(err error) int {
	var own refusal
	if errors.As(err, &own) {
		return own.status
	}
	return StatusOf(fault.KindOf(err))
}

// Describe gives an error as it stands in an answer with this status, and puts
// into the header when to try again.
func Describe(w http.ResponseWriter, err error, status int) fault.Problem {
	p := fault.ProblemOf(err)
	p.Retryable = p.Retryable && status != http.StatusRequestEntityTooLarge
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	return p
}

// StatusOf is the HTTP status of a kind of failure.
func StatusOf(k fault.Kind) int {
	switch k {
	case fault.Invalid:
		return http.StatusBadRequest
	case fault.NotFound:
		return http.StatusNotFound
	case fault.Conflict:
		return http.StatusConflict
	case fault.Denied:
		return http.StatusForbidden
	case fault.Exhausted:
		return http.StatusTooManyRequests
	case fault.Unsupported:
		return http.StatusNotImplemented
	case fault.Unavailable, fault.Cancelled:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// code is JSON-RPC's: invalid request, internal error, or the server's own.
func (rt route) code(k fault.Kind) int {
	switch k {
	case fault.Denied:
		return rt.denied
	case fault.Invalid:
		return -32600
	case fault.Internal:
		return -32603
	}
	return -32000
}

func writeJSON(w http.ResponseWriter, r *http.Request, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic("web: " + err.Error()) // of this package's own types
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(text)+1))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(append(text, '\n')) // whoever does not read has gone
	}
}
