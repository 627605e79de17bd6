package cli

import (
	"context"

	"github.com/spf13/cobra"

	"paddock/internal/session"
)

func (cmd sessionCommand) undoCommand() *cobra.Command {
	var t target
	return t.flags(&cobra.Command{
		Use: "undo ID", Short: "Take back a session's last change",
		Long: `Brings a session's variables and files back to what they were before its last run
or change, as restore does; a second time one further back.

Exit codes: 0 done, 1 failed, nothing to undo, or no such session, 2 wrong usage.`,
		Args: count(1, 1, "the id of a session"),
		RunE: func(c *cobra.Command, args []string) error {
			t.id = session.ID(args[0])
			return cmd.withSession(c, &t, func(ctx context.Context, m *session.Manager, o session.Owner) error {
				r, err := m.Undo(ctx, o, t.id)
				return cmd.printRestored(t, r, err)
			})
		},
	})
}
