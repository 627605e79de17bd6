package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"paddock/internal/session"
)

func (cmd sessionCommand) renameCommand() *cobra.Command {
	var t target
	c := &cobra.Command{
		Use: "rename ID NAME", Short: "Give a session another name",
		Long: `Gives a session another name, by which every command finds it; an empty NAME takes
its name away.

Exit codes: 0 done, 1 failed or no such session, 2 wrong usage.`,
		Example: `  paddock session rename s-4x report`,
		Args:    count(2, 2, "the id of a session and its new name"),
		RunE: func(c *cobra.Command, args []string) error {
			t.id = session.ID(args[0])
			return cmd.withSession(c, &t, func(ctx context.Context, m *session.Manager, o session.Owner) error {
				info, err := m.Rename(ctx, o, t.id, args[1])
				if err != nil {
					return fmt.Errorf("renaming the session: %w", err)
				}
				if t.json {
					return cmd.printJSON(sessionOf(info))
				}
				_, err = fmt.Fprintln(cmd.stdout, info.ID)
				return err
			})
		},
	}
	return t.flags(c)
}
