package cli

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"paddock/internal/app"
	"paddock/internal/auth"
	"paddock/internal/session"
	"paddock/internal/web"
	"paddock/internal/web/preview"
)

func (cmd sessionCommand) previewCommand() *cobra.Command {
	var ask previewAsk
	c := &cobra.Command{
		Use:   "preview ID [PORT]",
		Short: "Make a URL that opens what a session serves",
		Long: `Prints a URL that opens in a browser what a program of a Linux session serves over
HTTP at that port of its own: while paddock serve runs with the same state folder,
at an address that is the preview's alone. Whoever has the URL can open it, until
it expires, is revoked, or the session ends. Without a port: lists the previews of
the session, which do not have their URLs.

Exit codes: 0 done, 1 failed or no such session, 2 wrong usage.`,
		Example: `  paddock session preview ID 8000 --ttl 8h
  paddock session preview ID --revoke`,
		Args: count(1, 2, "the id of a session, and a port of it"),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 2 {
				n, err := strconv.ParseUint(args[1], 10, 16)
				if err != nil || n == 0 {
					return usage("%q is not a port", args[1]).WithHint("a port lies between 1 and 65535")
				}
				ask.port = uint16(n)
			}
			return cmd.preview(c, args[0], ask)
		},
	}
	c.Flags().DurationVar(&ask.ttl, "ttl", preview.DefaultTTL, "how long it can be used: a `DURATION` such as 30m, 24h at most")
	c.Flags().StringVar(&ask.path, "path", "/", "the `PATH` at which the browser begins")
	c.Flags().BoolVar(&ask.revoke, "revoke", false, "end the previews of the port, or of all ports")
	jsonFlag(c, &ask.asJSON)
	principalFlag(c, &ask.principal)
	return c
}

// previewAsk is what the command is asked for.
type previewAsk struct {
	principal, path string
	port            uint16 // 0: none was named
	ttl             time.Duration
	revoke, asJSON  bool
}

func (cmd sessionCommand) preview(c *cobra.Command, text string, ask previewAsk) error {
	if err := cmd.load(c); err != nil {
		return err
	}
	a, err := cmd.Open(app.Options{})
	if err != nil {
		return err
	}
	defer a.Close()
	owners, err := cmd.owners(ask.principal)
	if err != nil {
		return err
	}
	o, id, err := chosen(a.Sessions, owners, text)
	if err != nil {
		return err
	}
	i, err := a.Sessions.Info(o, id)
	switch {
	case err != nil:
		return unknownSession(err)
	case ask.revoke:
		return cmd.revokePreviews(c.Context(), a, i, ask)
	case ask.port == 0:
		return cmd.listPreviews(a, i, ask)
	}
	return cmd.makePreview(c.Context(), a, i, ask)
}

func (cmd sessionCommand) makePreview(ctx context.Context, a *app.App, i session.Info, ask previewAsk) error {
	made, link, err := a.MakePreview(ctx, i, ask.port, ask.path, ask.ttl)
	if err != nil {
		return err
	}
	shown := preview.Show(made)
	url, err := cmd.previewURL(a, i, made.ID)
	if err != nil {
		return err
	}
	shown.URL = url + link
	if ask.asJSON {
		return cmd.printJSON(shown)
	}
	_, err = fmt.Fprintln(cmd.stdout, shown.URL)
	return err
}

// previewURL is the address of a preview: that of the server which runs, or the one that
// the configuration's would have. A warning says when no server would answer there.
func (cmd sessionCommand) previewURL(a *app.App, i session.Info, id string) (string, error) {
	process, url, err := a.PreviewServer(id)
	if err != nil {
		cmd.say("warning", "no paddock serve runs with this state folder: the URL opens when one does, as the configuration says")
		wc, _, err := cmd.WebConfig(true)
		if err != nil {
			return "", err
		}
		wc.Dev, wc.Verifier = false, auth.OpenTokens(cmd.StateDir) // it is never run
		server, err := web.New(wc)
		if err != nil {
			return "", err
		}
		return server.PreviewURL(id), nil
	}
	if i.Process != 0 && i.Process != process && i.Process != os.Getpid() {
		cmd.say("warning", fmt.Sprintf("another process (pid %d) has the session open: until it sleeps or that ends, paddock serve cannot reach it", i.Process))
	}
	return url, nil
}

func (cmd sessionCommand) listPreviews(a *app.App, i session.Info, ask previewAsk) error {
	all, err := a.Previews(i)
	if err != nil {
		return err
	}
	return cmd.printPreviews("previews", all, ask.asJSON)
}

func (cmd sessionCommand) revokePreviews(ctx context.Context, a *app.App, i session.Info, ask previewAsk) error {
	revoked, err := a.RevokePreviews(ctx, i, func(one preview.Preview) bool { return ask.port == 0 || one.Port == ask.port })
	if err != nil {
		return err
	}
	return cmd.printPreviews("revoked", revoked, ask.asJSON)
}

func (cmd sessionCommand) printPreviews(name string, all []preview.Preview, asJSON bool) error {
	rows, list := [][]string{{"PREVIEW", "PORT", "EXPIRES"}}, []preview.Shown{}
	for _, one := range all {
		list = append(list, preview.Show(one))
		rows = append(rows, []string{one.ID, strconv.Itoa(int(one.Port)), moment(one.Expires)})
	}
	return cmd.printList(asJSON, name, list, rows)
}
