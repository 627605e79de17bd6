package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"paddock/internal/audit"
	"paddock/internal/auth"
	"paddock/internal/fault"
	"paddock/internal/secret"
)

// secretCommand is paddock secret and its subcommands.
type secretCommand struct{ *cli }

func (cmd secretCommand) command() *cobra.Command {
	c := &cobra.Command{
		Use:   "secret",
		Short: "Keep secrets that programs use without seeing them",
		Long: `Keeps what gives access to other people's servers. A program that is given a secret
has a placeholder in the variable of its name; the value is put in outside of the
sandbox, in requests to the hosts that the secret is for, and taken out of answers.

Secrets are kept in the state folder, encrypted. What is changed counts at once, also
for sessions that run.`,
	}
	c.AddCommand(cmd.setCommand(), cmd.listCommand(), cmd.removeCommand())
	return c
}

func (cmd secretCommand) setCommand() *cobra.Command {
	var e secret.Entry
	var from string
	var asJSON bool
	c := &cobra.Command{
		Use: "set NAME", Short: "Keep a secret, or give it another value",
		Long: `Keeps a secret, whose value is read from stdin, or from a variable of paddock's
environment with --from-env: an argument could be read by every user of the machine.
One line end after the value is not part of it.

A host is written as in rules for the network: api.example.com, *.example.com,
api.example.com:8443, or POST api.example.com/v1/* for some requests only. It is
reached over TLS; http://127.0.0.1:8080 lets the value go without.

A value may be used in the headers that are meant for such (not in cookies and not in
those that servers write down), and in basic authentication. --in says it otherwise:
header, header:NAME, basic, query:NAME, body.

One that is kept already gets the value in the place of its own, and keeps its hosts
and places where none are named.

Exit codes: 0 done, 1 failed, 2 wrong usage.`,
		Example: `  paddock secret set GITHUB_TOKEN --host api.github.example < token.txt
  paddock secret set MAPS_KEY --host maps.example.com --in query:key --from-env MAPS_KEY`,
		Args: count(1, 1, "a name"),
		RunE: func(c *cobra.Command, args []string) error {
			e.Name = args[0]
			return cmd.setSecret(c, e, from, asJSON)
		},
	}
	flags := c.Flags()
	flags.StringArrayVar(&e.Hosts, "host", nil, "let it go to this `HOST`")
	flags.StringArrayVar(&e.Places, "in", nil, "use it in this `PLACE`: header, header:NAME, basic, query:NAME or body")
	flags.StringVar(&from, "from-env", "", "read the value from the variable `VAR`")
	flags.StringVar(&e.Owner, "owner", auth.Local, "keep it for the sessions of `PRINCIPAL`")
	jsonFlag(c, &asJSON)
	return c
}

func (cmd secretCommand) setSecret(c *cobra.Command, e secret.Entry, from string, asJSON bool) error {
	if err := secret.CheckName(e.Name); err != nil {
		return fault.Of(err).WithCause(errUsage)
	}
	value, err := cmd.readSecret(from)
	if err != nil {
		return err
	}
	if err := cmd.loadServers(c); err != nil {
		return err
	}
	if err := cmd.noteSecret(c.Context(), audit.SecretSet, e.Owner, e.Name); err != nil {
		return err
	}
	if e, err = cmd.Secrets().Set(e, value); err != nil {
		return err
	}
	if asJSON {
		return cmd.printJSON(e)
	}
	_, err = fmt.Fprintln(cmd.stdout, e.Name)
	return err
}

// readSecret reads a value from a variable, or from stdin.
func (cmd secretCommand) readSecret(variable string) (secret.Value, error) {
	if variable != "" {
		text, ok := os.LookupEnv(variable)
		if !ok {
			return secret.Value{}, usage("there is no variable %s", plain(variable))
		}
		return secret.NewValue([]byte(text)), nil
	}
	text, err := io.ReadAll(io.LimitReader(cmd.stdin, maxSecret+1))
	if err != nil {
		return secret.Value{}, fmt.Errorf("reading a value from stdin: %w", err)
	}
	line := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if line == "" {
		return secret.Value{}, usage("there is no value on stdin").WithHint("write it there, or name a variable with --from-env")
	}
	return secret.NewValue([]byte(line)), nil
}

// noteSecret records what is done with a secret, before it is done.
func (cmd secretCommand) noteSecret(ctx context.Context, action, owner, name string) error {
	target := name
	if owner != auth.Local {
		target = owner + "/" + name
	}
	return cmd.recordAction(ctx, action, target)
}

func (cmd secretCommand) listCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the secrets, without their values",
		Long: `Lists the secrets that are kept, and where each may go. Values are shown nowhere.

Exit codes: 0 done, 1 failed, 2 wrong usage.`,
		Args: count(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error { return cmd.listSecrets(c, asJSON) },
	}
	jsonFlag(c, &asJSON)
	return c
}

func (cmd secretCommand) listSecrets(c *cobra.Command, asJSON bool) error {
	if err := cmd.loadServers(c); err != nil {
		return err
	}
	list, err := cmd.Secrets().List()
	if err != nil {
		return err
	}
	if list == nil {
		list = []secret.Entry{} // which JSON shows as such
	}
	rows := [][]string{{"NAME", "OWNER", "HOSTS", "IN", "SET", "USED"}}
	for _, e := range list {
		set := e.Created
		if !e.Rotated.IsZero() {
			set = e.Rotated
		}
		rows = append(rows, []string{e.Name, plain(e.Owner), plain(strings.Join(e.Hosts, ", ")), plain(strings.Join(e.Places, ", ")), day(set), moment(e.Used)})
	}
	return cmd.printList(asJSON, "secrets", list, rows)
}

// day is a time of which the day matters.
func day(t time.Time) string { return t.Local().Format("2006-01-02") }

func (cmd secretCommand) removeCommand() *cobra.Command {
	var owner string
	var asJSON bool
	c := &cobra.Command{
		Use: "rm NAME", Aliases: []string{"remove"}, Short: "Remove a secret, also from sessions that run",
		Long: `Removes a secret. No session can use it from then on, also not when one of that name
is set again: that one has to be given to sessions again.

Exit codes: 0 done, 1 failed or no such secret, 2 wrong usage.`,
		Args: count(1, 1, "the name of a secret"),
		RunE: func(c *cobra.Command, args []string) error { return cmd.removeSecret(c, owner, args[0], asJSON) },
	}
	c.Flags().StringVar(&owner, "owner", auth.Local, "remove the one for the sessions of `PRINCIPAL`")
	jsonFlag(c, &asJSON)
	return c
}

func (cmd secretCommand) removeSecret(c *cobra.Command, owner, name string, asJSON bool) error {
	if err := cmd.loadServers(c); err != nil {
		return err
	}
	list, err := cmd.Secrets().List()
	if err != nil {
		return err
	}
	for _, e := range list {
		if e.Owner == owner && e.Name == name {
			err = cmd.noteSecret(c.Context(), audit.SecretRemove, owner, name)
		}
	}
	if err == nil {
		err = cmd.Secrets().Remove(owner, name)
	}
	if err != nil {
		return err
	}
	if asJSON {
		return cmd.printJSON(map[string]any{"removed": name})
	}
	_, err = fmt.Fprintln(cmd.stdout, name)
	return err
}
