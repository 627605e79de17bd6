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
	"sync"
	"time"

	"github.com/spf13/cobra"

	"paddock/internal/app"
	"paddock/internal/audit"
	"paddock/internal/auth"
	"paddock/internal/bindings/upstream"
	"paddock/internal/config"
	"paddock/internal/fault"
	"paddock/internal/serverstore"
)

func (p *program) serverCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "server",
		Short: "Add and look at other MCP servers, which programs call",
		Long: `Adds, lists and looks at other MCP servers, whose tools programs call as functions
of the module servers.NAME. Servers can also be defined in paddock.toml, as [servers.NAME].

What is added here is kept in the state folder, with variables and headers
encrypted. A paddock that runs already has it when it starts the next time.`,
	}
	c.AddCommand(p.serverAddCommand(), p.serverListCommand(), p.serverRemoveCommand(), p.serverToolsCommand(), p.serverLoginCommand(), p.serverImportCommand(), p.serverAcceptCommand())
	return c
}

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

func (p *program) serverAddCommand() *cobra.Command {
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
		RunE: func(c *cobra.Command, args []string) error { return p.addServer(c, args, f) },
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

func (p *program) addServer(c *cobra.Command, args []string, f addFlags) error {
	s, err := f.server(c, args, p.stdin)
	if err != nil {
		return err
	}
	if err := p.loadServers(c); err != nil {
		return err
	}
	k, err := p.putServer(c.Context(), args[0], s, f.replace)
	if err != nil {
		return err
	}
	defer k.Close()
	if k.Err != nil {
		p.say("warning", "it cannot be used as it is: "+k.Err.Error())
	}
	if f.asJSON {
		return p.printJSON(shown(k))
	}
	_, err = fmt.Fprintln(p.stdout, k.Name)
	return err
}

// loadServers loads the configuration for a command about servers.
func (p *program) loadServers(c *cobra.Command) error {
	if err := p.load(c); err != nil {
		return err
	}
	return p.explainFolder(auth.CheckFolder(p.StateDir))
}

// explainFolder says which the state folder is, where it cannot be used.
func (p *program) explainFolder(err error) error {
	if err == nil {
		return nil
	}
	return p.explainTokens(err)
}

// putServer checks a server and adds it. One that refers to a variable that is not there
// is added: paddock may be started with it.
func (p *program) putServer(ctx context.Context, name string, s config.Server, replace bool) (*app.Server, error) {
	entries, err := p.AddedServers().List()
	if err != nil {
		return nil, err
	}
	if err := p.checkServer(name, s, entries); err != nil {
		return nil, err
	}
	if err := p.noteServer(ctx, audit.ServerAdd, name); err != nil {
		return nil, err
	}
	if err := p.AddedServers().Add(name, s, replace); err != nil {
		return nil, err
	}
	k := &app.Server{Name: name, Origin: app.Added, Written: s}
	k.Err = p.PrepareServer(k)
	return k, nil
}

// checkServer tells what is wrong with a server that is to be added to others.
func (p *program) checkServer(name string, s config.Server, to []serverstore.Entry) error {
	if err := config.CheckServerName(name); err != nil {
		return fault.Of(err).WithCause(errUsage)
	}
	return p.CheckNewServer(name, s, to)
}

// noteServer records what is done with a server, before it is done.
func (p *program) noteServer(ctx context.Context, action, target string) error {
	log := p.OpenAudit()
	err := log.Write(ctx, audit.Record{Action: action, Principal: auth.Local, Target: target, Outcome: audit.Success})
	return errors.Join(err, log.Close())
}

func (p *program) serverRemoveCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "rm NAME", Aliases: []string{"remove"}, Short: "Remove a server that was added, with its tokens",
		Long: `Removes a server that was added, and the tokens of a login to it. Servers of
paddock.toml are removed there.

Exit codes: 0 done, 1 failed or no such server, 2 wrong usage.`,
		Args: count(1, 1, "the name of a server"),
		RunE: func(c *cobra.Command, args []string) error { return p.removeServer(c, args[0], asJSON) },
	}
	jsonFlag(c, &asJSON)
	return c
}

func (p *program) removeServer(c *cobra.Command, name string, asJSON bool) error {
	if err := p.loadServers(c); err != nil {
		return err
	}
	entries, err := p.AddedServers().List()
	if err != nil {
		return err
	}
	known := false
	for _, e := range entries {
		known = known || e.Name == name
	}
	if _, ok := p.Config.Servers[name]; ok && !known {
		return fault.New(fault.Conflict, "the server %q is defined in %s", name, p.Config.Origin("servers."+name)).WithHint("remove it there")
	}
	if known {
		if err := p.noteServer(c.Context(), audit.ServerRemove, name); err != nil {
			return err
		}
	}
	if err := p.AddedServers().Remove(name); err != nil {
		return err
	}
	if _, ok := p.Config.Servers[name]; !ok { // its tokens would be another's
		if err := p.TokenFiles().Save(c.Context(), app.TokenKey(name), nil); err != nil {
			return err
		}
	}
	if asJSON {
		return p.printJSON(map[string]any{"removed": name})
	}
	_, err = fmt.Fprintln(p.stdout, name)
	return err
}

