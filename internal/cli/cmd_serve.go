package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"paddock/internal/app"
	"paddock/internal/audit"
	"paddock/internal/auth"
	"paddock/internal/config"
	"paddock/internal/fault"
	"paddock/internal/session"
	"paddock/internal/web"
)

// serveCommand is paddock serve.
type serveCommand struct{ *cli }

func (cmd serveCommand) command() *cobra.Command {
	var dev bool
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve MCP clients over HTTP",
		Long: `Serves MCP over Streamable HTTP, to any number of clients: at /mcp the protocol,
below /v1/sessions/ the files of sessions, and /healthz, /readyz and /metrics.

Who comes in needs a token: the one that is made for this machine's user at the
first start, one that paddock token create made, or what [transport_http] and
[auth] of the configuration say. Anything but a loopback address needs TLS, or a
proxy that has it.

A SIGTERM or an interrupt ends it when the running calls are done, or
transport_http.shutdown_grace_seconds later; a second one at once.

Exit codes: 0 it was told to end, and nothing was cut off; 1 failed, 2 wrong
usage.`,
		Example: `  paddock serve
  PADDOCK_TRANSPORT_HTTP_TLS_CERT=cert.pem PADDOCK_TRANSPORT_HTTP_TLS_KEY=key.pem \
      paddock serve --host 0.0.0.0 --port 8443`,
		Args: count(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error { return cmd.serve(c, dev) },
	}
	keyFlag(c.Flags(), "host", "listen at this `ADDRESS`")
	keyFlag(c.Flags(), "port", "listen at this `PORT`; 0: any that is free")
	keyFlag(c.Flags(), "tools", "offer these `SETS` of tools, with commas: "+strings.Join(config.ToolSets, ", "))
	keyFlag(c.Flags(), "isolation", "run programs in this `KIND` of sandbox: wasm or linux")
	netFlag(c.Flags())
	secretFlag(c.Flags())
	keyFlag(c.Flags(), "insecure-http", "let other machines call without TLS")
	c.Flags().Lookup("insecure-http").NoOptDefVal = "true"
	c.Flags().BoolVar(&dev, "dev", false, "ask for no token; on a loopback address only")
	return c
}

func (cmd serveCommand) serve(c *cobra.Command, dev bool) error {
	if err := cmd.load(c); err != nil {
		return err
	}
	app.TuneForServing()
	cmd.Transport = app.OverHTTP
	cmd.warnOfSecrets()
	wc, local, err := cmd.WebConfig(dev)
	if err != nil {
		return err
	}
	// What is wrong with the configuration is said before anything is opened.
	if _, err := web.New(wc); err != nil {
		return err
	}
	a, err := cmd.Open(app.Options{})
	if err != nil {
		return err
	}
	defer a.Close()
	if err := cmd.checkAudit(a.Audit); err != nil {
		return err
	}
	// Calls that run while the server ends may wait for it still.
	ready := a.PrepareWith(context.WithoutCancel(c.Context()), func(ctx context.Context) error { return cmd.prepare(ctx, a.Backends) })
	defer ready.Wait()
	server, err := a.NewHTTP(wc, ready, func() { cmd.tellEnding(a.Sessions.Stats()) })
	if err != nil {
		return err
	}
	defer server.Close()
	ctx, stop := context.WithCancelCause(c.Context())
	defer stop(nil)
	err = server.Run(ctx, func(url string) {
		if err := cmd.tellServing(ctx, a.Audit, url, local, dev); err != nil {
			stop(err)
		}
	})
	if failed := context.Cause(ctx); failed != nil && c.Context().Err() == nil {
		return failed
	}
	return err
}

// tellServing says where MCP is served. First it opens local, the way in for this machine's
// user, if it is not nil.
func (cmd serveCommand) tellServing(ctx context.Context, log *audit.Log, url string, local *app.LocalUser, dev bool) error {
	if local != nil {
		if err := cmd.openLocal(local); err != nil {
			return err
		}
	}
	fmt.Fprintf(cmd.stderr, "paddock: MCP is served at %s\n", url)
	if terminal(cmd.stderr) && app.ConsoleBuilt() { // a log is not a place for a link that lets someone in
		if err := cmd.tellConsole(ctx, log, strings.TrimSuffix(url, cmd.Config.HTTP.Path)); err != nil {
			return err
		}
	}
	if dev {
		cmd.say("warning", "every program on this machine can run code here: no token is asked for")
	}
	return nil
}

// tellConsole shows the link by which the operator's browser comes in.
func (cmd serveCommand) tellConsole(ctx context.Context, log *audit.Log, base string) error {
	if err := log.Write(ctx, audit.Record{Action: audit.SignInLink, Principal: auth.Local, Outcome: audit.Success}); err != nil {
		return err
	}
	link, _, err := cmd.newConsoleLink(ctx, base)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.stderr, "paddock: the console opens once, for %v, at %s\n", auth.TicketTTL, link)
	cmd.say("hint", "paddock open makes another link")
	return nil
}

// tellEnding says what the end waits for.
func (cmd serveCommand) tellEnding(s session.Stats) {
	switch n := s.Running + s.Queued; n {
	case 0:
	case 1:
		fmt.Fprintln(cmd.stderr, "paddock: ending; 1 call still runs (a second Ctrl-C ends at once)")
	default:
		fmt.Fprintf(cmd.stderr, "paddock: ending; %d calls still run (a second Ctrl-C ends at once)\n", n)
	}
}

// checkAudit says before anybody calls that the audit log cannot be written.
// Where it has to be, no program could run.
func (cmd serveCommand) checkAudit(log *audit.Log) error {
	err := log.Check()
	if err == nil {
		return nil
	}
	f := fault.New(fault.Unavailable, "the audit log cannot be written in %s", cmd.AuditFolder()).
		WithHint("let this user write there; audit.mode = \"best_effort\" runs programs unrecorded").WithCause(err)
	if audit.Mode(cmd.Config.Audit.Mode) == audit.Required {
		return f
	}
	cmd.say("warning", f.Message)
	return nil
}

// openLocal opens the way in for this machine's user and says where its token
// is. A token that was made just now is shown too, on a terminal alone: a log is
// no place for it.
func (cmd serveCommand) openLocal(l *app.LocalUser) error {
	made, err := l.Open()
	if err != nil {
		return cmd.explainTokens(err)
	}
	file := filepath.Join(l.Dir, auth.LocalTokenFile)
	switch {
	case made == "":
		fmt.Fprintf(cmd.stderr, "paddock: the token of this machine's user is in %s\n", file)
	case terminal(cmd.stderr):
		fmt.Fprintf(cmd.stderr, "paddock: the token of this machine's user, which is in %s and shown this once: %s\n", file, made)
		cmd.say("hint", "paddock setup CLIENT --http gives it to a client; paddock token create makes others")
	default:
		fmt.Fprintf(cmd.stderr, "paddock: a token for this machine's user was made: %s\n", file)
	}
	return nil
}
