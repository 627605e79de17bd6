package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"paddock/internal/fault"
	"paddock/internal/textsafe"
)

// Reason is why something with a server did not work. The set is closed.
type Reason string

// The reasons.
const (
	Unreachable  Reason = "unreachable"  // it could not be started or connected to, or does not speak the protocol
	Closed       Reason = "closed"       // the connection ended, or has ended before
	SessionGone  Reason = "session_gone" // the server has forgotten the session; nothing was done
	Refused      Reason = "refused"      // the server answered with an error of the protocol
	Unauthorized Reason = "unauthorized" // it wants to be shown a token; see [NeedsAuthorization]
	TimedOut     Reason = "timed_out"    // there was no answer in time
	Cancelled    Reason = "cancelled"    // the caller's context ended
	TooLarge     Reason = "too_large"    // what it sent is above a limit
	Flooded      Reason = "flooded"      // it sent too many messages that nobody asked for
	Malformed    Reason = "malformed"    // what it sent is not of the protocol
	BadResult    Reason = "bad_result"   // the structured result is not what the tool's output schema says
	Unanswerable Reason = "unanswerable" // it wants to be told something before it goes on, and nobody can be asked
	Resting      Reason = "resting"      // it failed again and again, and is left alone for a while
	Misused      Reason = "misused"      // the caller's mistake
)

// Error is a failed call, list or connection. Its tree has a [fault.Error], whose
// message and hint hold what the server said only where that is bounded and printable.
type Error struct {
	Server string // its name
	Tool   string // empty: it was not about one
	Reason Reason
	// Sent: the request may have reached the server. When it is false nothing has
	// happened there, and the request can be repeated.
	Sent bool
	// Answered: the server has answered, so it is known that it is done with the request.
	Answered bool
	// Code and Data are those of an answer with an error (Refused).
	Code int
	Data json.RawMessage
	// Stderr is the end of what a server's program wrote there; its variables'
	// values are blotted out.
	Stderr string

	err     *fault.Error
	subject string // of the fault's message, and what follows it
	words   words
}

// Clean gives the error with something taken out of what the server said, before that is
// cut to what a message has of it: not even a part of it stays. Neither the error nor its
// cause is changed.
func (e *Error) Clean(clean func([]byte) []byte) *Error {
	c, f := *e, *e.err
	f.Message = e.subject + ": " + e.words.clean(clean)
	c.Data, c.err = clean(c.Data), &f
	return &c
}

// Error is the fault's message.
func (e *Error) Error() string { return e.err.Error() }

// Unwrap gives the fault.
func (e *Error) Unwrap() error { return e.err }

// Unknown tells whether nobody knows if the request was carried out. Such a request
// is never repeated silently.
func (e *Error) Unknown() bool { return e.Sent && !e.Answered }

// Sent tells whether the request that err is about may have reached the server. Of
// an error that is none of this package's it says true.
func Sent(err error) bool {
	var e *Error
	return err != nil && (!errors.As(err, &e) || e.Sent)
}

// ReasonOf gives the reason in err's tree, or "".
func ReasonOf(err error) Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

// NeedsAuthorization says that a server wants a token, or a better one. It lies in
// the tree of an Error whose reason is Unauthorized. What it holds is the server's
// word: where it points to is to be reached through a guarded transport only.
type NeedsAuthorization struct {
	Server string
	// URL is the server's endpoint.
	URL string
	// Status is 401, or 403 where the token's scopes do not suffice.
	Status int
	// ResourceMetadata is where the server says its metadata is (RFC 9728); empty:
	// it did not say.
	ResourceMetadata string
	// Scope is what it says is needed, separated by spaces.
	Scope string
	// Code is OAuth's error code, such as invalid_token.
	Code string
}

// Error names the server and what it wants.
func (e *NeedsAuthorization) Error() string {
	if e.Status == 403 {
		return fmt.Sprintf("the server %q wants a token with more rights", e.Server)
	}
	return fmt.Sprintf("the server %q wants a token", e.Server)
}

var kinds = map[Reason]fault.Kind{
	Unreachable: fault.Unavailable, Closed: fault.Unavailable, SessionGone: fault.Unavailable, Refused: fault.Unavailable,
	Unauthorized: fault.Denied, TimedOut: fault.Unavailable, Cancelled: fault.Cancelled, TooLarge: fault.Exhausted,
	Flooded: fault.Exhausted, Malformed: fault.Unavailable, BadResult: fault.Unavailable, Unanswerable: fault.Unsupported,
	Resting: fault.Unavailable, Misused: fault.Invalid,
}

