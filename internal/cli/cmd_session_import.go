package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"paddock/internal/auth"
	"paddock/internal/fault"
	"paddock/internal/privatefile"
	"paddock/internal/session"
)

func (cmd sessionCommand) importCommand() *cobra.Command {
	var t target
	c := &cobra.Command{
		Use: "import FILE|-", Short: "Make a session of an archive",
		Long: `Makes a session of an archive that paddock session export wrote, from FILE or from
stdin, and prints its id. An archive that is damaged, or that this paddock cannot
go on with, leaves nothing behind.

Exit codes: 0 done, 1 failed or there is a session of that id, 2 wrong usage.`,
		Args: count(1, 1, "the file of an archive, or -"),
		RunE: func(c *cobra.Command, args []string) error { return cmd.importSession(c, t, args[0]) },
	}
	c.Flags().StringVar((*string)(&t.id), "id", "", "give it the `ID`; else a new one")
	jsonFlag(c, &t.json)
	c.Flags().StringVar(&t.principal, "principal", "", "make it a session of the principal `ID`, or of the token of that name")
	return c
}

func (cmd sessionCommand) importSession(c *cobra.Command, t target, file string) error {
	in, err := cmd.archive(file)
	if err != nil {
		return err
	}
	defer in.Close()
	return cmd.withSessions(c, func(ctx context.Context, m *session.Manager) error {
		owner, err := cmd.newOwner(t.principal)
		if err != nil {
			return err
		}
		if err := privatefile.CheckFolder(cmd.StateDir); err != nil {
			return err
		}
		info, notice, err := m.Import(ctx, owner, t.id, in)
		if err != nil {
			return err
		}
		if t.json {
			return cmd.printJSON(struct {
				sessionJSON
				Notice string `json:"notice,omitempty"`
			}{sessionOf(info), notice})
		}
		if notice != "" {
			cmd.say("notice", notice)
		}
		_, err = fmt.Fprintln(cmd.stdout, info.ID)
		return err
	})
}

// archive opens an archive to read.
func (cmd sessionCommand) archive(file string) (io.ReadCloser, error) {
	if file == standard {
		if person(cmd.stdin) {
			return nil, usage("an archive cannot be typed").WithHint("name a FILE, or send one to stdin")
		}
		return io.NopCloser(cmd.stdin), nil
	}
	in, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.NotFound, "there is no file %q", file)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the archive: %w", err)
	}
	if info, err := in.Stat(); err == nil && info.IsDir() {
		_ = in.Close() // it was only opened
		return nil, fault.New(fault.Invalid, "%s is a folder and no archive", file).WithHint("paddock session export writes archives")
	}
	return in, nil
}

// newOwner is whose a new session is to be: the user's own, where no principal
// was named. A name has to be that of one token that is good.
func (cmd sessionCommand) newOwner(principal string) (session.Owner, error) {
	switch {
	case principal == "":
		return session.Local, nil
	case principal == auth.Local, strings.Contains(principal, ":"): // no token is called so
		return session.Owner(principal), nil
	}
	tokens, err := auth.OpenTokens(cmd.StateDir).List()
	if err != nil {
		return "", cmd.explainTokens(err)
	}
	for _, t := range tokens {
		if t.Revoked.IsZero() && (t.Name == principal || t.ID == principal) {
			return session.Owner(auth.OfToken + t.ID), nil
		}
	}
	return "", fault.New(fault.NotFound, "there is no token %q", principal).WithHint("paddock token ls lists those that there are; other principals are named by their id")
}
