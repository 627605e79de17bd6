package cli

import (
	"github.com/spf13/cobra"

	"paddock/internal/app"
	"paddock/internal/pkgproxy"
	"paddock/internal/privatefile"
	"paddock/internal/session"
)

// installJSON is what paddock session install did.
type installJSON struct {
	Session          session.ID           `json:"session_id"`
	Installed        []pkgproxy.Installed `json:"installed"`
	AlreadySatisfied bool                 `json:"already_satisfied"`
	Notes            []string             `json:"notes,omitempty"`
}

func (cmd sessionCommand) installCommand() *cobra.Command {
	var t target
	var upgrade bool
	c := t.flags(&cobra.Command{
		Use: "install ID PACKAGE...", Short: "Install packages in a session",
		Long: `Installs packages of Python in a session, or npm's where its language is JavaScript
or TypeScript; npm: and pypi: before a name say which. They are a part of the session's
files, and are there for all its programs.

Exit codes: 0 done, 1 failed, or no such session, 2 wrong usage.`,
		Example: "  paddock session install 4bqz8d1k requests 'httpx[http2]>=0.27'\n  paddock session install 4bqz8d1k npm:zod@3",
		Args:    count(2, -1, "the id of a session, and packages"),
		RunE: func(c *cobra.Command, args []string) error {
			t.id = session.ID(args[0])
			return cmd.install(c, t, args[1:], upgrade)
		},
	})
	c.Flags().BoolVarP(&upgrade, "upgrade", "U", false, "take newer versions of what is there")
	return c
}

func (cmd sessionCommand) install(c *cobra.Command, t target, packages []string, upgrade bool) error {
	if err := cmd.load(c); err != nil {
		return err
	}
	a, err := cmd.Open(app.Options{})
	if err != nil {
		return err
	}
	defer a.Close()
	if err := privatefile.CheckFolder(cmd.StateDir); err != nil {
		return err
	}
	owner, info, err := cmd.find(a.Sessions, &t)
	if err != nil {
		return err
	}
	ctx := c.Context()
	if err := cmd.prepare(ctx, a.Backends.Named(info.Isolation)); err != nil {
		return err
	}
	done := installJSON{Session: t.id, Installed: []pkgproxy.Installed{}, AlreadySatisfied: true}
	for _, what := range byKind(splitPackages(packages), false) {
		if upgrade {
			what = "--upgrade " + what
		}
		res, err := a.Install(ctx, owner, t.id, what)
		if err != nil {
			return err
		}
		done.Installed = append(done.Installed, res.Installed...)
		done.Notes = append(done.Notes, res.Notes...)
		done.AlreadySatisfied = done.AlreadySatisfied && res.Already
	}
	return cmd.tellInstalled(done, t.json)
}

// find gives the session that a target means, and whose it is.
func (cmd sessionCommand) find(m *session.Manager, t *target) (owner session.Owner, info session.Info, err error) {
	owners, err := cmd.owners(t.principal)
	if err != nil {
		return owner, info, err
	}
	if owner, t.id, err = chosen(m, owners, string(t.id)); err != nil {
		return owner, info, err
	}
	info, err = m.Info(owner, t.id)
	return owner, info, err
}

func (cmd sessionCommand) tellInstalled(done installJSON, asJSON bool) error {
	if asJSON {
		return cmd.printJSON(done)
	}
	for _, note := range done.Notes {
		cmd.say("note", note)
	}
	if done.AlreadySatisfied {
		return cmd.printTable([][]string{{"all of it is installed already"}})
	}
	rows := [][]string{{"PACKAGE", "VERSION"}}
	for _, one := range done.Installed {
		rows = append(rows, []string{plain(one.Name), plain(one.Version)})
	}
	return cmd.printTable(rows)
}
