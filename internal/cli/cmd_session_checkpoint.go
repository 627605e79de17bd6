package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"paddock/internal/session"
)

// checkpointCommands are those about the checkpoints of one session.
func (cmd sessionCommand) checkpointCommands() []*cobra.Command {
	return []*cobra.Command{cmd.checkpointCommand(), cmd.checkpointsCommand(), cmd.restoreCommand(), cmd.undoCommand(), cmd.forkCommand()}
}

func (cmd sessionCommand) checkpointCommand() *cobra.Command {
	var t target
	var label, remove string
	c := &cobra.Command{
		Use: "checkpoint ID", Short: "Keep a session's state under a label",
		Long: `Keeps what a session holds now, variables and files, as a checkpoint that stays
until the session goes, and prints its number. Every run makes a checkpoint by
itself; of those without a label the oldest go when there are many.

With --remove no checkpoint is made, but a label taken off, of all checkpoints
that have it; their numbers are printed. A number stands for that checkpoint alone.

Exit codes: 0 done, 1 failed or no such session or label, 2 wrong usage.`,
		Args: count(1, 1, "the id of a session"),
		RunE: func(c *cobra.Command, args []string) error {
			t.id = session.ID(args[0])
			if c.Flags().Changed("remove") {
				if c.Flags().Changed("label") || remove == "" {
					return usage("flag --remove: it takes the label to take off, and no --label")
				}
				return cmd.removeLabel(c, &t, remove)
			}
			return cmd.withSession(c, &t, func(ctx context.Context, m *session.Manager, o session.Owner) error {
				made, err := m.Checkpoint(ctx, o, t.id, label)
				if err != nil {
					return fmt.Errorf("making a checkpoint: %w", err)
				}
				if t.json {
					return cmd.printJSON(checkpointOf(made))
				}
				if made.Notice != "" {
					fmt.Fprintln(cmd.stderr, "paddock: "+made.Notice)
				}
				_, err = fmt.Fprintln(cmd.stdout, made.ID)
				return err
			})
		},
	}
	c.Flags().StringVar(&label, "label", "", "call it `LABEL`")
	c.Flags().StringVar(&remove, "remove", "", "take `LABEL` off, and make no checkpoint")
	return t.flags(c)
}

func (cmd sessionCommand) removeLabel(c *cobra.Command, t *target, label string) error {
	return cmd.withSession(c, t, func(ctx context.Context, m *session.Manager, o session.Owner) error {
		ids, err := m.Unlabel(ctx, o, t.id, label)
		if err != nil {
			return fmt.Errorf("taking a label off: %w", err)
		}
		if t.json {
			return cmd.printJSON(struct {
				ID        session.ID `json:"session_id"`
				Unlabeled []string   `json:"unlabeled"`
			}{t.id, ids})
		}
		for _, id := range ids {
			if _, err := fmt.Fprintln(cmd.stdout, id); err != nil {
				return err
			}
		}
		return nil
	})
}

func (cmd sessionCommand) checkpointsCommand() *cobra.Command {
	var t target
	return t.flags(&cobra.Command{
		Use: "checkpoints ID", Aliases: []string{"history"}, Short: "List what a session can go back to",
		Long: `Lists the checkpoints of a session, the oldest first, with what each changed:
+ added, ~ modified, - removed. The one that the session is at has a star.

Exit codes: 0 done, 1 failed or no such session, 2 wrong usage.`,
		Args: count(1, 1, "the id of a session"),
		RunE: func(c *cobra.Command, args []string) error {
			t.id = session.ID(args[0])
			return cmd.withSession(c, &t, func(_ context.Context, m *session.Manager, o session.Owner) error {
				all, err := m.Checkpoints(o, t.id)
				if err != nil {
					return fmt.Errorf("listing the checkpoints: %w", err)
				}
				for k := range all {
					all[k] = checkpointOf(all[k])
				}
				if t.json {
					return cmd.printJSON(struct {
						ID          session.ID           `json:"session_id"`
						Checkpoints []session.Checkpoint `json:"checkpoints"`
					}{t.id, listOf(all)})
				}
				return cmd.printTable(checkpointRows(all))
			})
		},
	})
}

// checkpointOf has no list that JSON would show as null.
func checkpointOf(c session.Checkpoint) session.Checkpoint {
	c.Variables, c.Files = listOf(c.Variables), listOf(c.Files)
	return c
}

func listOf[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func checkpointRows(all []session.Checkpoint) [][]string {
	rows := [][]string{{"CHECKPOINT", "NOW", "MADE", "AFTER", "SIZE", "LABEL", "CHANGED", "CODE"}}
	for _, one := range all {
		now := "-"
		if one.Current {
			now = "*"
		}
		rows = append(rows, []string{
			one.ID, now, moment(one.CreatedAt), orDash(one.Cause), amount(one.Bytes), orDash(one.Label), orDash(changed(one)), orDash(short(one.Code)),
		})
	}
	return rows
}

// maxChanged is how many variables and files a line of a table names.
const maxChanged = 4

// changed says what a checkpoint changed, in few words.
func changed(c session.Checkpoint) string {
	signs := map[string]string{"added": "+", "modified": "~", "removed": "-"}
	var words []string
	for _, v := range c.Variables {
		words = append(words, signs[v.Change]+v.Name)
	}
	for _, f := range c.Files {
		words = append(words, signs[f.Change]+f.Path)
	}
	if more := len(words) - maxChanged; more > 0 {
		words = append(words[:maxChanged], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(words, " ")
}

// short is as much of a line of code as a table has room for.
func short(code string) string {
	if runes := []rune(code); len(runes) > 60 {
		return string(runes[:59]) + "…"
	}
	return code
}
