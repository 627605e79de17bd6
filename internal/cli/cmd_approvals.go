package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"paddock/internal/approval"
	"paddock/internal/auth"
	"paddock/internal/fault"
)

// approvalsCommand is paddock approvals.
type approvalsCommand struct{ *cli }

func (cmd approvalsCommand) command() *cobra.Command {
	c := &cobra.Command{
		Use:   "approvals",
		Short: "Allow or deny calls of tools that wait for a person",
		Long: `Lists and decides what programs wait for: calls of tools that the configuration has
a person asked about (servers.NAME.tools.ask). A grant is for one call, of exactly
that tool of that server with those arguments; the program goes on with it, and any
other call is asked about again.`,
	}
	var listJSON, showJSON, all, over bool
	var principal string
	ls := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List what waits for a person",
		Long: `Lists the approvals that wait for somebody, or were granted and not used yet, the
oldest first.

Exit codes: 0 done, 1 failed, 2 wrong usage.`,
		Example: "  paddock approvals ls --all\n  paddock approvals ls --over --json",
		Args:    count(0, 0, ""),
		RunE:    func(c *cobra.Command, _ []string) error { return cmd.listApprovals(c, principal, all, over, listJSON) },
	}
	ls.Flags().BoolVar(&all, "all", false, "those of all principals")
	ls.Flags().BoolVar(&over, "over", false, "also those that are over: used, denied, expired and withdrawn")
	principalFlag(ls, &principal)
	show := &cobra.Command{
		Use: "show ID", Short: "Show what is asked for, to the letter",
		Long: `Shows an approval with all of the arguments that the call would have. What does not
print, or changes how text is shown, is written as an escape.

Exit codes: 0 done, 1 failed or no such approval, 2 wrong usage.`,
		Args: count(1, 1, "the id of an approval"),
		RunE: func(c *cobra.Command, args []string) error { return cmd.showApproval(c, args[0], showJSON) },
	}
	jsonFlag(ls, &listJSON)
	jsonFlag(show, &showJSON)
	c.AddCommand(ls, show, cmd.decideCommand(true), cmd.decideCommand(false))
	return c
}

func (cmd approvalsCommand) decideCommand(grant bool) *cobra.Command {
	var asJSON bool
	var reason string
	c := &cobra.Command{
		Use: "grant ID...", Short: "Allow calls, each once",
		Long: `Allows the calls that wait, each once, and prints their ids. A program whose process
is serving continues at once; a suspended one continues when its client asks for it.

Exit codes: 0 all were granted, 1 not all (somebody was faster, or it has expired),
2 wrong usage.`,
		Args: count(1, -1, "the ids of approvals"),
		RunE: func(c *cobra.Command, args []string) error {
			return cmd.decideApprovals(c, args, grant, reason, asJSON)
		},
	}
	if !grant {
		c.Use, c.Short = "deny ID...", "Deny calls"
		c.Long = `Denies the calls that wait, and prints their ids. Their programs get an error, with
the reason.

Exit codes: 0 all were denied, 1 not all (somebody was faster, or it has expired),
2 wrong usage.`
	}
	c.Flags().StringVar(&reason, "reason", "", "say why, in these `WORDS`; a program that is denied reads them")
	jsonFlag(c, &asJSON)
	return c
}

// withApprovals calls f with those of the state folder.
func (cmd approvalsCommand) withApprovals(c *cobra.Command, f func(*approval.Store) error) error {
	if err := cmd.load(c); err != nil {
		return err
	}
	log := cmd.OpenAudit()
	return errors.Join(f(cmd.Approvals(log)), log.Close())
}

func (cmd approvalsCommand) listApprovals(c *cobra.Command, principal string, all, over, asJSON bool) error {
	return cmd.withApprovals(c, func(s *approval.Store) error {
		owners, err := cmd.owners(principal)
		if err != nil {
			return err
		}
		var found []approval.Approval
		if all {
			found, err = s.All()
		}
		for _, o := range owners {
			if !all && err == nil {
				var some []approval.Approval
				some, err = s.List(string(o))
				found = append(found, some...)
			}
		}
		if err != nil {
			return err
		}
		list := []approval.Approval{}
		rows := [][]string{{"ID", "STATE", "PRINCIPAL", "SESSION", "CALL", "ARGUMENTS", "ASKED", "EXPIRES"}}
		for _, a := range found {
			if !over && !a.State.Open() {
				continue
			}
			list = append(list, a)
			rows = append(rows, []string{
				a.ID, string(a.State), plain(a.Owner), plain(a.Session), plain(a.Server + "." + a.Tool),
				beginning(plain(string(a.Arguments)), 60), moment(a.Created), moment(a.Expires),
			})
		}
		return cmd.printList(asJSON, "approvals", list, rows)
	})
}

func (cmd approvalsCommand) showApproval(c *cobra.Command, id string, asJSON bool) error {
	return cmd.withApprovals(c, func(s *approval.Store) error {
		a, err := s.Find(id)
		if err != nil {
			return err
		}
		if asJSON {
			return cmd.printJSON(a)
		}
		rows := [][2]string{
			{"id", a.ID}, {"state", string(a.State)}, {"server", a.Server}, {"tool", a.Tool}, {"principal", a.Owner}, {"session", a.Session},
			{"execution", a.Execution}, {"call", strconv.Itoa(a.Number)}, {"asked", moment(a.Created)}, {"expires", moment(a.Expires)},
		}
		if !a.Decided.IsZero() {
			rows = append(rows, [2]string{"decided", moment(a.Decided)}, [2]string{"by", a.By}, [2]string{"reason", a.Reason})
		}
		for _, r := range rows {
			if r[1] != "" {
				fmt.Fprintf(cmd.stdout, "%-10s %s\n", r[0]+":", plain(r[1]))
			}
		}
		fmt.Fprintf(cmd.stdout, "the server says of the tool:\n%s\narguments (SHA-256 %s):\n%s\n", indented(plainLines(cmp.Or(a.Description, "-"))), a.ArgumentsDigest, indented(argumentsOf(a)))
		return nil
	})
}

// argumentsOf are an approval's arguments on lines, safe for a terminal. Everything that
// the call will have is there, in its order; only what separates it is not as it was.
func argumentsOf(a approval.Approval) string {
	var b bytes.Buffer
	if json.Indent(&b, a.Arguments, "", "  ") != nil {
		return plain(string(a.Arguments))
	}
	return plainLines(b.String())
}

func (cmd approvalsCommand) decideApprovals(c *cobra.Command, ids []string, grant bool, reason string, asJSON bool) error {
	return cmd.withApprovals(c, func(s *approval.Store) error {
		decided := []approval.Approval{}
		var errs []error
		for _, id := range ids {
			a, err := s.Find(id)
			if err == nil {
				a, err = s.Decide(c.Context(), a.Owner, id, approval.Decision{By: auth.Local, Grant: grant, Reason: reason})
			}
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if decided = append(decided, a); !asJSON {
				fmt.Fprintln(cmd.stdout, a.ID)
			}
			cmd.say(string(a.State), fmt.Sprintf("%s.%s of the session %s; counts until %s", plain(a.Server), plain(a.Tool), plain(a.Session), a.Expires.Local().Format(time.DateTime)))
		}
		if asJSON {
			errs = append(errs, cmd.printJSON(map[string]any{"approvals": decided}))
		}
		if err := errors.Join(errs...); fault.KindOf(err) != "" {
			return err
		}
		return nil
	})
}