// serverJSON is a server as results show it.
type serverJSON struct {
	Name      string              `json:"name"`
	Origin    string              `json:"origin"`
	Transport string              `json:"transport"`
	Command   string              `json:"command,omitempty"`
	Args      []string            `json:"args,omitempty"`
	Dir       string              `json:"cwd,omitempty"`
	URL       string              `json:"url,omitempty"`
	Env       []string            `json:"env,omitempty"`     // names alone
	Headers   []string            `json:"headers,omitempty"` // names alone
	Policy    map[string][]string `json:"tools,omitempty"`
	State     string              `json:"state,omitempty"` // usable, unusable; with a look: ok, login, refused, unreachable
	Detail    string              `json:"detail,omitempty"`
	Hint      string              `json:"hint,omitempty"`
	Tools     *int                `json:"tool_count,omitempty"`
	Protocol  string              `json:"protocol,omitempty"`
}

// The states of a server.
const (
	usable      = "usable" // nobody has looked
	unusable    = "unusable"
	answers     = "ok"
	wantsLogin  = "login"
	refuses     = "refused" // the token that it is sent
	unreachable = "unreachable"
)

func shown(k *app.Server) serverJSON {
	s := k.Written
	j := serverJSON{
		Name: k.Name, Origin: k.Origin, Transport: app.TransportOf(s), Command: s.Command, Args: s.Args, Dir: s.Dir, URL: config.ShownURL(s.URL),
		Env: slices.Sorted(maps.Keys(s.Env)), Headers: slices.Sorted(maps.Keys(s.Headers)), State: usable,
	}
	for name, patterns := range map[string][]string{"allow": s.Tools.Allow, "ask": s.Tools.Ask, "deny": s.Tools.Deny} {
		if len(patterns) > 0 {
			if j.Policy == nil {
				j.Policy = map[string][]string{}
			}
			j.Policy[name] = patterns
		}
	}
	if k.Err != nil {
		j.failed(unusable, k.Err)
	}
	return j
}

// failed puts in why a server does not work.
func (j *serverJSON) failed(state string, err error) {
	var messages []string
	for _, e := range fault.Apart(err) {
		f := fault.Of(e)
		messages = append(messages, f.Message)
		if j.Hint == "" {
			j.Hint = f.Hint
		}
	}
	j.State, j.Detail = state, strings.Join(messages, "; ")
}

func (p *program) serverListCommand() *cobra.Command {
	var asJSON, check bool
	c := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the servers, and where each comes from",
		Long: `Lists the servers of paddock.toml and those that were added. With --check each is
connected to, which starts those that are commands.

Exit codes: 0 done; with --check 1 if one does not answer; 1 failed, 2 wrong usage.`,
		Args: count(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error { return p.listServers(c, check, asJSON) },
	}
	c.Flags().BoolVar(&check, "check", false, "connect to each server, and say how it is")
	jsonFlag(c, &asJSON)
	return c
}

func (p *program) listServers(c *cobra.Command, check, asJSON bool) error {
	if err := p.load(c); err != nil {
		return err
	}
	all, err := p.Servers()
	defer func() {
		for _, k := range all {
			k.Close()
		}
	}()
	if err != nil {
		return err
	}
	list := make([]serverJSON, len(all))
	var work sync.WaitGroup
	for i, k := range all {
		list[i] = shown(k)
		if check && k.Err == nil {
			work.Go(func() { p.look(c.Context(), k, &list[i]) })
		}
	}
	work.Wait()
	if asJSON {
		err = p.printJSON(map[string]any{"servers": list})
	} else {
		err = p.printServers(list)
	}
	wrong := slices.ContainsFunc(list, func(j serverJSON) bool { return j.State != answers })
	if err == nil && check && wrong {
		err = exit(exitFailed)
	}
	return err
}

func (p *program) printServers(list []serverJSON) error {
	rows := [][]string{{"NAME", "TRANSPORT", "FROM", "STATE", "WHAT"}}
	for _, j := range list {
		what, state := j.URL, j.State
		if what == "" {
			what = strings.Join(append([]string{j.Command}, j.Args...), " ")
		}
		if j.Tools != nil {
			state = fmt.Sprintf("%s (%d tools)", state, *j.Tools)
		}
		rows = append(rows, []string{j.Name, j.Transport, j.Origin, state, plain(what)})
		if j.Detail != "" {
			rows = append(rows, []string{"", "", "", "", "→ " + plain(j.Detail)})
		}
		if j.Hint != "" {
			rows = append(rows, []string{"", "", "", "", "→ " + plain(j.Hint)})
		}
	}
	return p.printTable(rows)
}

// lookTime bounds a look at a server: a program may have to be fetched first.
const lookTime = 60 * time.Second

// look connects to a server and says how it is.
func (p *program) look(ctx context.Context, k *app.Server, j *serverJSON) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	conn, err := p.Dial(ctx, k)
	if err == nil {
		defer conn.Close()
		tools, listed := conn.Tools(ctx)
		if err = listed; err == nil {
			n := len(tools)
			j.State, j.Tools, j.Protocol = answers, &n, conn.Info().Protocol
			return
		}
	}
	if upstream.ReasonOf(err) == upstream.Unauthorized {
		j.failed(wantsLogin, err)
		if j.Hint = "paddock server login " + k.Name; k.Login == nil {
			j.State, j.Hint = refuses, "it does not take what its Authorization header has"
		}
		return
	}
	j.failed(unreachable, err)
	if j.Hint == "" {
		j.Hint = itSaid(err)
	}
}

// itSaid is what a server's program wrote last before err, on one line; empty: nothing, or
// it is none.
func itSaid(err error) string {
	var up *upstream.Error
	if !errors.As(err, &up) || up.Stderr == "" {
		return ""
	}
	return "it said: " + strings.ReplaceAll(up.Stderr, "\n", "; ")
}
