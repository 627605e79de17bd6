package cli

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"paddock/internal/app"
	"paddock/internal/auth"
	"paddock/internal/fault"
	"paddock/internal/session"
)

// withSessions calls f with the sessions; no program runs.
func (cl *cli) withSessions(c *cobra.Command, f func(context.Context, *session.Manager) error) error {
	if err := cl.load(c); err != nil {
		return err
	}
	a, err := cl.Open(app.Options{})
	if err != nil {
		return err
	}
	defer a.Close()
	return f(c.Context(), a.Sessions)
}

// owners are whose sessions a command is about: the user's own, where no
// principal was named.
func (cl *cli) owners(principal string) ([]session.Owner, error) {
	if principal == "" {
		return []session.Owner{session.Local}, nil
	}
	ids, err := cl.principals(principal)
	var all []session.Owner
	for _, id := range ids {
		all = append(all, session.Owner(id))
	}
	return all, err
}

// ofOne calls f with each owner until one of them has the session.
func ofOne(owners []session.Owner, f func(session.Owner) error) error {
	var err error
	for _, o := range owners {
		if err = f(o); fault.KindOf(err) != fault.NotFound {
			return err
		}
	}
	return unknownSession(err)
}

// unknownSession gives a session that is not there a hint for people.
func unknownSession(err error) error {
	if fault.KindOf(err) != fault.NotFound {
		return err
	}
	return fault.Of(err).WithHint("paddock session ls lists those that there are")
}

func principalFlag(c *cobra.Command, to *string) {
	c.Flags().StringVar(to, "principal", "", "those of the principal `ID`, or of the tokens of that name")
}

// explainTokens tells who typed a command what clients are not told: where the
// tokens are, and why they cannot be had.
func (cl *cli) explainTokens(err error) error {
	f := fault.Of(err)
	cause := errors.Unwrap(f)
	if f.Kind != fault.Unavailable || cause == nil {
		return err
	}
	explained := fault.New(f.Kind, "%s: %v", f.Message, cause).WithCause(cause)
	var at *fs.PathError
	if errors.As(cause, &at) {
		return explained.WithHint("the state folder is %s: it has to be a folder of yours that can be written", cl.StateDir)
	}
	return explained.WithHint("%s; the state folder is %s", f.Hint, cl.StateDir)
}

// principals are the IDs of who is called so: it is an ID itself, or the name or
// id of tokens.
func (cl *cli) principals(which string) ([]string, error) {
	all := []string{which}
	if strings.Contains(which, ":") { // no token is called so
		return all, nil
	}
	tokens, err := auth.OpenTokens(cl.StateDir).List()
	if err != nil {
		return nil, cl.explainTokens(err)
	}
	for _, t := range tokens {
		if t.Name == which || t.ID == which {
			all = append(all, auth.OfToken+t.ID)
		}
	}
	return all, nil
}
