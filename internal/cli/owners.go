package cli

import (
	"context"
	"errors"
	"io/fs"
	"slices"
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

// chosen finds the session that a person means: by its id, by its name, or by the beginning
// of its id where no other session of the owners begins so.
func chosen(m *session.Manager, owners []session.Owner, text string) (session.Owner, session.ID, error) {
	text = strings.TrimSuffix(text, "…") // as a table shows an id that it has no room for
	var unknown error
	for _, o := range owners {
		_, err := m.Info(o, session.ID(text))
		if err == nil {
			return o, session.ID(text), nil
		}
		if kind := fault.KindOf(err); kind != fault.NotFound && kind != fault.Invalid {
			return "", "", err // Invalid: it may be a name with a space
		}
		unknown = err
	}
	var named, begun []session.Info
	for _, o := range owners {
		all, err := m.List(o)
		if err != nil {
			return "", "", err
		}
		for _, i := range all {
			switch id := string(i.ID); {
			case text == "":
			case i.Settings.Name == text:
				named = append(named, i)
			case strings.HasPrefix(id, text), strings.HasPrefix(id, "s-"+text):
				begun = append(begun, i)
			}
		}
	}
	found := named
	if len(found) == 0 {
		found = begun
	}
	switch len(found) {
	case 0:
		return "", "", unknownSession(unknown)
	case 1:
		return found[0].Owner, found[0].ID, nil
	}
	var ids []string
	for _, i := range found {
		ids = append(ids, string(i.ID))
	}
	slices.Sort(ids)
	return "", "", fault.New(fault.Conflict, "%d sessions are called %.100q, or begin so", len(found), text).
		WithHint("say which one: %s", strings.Join(ids[:min(len(ids), 5)], ", "))
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
