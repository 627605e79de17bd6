package sessionstore

import (
	"errors"
	"regexp"

	"paddock/internal/fault"
)

var idPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`)

// CheckID refuses what cannot be a session's id.
func CheckID(id string) error {
	if !idPattern.MatchString(id) {
		return fault.New(fault.Invalid, "a session id has 1 to 100 letters, digits, - and _")
	}
	return nil
}

// NotFound says the same whether a session never was, is gone, or belongs to another
// owner.
func NotFound(id string) error {
	return fault.New(fault.NotFound, "there is no session %q", id).
		WithHint("it may have expired or been destroyed; create a new session")
}

// Exists says that an id is taken.
func Exists(id string) error {
	return fault.New(fault.Conflict, "there is already a session %q", id).
		WithHint("use it, destroy it, or choose another id")
}

// Unusable makes a fault of an error of the disk; what is one already stays as it is.
func Unusable(err error) error {
	var f *fault.Error
	if errors.As(err, &f) && f.Kind != fault.Internal {
		return err
	}
	return fault.New(fault.Unavailable, "the session's folder cannot be used").
		WithHint("the server's log says more").WithCause(err)
}
