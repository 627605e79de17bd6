package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"paddock/internal/auth"
	"paddock/internal/session"
)

// target is the session that a command is about, and how its result is printed.
type target struct {
	principal string
	id        session.ID
	json      bool
}

// flags adds those that all commands about one session have.
func (t *target) flags(c *cobra.Command) *cobra.Command {
	jsonFlag(c, &t.json)
	principalFlag(c, &t.principal)
	return c
}

func principalFlag(c *cobra.Command, to *string) {
	c.Flags().StringVar(to, "principal", "", "those of the principal `ID`, or of the tokens of that name")
}

// withSession calls f with a session's owner, once it is known whose it is. What
// f changes, the state folder's user can go on with.
func (p *program) withSession(c *cobra.Command, t *target, f func(context.Context, *session.Manager, session.Owner) error) error {
	return p.withSessions(c, func(ctx context.Context, m *session.Manager) error {
		owners, err := p.owners(t.principal)
		if err != nil {
			return err
		}
		if err := auth.CheckFolder(p.StateDir); err != nil {
			return err
		}
		var owner session.Owner
		err = ofOne(owners, func(o session.Owner) error {
			owner = o
			_, err := m.Info(o, t.id)
			return err
		})
		if err != nil {
			return err
		}
		return f(ctx, m, owner)
	})
}

// historyCommands are those about the checkpoints of one session.
func (p *program) historyCommands() []*cobra.Command {
	return []*cobra.Command{p.checkpointCommand(), p.checkpointsCommand(), p.restoreCommand(), p.undoCommand(), p.forkCommand()}
}

func (p *program) checkpointCommand() *cobra.Command {
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
				return p.removeLabel(c, &t, remove)
			}
			return p.withSession(c, &t, func(ctx context.Context, m *session.Manager, o session.Owner) error {
				made, err := m.Checkpoint(ctx, o, t.id, label)
				if err != nil {
					return fmt.Errorf("making a checkpoint: %w", err)
				}
				if t.json {
					return p.printJSON(checkpointOf(made))
				}
				if made.Notice != "" {
					fmt.Fprintln(p.stderr, "paddock: "+made.Notice)
				}
				_, err = fmt.Fprintln(p.stdout, made.ID)
				return err
			})
		},
	}
	c.Flags().StringVar(&label, "label", "", "call it `LABEL`")
	c.Flags().StringVar(&remove, "remove", "", "take `LABEL` off, and make no checkpoint")
	return t.flags(c)
}

func (p *program) removeLabel(c *cobra.Command, t *target, label string) error {
	return p.withSession(c, t, func(ctx context.Context, m *session.Manager, o session.Owner) error {
		ids, err := m.Unlabel(ctx, o, t.id, label)
		if err != nil {
			return fmt.Errorf("taking a label off: %w", err)
		}
		if t.json {
			return p.printJSON(struct {
				ID        session.ID `json:"session_id"`
				Unlabeled []string   `json:"unlabeled"`
			}{t.id, ids})
		}
		for _, id := range ids {
			if _, err := fmt.Fprintln(p.stdout, id); err != nil {
				return err
			}
		}
		return nil
	})
}

func (p *program) checkpointsCommand() *cobra.Command {
	var t target
	return t.flags(&cobra.Command{
		Use: "checkpoints ID", Aliases: []string{"history"}, Short: "List what a session can go back to",
		Long: `Lists the checkpoints of a session, the oldest first, with what each changed:
+ added, ~ modified, - removed. The one that the session is at has a star.

Exit codes: 0 done, 1 failed or no such session, 2 wrong usage.`,
		Args: count(1, 1, "the id of a session"),
		RunE: func(c *cobra.Command, args []string) error {
			t.id = session.ID(args[0])
			return p.withSession(c, &t, func(_ context.Context, m *session.Manager, o session.Owner) error {
				all, err := m.Checkpoints(o, t.id)
				if err != nil {
					return fmt.Errorf("listing the checkpoints: %w", err)
				}
				for k := range all {
					all[k] = checkpointOf(all[k])
				}
				if t.json {
					return p.printJSON(struct {
						ID          session.ID           `json:"session_id"`
						Checkpoints []session.Checkpoint `json:"checkpoints"`
					}{t.id, listOf(all)})
				}
				return p.printTable(checkpointRows(all))
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

func (p *program) restoreCommand() *cobra.Command {
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
			return p.withSession(c, &t, func(ctx context.Context, m *session.Manager, o session.Owner) error {
				r, err := m.Restore(ctx, o, t.id, args[1])
				return p.printRestored(t, r, err)
			})
		},
	})
}

func (p *program) undoCommand() *cobra.Command {
	var t target
	return t.flags(&cobra.Command{
		Use: "undo ID", Short: "Take back a session's last change",
		Long: `Brings a session's variables and files back to what they were before its last run
or change, as restore does; a second time one further back.

Exit codes: 0 done, 1 failed, nothing to undo, or no such session, 2 wrong usage.`,
		Args: count(1, 1, "the id of a session"),
		RunE: func(c *cobra.Command, args []string) error {
			t.id = session.ID(args[0])
			return p.withSession(c, &t, func(ctx context.Context, m *session.Manager, o session.Owner) error {
				r, err := m.Undo(ctx, o, t.id)
				return p.printRestored(t, r, err)
			})
		},
	})
}

// printRestored tells what going back did, or gives its error.
func (p *program) printRestored(t target, r session.Restored, err error) error {
	if err != nil {
		return fmt.Errorf("going back: %w", err)
	}
	if t.json {
		return p.printJSON(struct {
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
		p.say("notice", r.Notice)
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
	return p.printTable(rows)
}

func (p *program) forkCommand() *cobra.Command {
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
			return p.withSession(c, &t, func(ctx context.Context, m *session.Manager, o session.Owner) error {
				made, err := m.Fork(ctx, o, t.id, checkpoint, number)
				if err != nil {
					return fmt.Errorf("forking: %w", err)
				}
				return p.printForks(t, made)
			})
		},
	}
	c.Flags().IntVar(&number, "count", 1, "make `N` of them")
	c.Flags().StringVar(&checkpoint, "checkpoint", "", "begin with the state at `CHECKPOINT`, a number or a label; else with that of now")
	return t.flags(c)
}

func (p *program) printForks(t target, made []session.Info) error {
	if t.json {
		forks := []sessionJSON{}
		for _, i := range made {
			forks = append(forks, sessionOf(i))
		}
		return p.printJSON(struct {
			ID    session.ID    `json:"session_id"`
			Forks []sessionJSON `json:"forks"`
		}{t.id, forks})
	}
	for _, i := range made {
		if _, err := fmt.Fprintln(p.stdout, i.ID); err != nil {
			return err
		}
	}
	return nil
}
