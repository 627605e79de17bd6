package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"paddock/internal/privatefile"
	"paddock/internal/session"
)

func (cmd sessionCommand) gcCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "gc", Short: "Give back what no session needs any more",
		Long: `Removes the sessions of all principals that have expired, checkpoints that are too
many, and what no checkpoint refers to any more. It is done beside running
processes, and they do the same from time to time.

Exit codes: 0 done, 1 failed, 2 wrong usage.`,
		Args: count(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error {
			return cmd.withSessions(c, func(ctx context.Context, m *session.Manager) error {
				if err := privatefile.CheckFolder(cmd.StateDir); err != nil {
					return err
				}
				sum, err := m.Collect(ctx)
				if err != nil {
					return fmt.Errorf("collecting: %w", err)
				}
				if asJSON {
					return cmd.printJSON(sum)
				}
				return cmd.printTable([][]string{
					{"sessions", fmt.Sprint(sum.Sessions)}, {"checkpoints", fmt.Sprint(sum.Checkpoints)},
					{"blobs", fmt.Sprint(sum.Blobs)}, {"given back", amount(sum.Bytes)},
				})
			})
		},
	}
	jsonFlag(c, &asJSON)
	return c
}
