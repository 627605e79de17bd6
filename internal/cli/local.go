package cli

import (
	"context"
	"fmt"
	"path/filepath"

	"paddock/internal/auth"
	"paddock/internal/fault"
)

// localUser lets this machine's user in, with the token of the state folder.
// The token is made when the server listens: one that was shown by a start that
// failed would not be shown again.
type localUser struct {
	dir   string        // the state folder
	token auth.Verifier // set by open, before the first request
}

// Verify implements [auth.Verifier].
func (l *localUser) Verify(ctx context.Context, token string) (*auth.Principal, error) {
	if l.token == nil { // it could not be had, and the server ends
		return nil, fault.New(fault.Unavailable, "the server is ending")
	}
	return l.token.Verify(ctx, token)
}

// open makes the token if there is none; made is its text then.
func (l *localUser) open() (made string, err error) {
	token, created, err := auth.LocalToken(l.dir)
	if err != nil {
		return "", err
	}
	l.token = auth.Static(token, &auth.Principal{ID: auth.Local, Name: auth.Local})
	if !created {
		return "", nil
	}
	return token, nil
}

// openLocal opens the way in for this machine's user and says where its token
// is. A token that was made just now is shown too, on a terminal alone: a log is
// no place for it.
func (p *program) openLocal(l *localUser) error {
	made, err := l.open()
	if err != nil {
		return p.explainTokens(err)
	}
	file := filepath.Join(l.dir, auth.LocalTokenFile)
	switch {
	case made == "":
		fmt.Fprintf(p.stderr, "paddock: the token of this machine's user is in %s\n", file)
	case terminal(p.stderr):
		fmt.Fprintf(p.stderr, "paddock: the token of this machine's user, which is in %s and shown this once: %s\n", file, made)
		p.say("hint", "paddock setup CLIENT --http gives it to a client; paddock token create makes others")
	default:
		fmt.Fprintf(p.stderr, "paddock: a token for this machine's user was made: %s\n", file)
	}
	return nil
}
