package app

import (
	"context"

	"paddock/internal/auth"
	"paddock/internal/fault"
)

// LocalUser lets this machine's user in, with the token of the state folder.
// The token is made when the server listens: one that was shown by a start that
// failed would not be shown again.
type LocalUser struct {
	Dir   string        // the state folder
	token auth.Verifier // set by Open, before the first request
}

// Verify implements [auth.Verifier].
func (l *LocalUser) Verify(ctx context.Context, token string) (*auth.Principal, error) {
	if l.token == nil { // it could not be had, and the server ends
		return nil, fault.New(fault.Unavailable, "the server is ending")
	}
	return l.token.Verify(ctx, token)
}

// Open makes the token if there is none; made is its text then.
func (l *LocalUser) Open() (made string, err error) {
	token, created, err := auth.LocalToken(l.Dir)
	if err != nil {
		return "", err
	}
	l.token = auth.Static(token, &auth.Principal{ID: auth.Local, Name: auth.Local})
	if !created {
		return "", nil
	}
	return token, nil
}
