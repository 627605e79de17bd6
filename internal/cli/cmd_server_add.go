package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"paddock/internal/app"
	"paddock/internal/audit"
	"paddock/internal/config"
	"paddock/internal/fault"
	"paddock/internal/serverstore"
)

// addFlags are the flags of paddock server add.
type addFlags struct {
	command, dir, transport        string
	headers, env, allow, ask, deny []string
	timeout                        time.Duration
	perMinute                      int64
	results                        string
	clientID, issuer, grant        string
	clientSecret                   string
	scopes                         []string
	replace, asJSON                bool
}

func (cmd serverCommand) addCommand() *cobra.Command {
	var f addFlags
	c := &cobra.Command{
		Use: "add NAME URL | add NAME --command COMMAND [-- ARGS...]", Short: "Add a server",
		Long: `Adds a server that is reached at a URL, or one that paddock starts with a command
and speaks to over stdin and stdout. Values of variables and headers are kept
encrypted; ${NAME} in them, in arguments and in the URL is a variable of paddock's
environment when it starts. A value that is - is read from stdin, so that it does
not stand on the command line.

Patterns of tools are names with * and ?, or @read-only, @destructive and
@open-world for what the server says of them. --deny goes before --ask, and that
before --allow; with an --allow, tools that fit no pattern are denied.

Exit codes: 0 done, 1 failed or there is one of that name, 2 wrong usage.`,
		Example: `  paddock server add docs https://mcp.example.com/mcp
  paddock server add github https://api.example.com/mcp --header 'Authorization: Bearer ${GITHUB_TOKEN}' --ask @destructive
  paddock server add files --command npx -- -y @modelcontextprotocol/server-filesystem /data`,
		Args: count(1, -1, "a name"),
		RunE: func(c *cobra.Command, args []string) error { return cmd.addServer(c, args, f) },
	}
	flags := c.Flags()
	flags.StringVar(&f.command, "command", "", "start this `COMMAND`; its arguments follow --")
	flags.StringVar(&f.dir, "cwd", "", "start it in `DIR`")
	flags.StringArrayVar(&f.env, "env", nil, "give it the variable `NAME=VALUE`")
	flags.StringArrayVar(&f.headers, "header", nil, "send the header `'NAME: VALUE'` with each request")
	flags.StringVar(&f.transport, "transport", "", "speak to the URL over `KIND`: auto, http or sse")
	flags.StringSliceVar(&f.allow, "allow", nil, "let only tools of these `PATTERNS` be called")
	flags.StringSliceVar(&f.ask, "ask", nil, "ask somebody about each call of tools of these `PATTERNS`")
	flags.StringSliceVar(&f.deny, "deny", nil, "let no tools of these `PATTERNS` be called")
	flags.DurationVar(&f.timeout, "timeout", 0, "let a call take this `TIME`, such as 90s")
	flags.Int64Var(&f.perMinute, "calls-per-minute", 0, "let all sessions together make so `MANY` calls within a minute; others wait")
	flags.StringVar(&f.results, "results", "", "give programs results as `KIND`: values, or raw: as the server sends them")
	flags.StringVar(&f.clientID, "client-id", "", "log in as the client of this `ID`, which the issuer gave out")
	flags.StringVar(&f.clientSecret, "client-secret", "", "with this `SECRET`; -: it is read from stdin")
	flags.StringVar(&f.issuer, "issuer", "", "the `URL` of the issuer that gave the client out")
	flags.StringVar(&f.grant, "grant", "", "get tokens by this `GRANT`: authorization_code or client_credentials")
	flags.StringSliceVar(&f.scopes, "scope", nil, "ask for these `SCOPES` where the server does not say")
	flags.BoolVar(&f.replace, "replace", false, "put it in the place of one of that name")
	jsonFlag(c, &f.asJSON)
	return c
}

