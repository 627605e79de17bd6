package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"paddock/internal/session"
)

func (cmd sessionCommand) restoreCommand() *cobra.Command {
	var t target
	return t.flags(&cobra.Command{
		Use: "restore ID CHECKPOINT", Short: "Bring a session back to a checkpoint",
		Long: `Brings a session's variables and files back to a checkpoint, by its number or its
label, and prints where the session is now and which files changed. What was
there before is a checkpoint too, and can be restored in turn.

Exit codes: 0 done, 1 failed or no such session or checkpoint, 2 wrong usage.`,
		Args: count(2, 2, "the id of a session and a checkpoint"),
		RunE: func(c *cobra.Command, args []string) error {
			t.id = session.ID(args[0])
			return cmd.withSession(c, &t, func(ctx context.Context, m *session.Manager, o session.Owner) error {
				r, err := m.Restore(ctx, o, t.id, args[1])
				return cmd.printRestored(t, r, err)
			})
		},
	})
}

// printRestored tells what going back did, or gives its error.
func (cmd sessionCommand) printRestored(t target, r session.Restored, err error) error {
	if err != nil {
		return fmt.Errorf("going back: %w", err)
	}
	if t.json {
		return cmd.printJSON(struct {
			ID         session.ID               `json:"session_id"`
			Checkpoint string                   `json:"checkpoint"`
			Label      string                   `json:"label,omitempty"`
			Undone     string                   `json:"undone"`
			Variables  []session.VariableChange `json:"variables_changed"`
			Files      []session.Change         `json:"files_changed"`
			Notice     string                   `json:"notice,omitempty"`
		}{t.id, r.Checkpoint.ID, r.Checkpoint.Label, r.Undone, listOf(r.Variables), listOf(r.Changes), r.Notice})
	}
	if r.Notice != "" {
		cmd.say("notice", r.Notice)
	}
	rows := [][]string{{"checkpoint", r.Checkpoint.ID}, {"undone", r.Undone}, {"variables changed", strconv.Itoa(len(r.Variables))}}
	for _, v := range r.Variables {
		rows = append(rows, []string{"", plain(v.Name), v.Change})
	}
	rows = append(rows, []string{"files changed", strconv.Itoa(len(r.Changes))})
	for _, f := range r.Changes {
		size := "-"
		if f.Change != "removed" {
			size = amount(f.Size)
		}
		rows = append(rows, []string{"", plain(f.Path), f.Change, size})
	}
	return cmd.printTable(rows)
}
