// Package fault is how paddock's parts say what went wrong to three readers:
// a program reads the kind, a model or a person reads the message and the
// hint, and an operator finds the cause in the log.
//
// A fault is made where it is known what the reader should do next. On the
// way up it is wrapped with %w like any error; [Of] finds it again at the edge.
package fault

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// Kind is what a program can decide upon. The set is closed.
type Kind string

// The kinds of failure; their text is part of the surface (an error's code).
const (
	Invalid     Kind = "invalid"     // the request cannot be right whatever the state
	NotFound    Kind = "not_found"   // it names something that is not there
	Conflict    Kind = "conflict"    // it does not fit the present state
	Denied      Kind = "denied"      // a rule or an owner forbids it
	Exhausted   Kind = "exhausted"   // a limit or a quota is reached
	Unsupported Kind = "unsupported" // this host or isolation cannot do it
	Unavailable Kind = "unavailable" // it failed now and may work again
	Cancelled   Kind = "cancelled"   // the caller asked for it to stop
	Internal    Kind = "internal"    // a mistake of paddock's own
)

// Error is one failure. Its fields are set by [New] and the With methods and
// not changed after it has been returned.
type Error struct {
	Kind       Kind
	Message    string        // one sentence without a full stop
	Hint       string        // what to do next; empty when there is nothing to say
	RetryAfter time.Duration // when trying again makes sense; zero: not known
	cause      error
}

// New makes a fault of kind with a formatted message. Unlike [fmt.Errorf] it
// wraps nothing; [Error.WithCause] does.
func New(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// WithHint returns a copy of e that tells the reader what to do next.
func (e *Error) WithHint(format string, args ...any) *Error {
	c := *e
	c.Hint = fmt.Sprintf(format, args...)
	return &c
}

// WithCause returns a copy of e that keeps err for the operator's log.
func (e *Error) WithCause(err error) *Error {
	c := *e
	c.cause = err
	return &c
}

// Error gives the message alone: the cause may hold what a model should not
// read, such as a path of the host.
func (e *Error) Error() string { return e.Message }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.cause }

// Retryable tells whether the same request may succeed later.
func (e *Error) Retryable() bool {
	return e.Kind == Unavailable || e.Kind == Exhausted || e.RetryAfter > 0
}

// Of returns the fault in err's tree. A cancelled or expired context becomes
// a fault of its own; anything else is Internal, with a message that says
// nothing about the host. Of(nil) is nil.
func Of(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	switch {
	case errors.Is(err, context.Canceled):
		return New(Cancelled, "the call was cancelled").WithCause(err)
	case errors.Is(err, context.DeadlineExceeded):
		return New(Unavailable, "the call took longer than it was given").WithCause(err)
	}
	return New(Internal, "paddock made a mistake").WithHint("the server's log says more").WithCause(err)
}

// KindOf returns the kind of [Of](err), and "" for nil.
func KindOf(err error) Kind {
	if e := Of(err); e != nil {
		return e.Kind
	}
	return ""
}

// CauseOf is what an operator should read of an error: the cause of its fault, or the
// error itself where that has none.
func CauseOf(err error) error {
	if f := Of(err); f != nil && f.cause != nil {
		return f.cause
	}
	return err
}

// Problem is a fault as programs and models read it.
type Problem struct {
	Code      Kind   `json:"code"`
	Message   string `json:"message"`
	Hint      string `json:"hint"`
	Retryable bool   `json:"retryable"`
	// RetryAfter are the seconds after which trying again makes sense; 0: not known.
	RetryAfter int `json:"retry_after,omitempty"`
}

// ProblemOf describes an error. The cause is not in it.
func ProblemOf(err error) Problem {
	e := Of(err)
	p := Problem{Code: e.Kind, Message: e.Message, Hint: e.Hint, Retryable: e.Retryable()}
	if e.RetryAfter > 0 {
		p.RetryAfter = max(1, int(math.Ceil(e.RetryAfter.Seconds())))
	}
	return p
}

// Line is the problem on one line.
func (p Problem) Line() string {
	s := string(p.Code) + ": " + p.Message
	if p.Hint != "" {
		s += " (" + p.Hint + ")"
	}
	return s
}

// Apart gives the errors that were joined in err.
func Apart(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, Apart(e)...)
	}
	return all
}