// server reads what the command line says of a server.
func (f *addFlags) server(c *cobra.Command, args []string, stdin io.Reader) (config.Server, error) {
	s := config.Server{Command: f.command, Dir: f.dir, Transport: f.transport, Timeout: f.timeout.Round(time.Second), CallsPerMinute: f.perMinute, Results: f.results}
	s.Tools.Allow, s.Tools.Ask, s.Tools.Deny = f.allow, f.ask, f.deny
	s.OAuth = config.OAuth{ClientID: f.clientID, ClientSecret: f.clientSecret, Issuer: f.issuer, Grant: f.grant, Scopes: f.scopes}
	rest := args[1:]
	switch dash := c.ArgsLenAtDash(); {
	case f.command != "":
		s.Args = rest
		if dash != 1 && len(rest) > 0 {
			return s, usage("the arguments of a command follow --").WithHint("paddock server add %s --command %s -- %s", args[0], f.command, strings.Join(rest, " "))
		}
	case len(rest) == 1 && dash < 0:
		s.URL = rest[0]
	default:
		return s, usage("paddock server add needs a URL or --command").WithHint("%s", c.UseLine())
	}
	if f.timeout < 0 || f.timeout > 24*time.Hour || f.timeout > 0 && s.Timeout == 0 {
		return s, usage("flag --timeout: %v is not between 1s and 24h", f.timeout)
	}
	if f.results != "" && f.results != config.ResultValues && f.results != config.ResultsRaw {
		return s, usage("flag --results: %q is not one of %s, %s", f.results, config.ResultValues, config.ResultsRaw)
	}
	if f.perMinute < 0 || f.perMinute > config.MostPerMinute {
		return s, usage("flag --calls-per-minute: %d is not between 1 and %d", f.perMinute, config.MostPerMinute)
	}
	if f.grant != "" && f.grant != config.AuthorizationCode && f.grant != config.ClientCredentials {
		return s, usage("flag --grant: %q is not one of %s, %s", f.grant, config.AuthorizationCode, config.ClientCredentials)
	}
	var err error
	if s.Env, err = pairs("env", f.env, "="); err != nil {
		return s, err
	}
	if s.Headers, err = pairs("header", f.headers, ":="); err != nil {
		return s, err
	}
	return s, fromStdin(&s, stdin)
}

// pairs reads names with their values, with one of the separators between. A value may
// be secret, and is not repeated.
func pairs(flag string, texts []string, separators string) (map[string]string, error) {
	var all map[string]string
	for i, text := range texts {
		at := strings.IndexAny(text, separators)
		if at <= 0 {
			return nil, usage("flag --%s: the %d. value has no name", flag, i+1).WithHint("it is NAME%sVALUE", separators[:1])
		}
		name := strings.TrimSpace(text[:at])
		if _, twice := all[name]; twice {
			return nil, usage("flag --%s: %s is there twice", flag, name)
		}
		if all == nil {
			all = map[string]string{}
		}
		all[name] = strings.TrimPrefix(text[at+1:], " ")
	}
	return all, nil
}

// maxSecret bounds what is read from stdin, in bytes.
const maxSecret = 64 << 10

// fromStdin puts the first line of stdin in the place of the one value that is "-".
func fromStdin(s *config.Server, stdin io.Reader) error {
	var put []func(string)
	for _, table := range []map[string]string{s.Env, s.Headers} {
		for _, name := range slices.Sorted(maps.Keys(table)) {
			if table[name] == "-" {
				put = append(put, func(value string) { table[name] = value })
			}
		}
	}
	if s.OAuth.ClientSecret == "-" {
		put = append(put, func(value string) { s.OAuth.ClientSecret = value })
	}
	switch len(put) {
	case 0:
		return nil
	case 1:
	default:
		return usage("only one value can be read from stdin").WithHint("the others can refer to variables of paddock's environment, as ${NAME}")
	}
	line, err := bufio.NewReader(io.LimitReader(stdin, maxSecret)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading a value from stdin: %w", err)
	}
	if line = strings.TrimRight(line, "\r\n"); line == "" {
		return usage("there is no value on stdin")
	}
	put[0](line)
	return nil
}

func (cmd serverCommand) addServer(c *cobra.Command, args []string, f addFlags) error {
	s, err := f.server(c, args, cmd.stdin)
	if err != nil {
		return err
	}
	if err := cmd.loadServers(c); err != nil {
		return err
	}
	k, err := cmd.putServer(c.Context(), args[0], s, f.replace)
	if err != nil {
		return err
	}
	defer k.Close()
	if k.Err != nil {
		cmd.say("warning", "it cannot be used as it is: "+k.Err.Error())
	}
	if f.asJSON {
		return cmd.printJSON(shown(k))
	}
	_, err = fmt.Fprintln(cmd.stdout, k.Name)
	return err
}

// putServer checks a server and adds it. One that refers to a variable that is not there
// is added: paddock may be started with it.
func (cmd serverCommand) putServer(ctx context.Context, name string, s config.Server, replace bool) (*app.Server, error) {
	entries, err := cmd.AddedServers().List()
	if err != nil {
		return nil, err
	}
	if err := cmd.checkServer(name, s, entries); err != nil {
		return nil, err
	}
	if err := cmd.recordAction(ctx, audit.ServerAdd, name); err != nil {
		return nil, err
	}
	if err := cmd.AddedServers().Add(name, s, replace); err != nil {
		return nil, err
	}
	k := &app.Server{Name: name, Origin: app.Added, Written: s}
	k.Err = cmd.PrepareServer(k)
	return k, nil
}

// checkServer tells what is wrong with a server that is to be added to others.
func (cmd serverCommand) checkServer(name string, s config.Server, to []serverstore.Entry) error {
	if err := config.CheckServerName(name); err != nil {
		return fault.Of(err).WithCause(errUsage)
	}
	return cmd.CheckNewServer(name, s, to)
}
