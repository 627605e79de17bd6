package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"paddock/internal/audit"
	"paddock/internal/auth"
	"paddock/internal/fault"
)

// openCommand is paddock open.
type openCommand struct{ *cli }

func (cmd openCommand) command() *cobra.Command {
	var revoke, asJSON bool
	c := &cobra.Command{
		Use:   "open",
		Short: "Make a link that opens the console in a browser, once",
		Long: `Prints a link that opens the console of the paddock serve that runs with the same
state folder. The link works once, within 10 minutes: the browser that opens it
is signed in as the operator for 12 hours, and may decide about calls that wait.
Whoever has the link can use it: it is a password for that long.

Exit codes: 0 done, 1 failed or no paddock serve runs, 2 wrong usage.`,
		Example: `  paddock open
  paddock open --revoke`,
		Args: count(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cmd.load(c); err != nil {
				return err
			}
			if revoke {
				return cmd.revoke(c.Context(), asJSON)
			}
			return cmd.open(c.Context(), asJSON)
		},
	}
	c.Flags().BoolVar(&revoke, "revoke", false, "sign every browser out at once, and end all links")
	jsonFlag(c, &asJSON)
	return c
}

func (cmd openCommand) open(ctx context.Context, asJSON bool) error {
	base, err := cmd.ServerURL()
	if err != nil {
		return fault.New(fault.NotFound, "no paddock serve runs with this state folder").WithHint("start paddock serve; at a terminal it prints a link itself").WithCause(err)
	}
	if err := cmd.recordAction(ctx, audit.SignInLink, ""); err != nil {
		return err
	}
	link, expires, err := cmd.newConsoleLink(ctx, base)
	if err != nil {
		return err
	}
	if asJSON {
		return cmd.printJSON(map[string]any{"url": link, "expires_at": expires})
	}
	_, err = fmt.Fprintln(cmd.stdout, link)
	return err
}

func (cmd openCommand) revoke(ctx context.Context, asJSON bool) error {
	n, err := auth.OpenSignIns(cmd.StateDir).EndAll(ctx)
	if err != nil {
		return err
	}
	// That it was not recorded signs no browser in again.
	if err := cmd.recordAction(ctx, audit.SignInRevoke, fmt.Sprint(n)); err != nil {
		cmd.say("warning", "the sign-ins are revoked, and that is not recorded")
		return err
	}
	if asJSON {
		return cmd.printJSON(map[string]int{"revoked": n})
	}
	_, err = fmt.Fprintln(cmd.stdout, n)
	return err
}

// newConsoleLink makes a link that signs one browser in to the server at base. The ticket is
// in the fragment, which browsers do not send: it is in no log, and opening the page does
// not use it up without a person.
func (cl *cli) newConsoleLink(ctx context.Context, base string) (link string, expires time.Time, err error) {
	ticket, expires, err := auth.OpenSignIns(cl.StateDir).NewTicket(ctx)
	if err != nil {
		return "", expires, err
	}
	return base + "/#ticket=" + ticket, expires, nil
}
