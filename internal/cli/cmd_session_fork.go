package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"paddock/internal/session"
)

func (cmd sessionCommand) forkCommand() *cobra.Command {
	var t target
	var number int
	var checkpoint string
	c := &cobra.Command{
		Use: "fork ID", Short: "Copy a session into new ones",
		Long: `Makes new sessions that begin with the variables and files that a session has, or
had at a checkpoint, and go on by themselves; prints their ids. All are made, or
none.

Exit codes: 0 done, 1 failed or no such session or checkpoint, 2 wrong usage.`,
		Args: count(1, 1, "the id of a session"),
		RunE: func(c *cobra.Command, args []string) error {
			if number < 1 {
				return usage("flag --count: there is nothing to make").WithHint("give the number of new sessions, from 1 on")
			}
			t.id = session.ID(args[0])
			return cmd.withSession(c, &t, func(ctx context.Context, m *session.Manager, o session.Owner) error {
				made, err := m.Fork(ctx, o, t.id, checkpoint, number)
				if err != nil {
					return fmt.Errorf("forking: %w", err)
				}
				return cmd.printForks(t, made)
			})
		},
	}
	c.Flags().IntVar(&number, "count", 1, "make `N` of them")
	c.Flags().StringVar(&checkpoint, "checkpoint", "", "begin with the state at `CHECKPOINT`, a number or a label; else with that of now")
	return t.flags(c)
}

func (cmd sessionCommand) printForks(t target, made []session.Info) error {
	if t.json {
		forks := []sessionJSON{}
		for _, i := range made {
			forks = append(forks, sessionOf(i))
		}
		return cmd.printJSON(struct {
			ID    session.ID    `json:"session_id"`
			Forks []sessionJSON `json:"forks"`
		}{t.id, forks})
	}
	for _, i := range made {
		if _, err := fmt.Fprintln(cmd.stdout, i.ID); err != nil {
			return err
		}
	}
	return nil
}