// refusals are the kinds of a server's errors whose codes say what is wrong. Others are
// the server's own.
var refusals = map[int]fault.Kind{codeInvalidParams: fault.Invalid, codeNoMethod: fault.NotFound}

// Own tells whether the server answered with an error that says nothing of the request:
// one of its own, whatever that is.
func (e *Error) Own() bool {
	_, says := refusals[e.Code]
	return e.Reason == Refused && !says
}

// problem is what went wrong below, where server and tool are not known.
type problem struct {
	reason   Reason
	sent     bool
	answered bool
	code     int
	data     json.RawMessage
	text     string // a sentence's end: "the server ...: " + text
	words    words  // that it is made of; see say
	hint     string
	after    time.Duration
	cause    error
}

// say has a problem say that: what the server said is among args as a [said].
func (p *problem) say(format string, args ...any) *problem {
	p.text, p.words = fmt.Sprintf(format, args...), words{format, args}
	return p
}

// words are what a text is made of.
type words struct {
	format string
	args   []any
}

// clean gives the text without what clean takes out of what the server said, as it is and
// as it is shown.
func (w words) clean(clean func([]byte) []byte) string {
	args := slices.Clone(w.args)
	for i, a := range args {
		if s, ok := a.(said); ok {
			shown := textsafe.Line(string(clean([]byte(s.text))), maxSaid)
			args[i] = said{string(clean([]byte(shown))), s.limit}
		}
	}
	return fmt.Sprintf(w.format, args...)
}

// maxSaid bounds in bytes what is kept of a server's words: so much more than is shown
// that what is taken out of them does not bring their end into sight, where a part of
// something may stand.
const maxSaid = 1 << 20

// said is what a server said. Of that a text shows the beginning, made printable.
type said struct {
	text  string
	limit int // in bytes
}

func saying(text string, limit int) said {
	if len(text) > maxSaid {
		text = strings.Clone(text[:maxSaid])
	}
	return said{text, limit}
}

// String is what is shown.
func (s said) String() string { return textsafe.Line(s.text, s.limit) }

// Error is the text and the cause, for the log.
func (p *problem) Error() string {
	if p.cause != nil {
		return p.text + ": " + p.cause.Error()
	}
	return p.text
}

// Unwrap gives the cause.
func (p *problem) Unwrap() error { return p.cause }

func newProblem(reason Reason, sent bool, cause error, format string, args ...any) *problem {
	p := &problem{reason: reason, sent: sent, cause: cause}
	return p.say(format, args...)
}

// asProblem gives the problem in err's tree, or makes one of it.
func asProblem(err error, sent bool) *problem {
	var p *problem
	var already *fault.Error
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &already):
		p := &problem{reason: Unreachable, sent: sent, cause: err, hint: already.Hint}
		return p.say("%s", already.Message)
	case errors.Is(err, context.DeadlineExceeded):
		return newProblem(TimedOut, sent, err, "it did not answer in time")
	case errors.Is(err, context.Canceled):
		return newProblem(Cancelled, sent, err, "the caller did not wait for its answer")
	}
	return newProblem(Unreachable, sent, err, "it cannot be reached")
}

// report makes an Error of a problem.
func report(s Server, tool, stderr string, err error) error {
	if err == nil {
		return nil
	}
	var done *Error
	if errors.As(err, &done) {
		return done
	}
	p := asProblem(err, true)
	kind := kinds[p.reason]
	if of, ok := refusals[p.code]; ok && p.reason == Refused {
		kind = of
	}
	var own *fault.Error
	if errors.As(p.cause, &own) {
		kind = own.Kind
	}
	subject := fmt.Sprintf("the server %q", s.Name)
	if tool != "" {
		subject = fmt.Sprintf("the tool %q of the server %q", textsafe.Line(tool, 128), s.Name)
	}
	f := fault.New(kind, "%s: %s", subject, p.text).WithCause(p.cause)
	f.Hint, f.RetryAfter = p.hint, p.after
	if f.Hint == "" && p.sent && !p.answered && tool != "" {
		f.Hint = "whether the call was carried out is not known; look before you repeat it"
	}
	return &Error{
		Server: s.Name, Tool: tool, Reason: p.reason, Sent: p.sent, Answered: p.answered, Code: p.code, Data: p.data, Stderr: stderr,
		err: f, subject: subject, words: p.words,
	}
}
