package app

import (
	"context"
	"sync/atomic"

	"paddock/internal/auth"
	"paddock/internal/fault"
)

// LocalUser lets this machine's user in, with the token of the state folder. Until Open has
// succeeded it lets no one in. The token is made when the server listens: one that was shown
// by a start that failed would not be shown again. It is safe for concurrent use.
type LocalUser struct {
	Dir   string                        // the state folder
	token atomic.Pointer[auth.Verifier] // nil: Open has not succeeded
}

// Verify implements [auth.Verifier].
func (l *LocalUser) Verify(ctx context.Context, token string) (*auth.Principal, error) {
	v := l.token.Load()
	if v == nil {
		return nil, fault.New(fault.Unavailable, "the token of this machine's user is not loaded").WithHint("try again when the server says where MCP is served")
	}
	return (*v).Verify(ctx, token)
}

// Open makes the token if there is none; made is its text then.
func (l *LocalUser) Open() (made string, err error) {
	token, created, err := auth.LocalToken(l.Dir)
	if err != nil {
		return "", err
	}
	v := auth.Static(token, &auth.Principal{ID: auth.Local, Name: auth.Local})
	l.token.Store(&v)
	if !created {
		return "", nil
	}
	return token, nil
}
