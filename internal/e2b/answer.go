package e2b

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"paddock/internal/auth"
	"paddock/internal/fault"
	"paddock/internal/session"
)

// Problem is an error as E2B's clients read it.
type Problem struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// maxCall bounds the body of a call of the control plane.
const maxCall = 1 << 20

func writeJSON(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		panic("e2b: " + err.Error()) // of this package's own types
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // a client that has gone needs no answer
}

func fail(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, Problem{status, message})
}

// failWith answers with an error: its message and its hint, for the client shows one text.
func failWith(w http.ResponseWriter, err error) {
	f := fault.Of(err)
	if f.Kind == fault.Exhausted {
		w.Header().Set("Retry-After", strconv.Itoa(max(1, int(f.RetryAfter.Seconds()))))
	}
	fail(w, StatusOf(err), Text(err))
}

// Text is an error's message and hint.
func Text(err error) string {
	f := fault.Of(err)
	if f.Hint == "" {
		return f.Message
	}
	return f.Message + "; " + f.Hint
}

var errNoPrincipal = fault.New(fault.Denied, "the request has no API key").WithHint("send one that paddock token create --e2b printed as X-API-KEY")

// StatusOf is the status of an error.
func StatusOf(err error) int {
	if errors.Is(err, errNoPrincipal) {
		return http.StatusUnauthorized
	}
	switch fault.KindOf(err) {
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

// ownerOf gives the owner that a call is from.
func ownerOf(r *http.Request) (session.Owner, error) {
	who := auth.From(r.Context())
	if who == nil {
		return "", errNoPrincipal
	}
	if !who.MayUse("sandbox") {
		return "", fault.New(fault.Denied, "this token may not use sandboxes").WithHint("the operator can make one that may: paddock token create --e2b")
	}
	return session.Owner(who.ID), nil
}

// read reads the body of a call; an empty one changes nothing.
func read(r *http.Request, into any) error {
	text, err := io.ReadAll(io.LimitReader(r.Body, maxCall+1))
	if err != nil {
		return fault.New(fault.Invalid, "the request's body cannot be read").WithCause(err)
	}
	if len(text) > maxCall {
		return fault.New(fault.Invalid, "the request's body has more than %d bytes", maxCall)
	}
	if len(text) == 0 {
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fault.New(fault.Invalid, "the request's body is not what the call takes: %v", err)
	}
	return nil
}

// cut splits a pattern of a route.
func cut(pattern string) (method, path string, ok bool) { return strings.Cut(pattern, " ") }

func errNoSandbox(id string) error {
	return fault.New(fault.NotFound, "Sandbox %q not found", id)
}
