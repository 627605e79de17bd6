package cli

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"paddock/internal/app"
	"paddock/internal/auth"
	"paddock/internal/config"
	"paddock/internal/fault"
	"paddock/internal/mcpserver/transport"
	"paddock/internal/setup"
)

// setupCommand is paddock setup.
type setupCommand struct{ *cli }

// servedHere is --http without a URL: the paddock serve of this configuration.
const servedHere = "default"

// defaultEntry is what the entry is called without --name.
const defaultEntry = "paddock"

// hiddenToken stands where a token would be.
const hiddenToken = "<the token>"

// setupFlags are the flags of paddock setup.
type setupFlags struct {
	print, showToken, remove, asJSON bool
	http, scope, name, tokenEnv      string
}

// setupJSON is what paddock setup did.
type setupJSON struct {
	Client  string `json:"client"`
	File    string `json:"file,omitempty"` // a client that is set up by hand has none
	Name    string `json:"name"`
	Changed bool   `json:"changed"`
	// Installed is whether the client seems to be on this machine.
	Installed bool   `json:"installed"`
	Backup    string `json:"backup,omitempty"`
	Entry     string `json:"entry,omitempty"` // with --print alone
	Next      string `json:"next,omitempty"`
}

func (cmd setupCommand) command() *cobra.Command {
	var f setupFlags
	c := &cobra.Command{
		Use:   "setup [CLIENT]",
		Short: "Put paddock into an MCP client's configuration",
		Long: fmt.Sprintf(`Puts paddock into the configuration of an MCP client:
%s.
Without a client it looks which of them are on this machine and asks; where no person
can answer it lists them.

Only the entry of that name changes; other entries, comments and the layout
stay, and a copy of the file is kept beside it. The client starts paddock itself
(paddock mcp, with the --tools, --isolation, --net-allow, --config and --state-dir
given here), or with
--http connects to a paddock serve, with this machine's own token or with one
that the client finds in the variable --token-env.
The address names a session of the client's own (/s/CLIENT): each of its calls goes
on in that, whatever version of MCP it speaks. A client that keeps its servers in no
file is not changed: what to enter in it is printed.

Exit codes: 0 done or nothing to do, 1 failed, 2 wrong usage.`, wrapped(setup.Names(), 84)),
		Example: `  paddock setup
  paddock setup cursor
  paddock setup zed --isolation linux --net-allow api.example.com
  paddock setup vscode --http --print
  paddock setup codex --http https://paddock.example/mcp --token-env PADDOCK_TOKEN`,
		ValidArgs: setup.Names(),
		Args:      count(0, 2, ""),
		RunE:      func(c *cobra.Command, args []string) error { return cmd.setup(c, args, f) },
	}
	flags := c.Flags()
	flags.BoolVar(&f.print, "print", false, "print what would be written, and where")
	flags.BoolVar(&f.showToken, "show-token", false, "print the token too")
	flags.BoolVar(&f.remove, "remove", false, "take the entry out")
	flags.StringVar(&f.http, "http", "", "connect to the paddock serve at `URL`; without one, to that of this configuration")
	flags.Lookup("http").NoOptDefVal = servedHere
	flags.StringVar(&f.scope, "scope", string(setup.User), "whose configuration: the `user`'s or this project's")
	flags.StringVar(&f.name, "name", defaultEntry, "call the entry `NAME`")
	flags.StringVar(&f.tokenEnv, "token-env", "", "have the client take the token from the variable `NAME`")
	keyFlag(flags, "tools", "have the client start it with these `SETS` of tools, with commas: "+strings.Join(config.ToolSets, ", "))
	keyFlag(flags, "isolation", "have the client's programs run in this `KIND` of sandbox: wasm or linux")
	netFlag(flags)
	jsonFlag(c, &f.asJSON)
	return c
}

func (cmd setupCommand) setup(c *cobra.Command, args []string, f setupFlags) error {
	if err := f.check(c, args); err != nil {
		return err
	}
	if err := cmd.load(c); err != nil {
		return err
	}
	if len(args) == 0 {
		return cmd.choose(c, f)
	}
	return cmd.setupClient(c, setup.Find(args[0]), f)
}

// setupClient does it for one client.
func (cmd setupCommand) setupClient(c *cobra.Command, client *setup.Client, f setupFlags) error {
	if client.Manual() {
		return cmd.byHand(c, client, f)
	}
	file, err := client.File(here(), setup.Scope(f.scope))
	if err != nil {
		return err
	}
	did := setupJSON{Client: client.Name, File: file, Name: f.name}
	did.Installed = cmd.lookFor(client, f)
	server, err := cmd.serverFor(c, client, f)
	switch {
	case err != nil:
		return err
	case f.print && f.remove:
		did.Entry = "without " + f.name
		return cmd.printSetup(did, f)
	case f.print:
		return cmd.printEntry(client, server, did, f)
	}
	return cmd.updateClient(c.Context(), client, server, did, f)
}

// serverFor is what the client is to start or to connect to, but for the token.
func (cmd setupCommand) serverFor(c *cobra.Command, client *setup.Client, f setupFlags) (setup.Server, error) {
	s := setup.Server{Name: f.name, URL: f.http, TokenEnv: f.tokenEnv}
	var err error
	switch {
	case f.remove:
	case s.URL == "":
		if s.Command, err = ownPath(); err == nil {
			s.Args, err = mcpArgs(c)
		}
	default:
		if s.URL == servedHere {
			s.URL = servedURL(cmd.Config)
		}
		if err = client.Check(s); err == nil {
			err = checkURL(s, f.scope)
		}
		if err == nil && s.TokenEnv == "" && s.URL == servedURL(cmd.Config) {
			err = cmd.checkLocalToken()
		}
		s.URL = keptURL(s.URL, client.Name, f.name)
	}
	return s, err
}

// checkLocalToken refuses the token of this machine's user where the server of
// this configuration does.
func (cmd setupCommand) checkLocalToken() error {
	for _, key := range []string{"transport_http.auth_token", "auth.issuer"} {
		if cmd.Config.IsSet(key) {
			return fault.New(fault.Conflict, "%s is set (%s), and such a server does not accept this machine's own token", key, cmd.Config.Origin(key)).
				WithHint("--token-env NAME says in which variable the client finds a token; paddock token create makes one")
		}
	}
	return nil
}

// keptURL is the address at which a client keeps one session, whatever version of the
// protocol it speaks: in the newest no other thing says that calls belong together. Two
// entries of a client have a session each. A URL that names one already stays.
func keptURL(base, client, entry string) string {
	if strings.Contains(base, transport.KeptPath) || strings.ContainsAny(base, "?#") {
		return base
	}
	if entry != defaultEntry {
		client += "-" + entry
	}
	return strings.TrimSuffix(base, "/") + transport.KeptPath + client
}

// servedURL is where a client on this machine reaches the paddock serve of a
// configuration.
func servedURL(c *config.Config) string {
	if c.HTTP.PublicURL != "" {
		return strings.TrimSuffix(c.HTTP.PublicURL, "/") + c.HTTP.Path
	}
	u := url.URL{Scheme: "http", Path: c.HTTP.Path}
	if c.HTTP.TLSCert != "" {
		u.Scheme = "https"
	}
	host := c.HTTP.Host
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	u.Host = net.JoinHostPort(host, strconv.FormatInt(c.HTTP.Port, 10))
	return u.String()
}

var (
	entryName    = regexp.MustCompile(`^[A-Za-z0-9_-]{1,50}$`)
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// forStarted are the flags that say how the client starts paddock.
var forStarted = []string{"tools", "isolation", "net-allow"}

// check finds every mistake that can be seen in the command line itself. A second
// argument is the URL of --http.
func (f *setupFlags) check(c *cobra.Command, args []string) error {
	started := slices.IndexFunc(forStarted, func(name string) bool { return c.Flags().Changed(name) })
	var err *fault.Error
	switch {
	case len(args) > 0 && setup.Find(args[0]) == nil:
		err = usage("paddock knows no client %q", args[0]).WithHint("%s", config.Suggest(args[0], setup.Names()))
	case len(args) == 0 && (f.print || f.remove):
		err = usage("--print and --remove are for one client").WithHint("paddock setup CLIENT --remove")
	case len(args) == 2 && f.http != servedHere:
		err = usage("paddock setup takes no %q", args[1]).WithHint("paddock setup %s --http URL", args[0])
	case f.scope != string(setup.User) && f.scope != string(setup.Project):
		err = usage("there is no scope %q", f.scope).WithHint("it is user or project")
	case !entryName.MatchString(f.name):
		err = usage("the name %q cannot be an entry's", f.name).WithHint("a name has up to 50 letters, digits, - and _")
	case f.tokenEnv != "" && !variableName.MatchString(f.tokenEnv):
		err = usage("%q cannot be a variable's name", f.tokenEnv).WithHint("--token-env wants the name of the variable, not the token")
	case f.tokenEnv != "" && f.http == "":
		err = usage("--token-env is for --http").WithHint("a paddock that the client starts needs no token")
	case started >= 0 && f.http != "":
		err = usage("--%s is for a paddock that the client starts", forStarted[started]).WithHint("paddock serve --%s chooses for --http", forStarted[started])
	case f.remove && (f.http != "" || started >= 0):
		err = usage("--remove takes the whole entry out").WithHint("it goes without --http, --%s", strings.Join(forStarted, " and --"))
	}
	if err != nil {
		return err
	}
	if len(args) == 2 {
		f.http = args[1]
	}
	return nil
}

// checkURL makes sure that a token goes over no wire in the clear, that this
// machine's own stays here, and that none gets into a project's file.
func checkURL(s setup.Server, scope string) error {
	u, err := url.Parse(s.URL)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" {
		return usage("--http wants the whole URL of a paddock serve").WithHint("such as http://127.0.0.1:5555/mcp")
	}
	local := app.IsLoopback(u)
	switch {
	case !local && u.Scheme != "https":
		return fault.New(fault.Denied, "a token would go to %s in the clear", u.Host).WithHint("use https")
	case s.TokenEnv != "":
		return nil
	case !local:
		return usage("this machine's token is not for %s", u.Host).
			WithHint("--token-env NAME says in which variable the client finds one; paddock token create makes it there")
	case scope == string(setup.Project):
		return usage("a token does not belong into a project's file").
			WithHint("--token-env NAME says in which variable the client finds it")
	}
	return nil
}

// tokenFor puts the token that is printed into a server. Without --show-token the token is
// neither read nor made.
func (cmd setupCommand) tokenFor(server *setup.Server, f setupFlags) error {
	if server.URL == "" || server.TokenEnv != "" {
		return nil
	}
	server.Token = hiddenToken
	if !f.showToken {
		return nil
	}
	token, _, err := auth.LocalToken(cmd.StateDir)
	if err != nil {
		return cmd.explainTokens(err)
	}
	server.Token = token
	return nil
}

// printEntry prints what would be written.
func (cmd setupCommand) printEntry(client *setup.Client, server setup.Server, did setupJSON, f setupFlags) error {
	if err := cmd.tokenFor(&server, f); err != nil {
		return err
	}
	entry, err := client.Print(server)
	if err != nil {
		return err
	}
	did.Entry = entry
	return cmd.printSetup(did, f)
}

func (cmd setupCommand) printSetup(did setupJSON, f setupFlags) error {
	if f.asJSON {
		return cmd.printJSON(did)
	}
	_, err := fmt.Fprintf(cmd.stdout, "%s:\n\n%s\n", did.File, strings.TrimRight(did.Entry, "\n"))
	return err
}

// updateClient writes the configuration and says what to do next.
func (cmd setupCommand) updateClient(ctx context.Context, client *setup.Client, server setup.Server, did setupJSON, f setupFlags) error {
	mode := fs.FileMode(0o600)
	if f.scope == string(setup.Project) {
		mode = 0o644
	}
	change, err := setup.Update(did.File, mode, func(old []byte) ([]byte, error) {
		if f.remove {
			return client.Remove(old, server.Name)
		}
		if server.URL != "" && server.TokenEnv == "" {
			token, _, err := auth.LocalToken(cmd.StateDir)
			if err != nil {
				return nil, cmd.explainTokens(err)
			}
			server.Token = token
		}
		return client.Set(old, server)
	})
	if err != nil {
		return err
	}
	did.Changed, did.Backup = change.Changed, change.Backup
	if change.Changed {
		did.Next = client.Next[setup.Scope(f.scope)]
	}
	if server.Token != "" && change.Shared {
		cmd.say("warning", did.File+" has a token now, and other users of this machine may read it")
		cmd.say("hint", "chmod 600 "+did.File)
	}
	if server.Token != "" && app.RefusesToken(ctx, server.URL, server.Token) {
		cmd.say("warning", "the paddock that answers at "+server.URL+" refuses this token")
		cmd.say("hint", "its state folder is another one: say which with --state-dir, or have paddock token create make a token there and give its variable with --token-env")
	}
	if f.asJSON {
		return cmd.printJSON(did)
	}
	return cmd.tellSetup(client, server, did, f)
}

func (cmd setupCommand) tellSetup(client *setup.Client, server setup.Server, did setupJSON, f setupFlags) error {
	var lines []string
	switch {
	case !did.Changed && f.remove:
		lines = append(lines, fmt.Sprintf("nothing changed: %s has no entry %s in %s", client.Title, did.Name, did.File))
	case !did.Changed:
		lines = append(lines, fmt.Sprintf("nothing changed: %s has this entry already in %s", client.Title, did.File))
	case f.remove:
		lines = append(lines, fmt.Sprintf("%s has no entry %s any more in %s", client.Title, did.Name, did.File))
	default:
		lines = append(lines, fmt.Sprintf("%s has the entry %s now in %s", client.Title, did.Name, did.File))
	}
	if did.Backup != "" {
		lines = append(lines, "what it was is kept in "+did.Backup)
	}
	if did.Changed {
		if !f.remove && server.URL != "" {
			lines = append(lines, "next: paddock serve has to run at "+server.URL)
		}
		if !f.remove && server.TokenEnv != "" {
			lines = append(lines, fmt.Sprintf("next: %s has to be started with the token in %s", client.Title, server.TokenEnv))
		}
		lines = append(lines, "next: "+did.Next)
	}
	_, err := fmt.Fprintln(cmd.stdout, strings.Join(lines, "\n"))
	return err
}

// ownPath is this binary's path as it will be found after an update too: the
// one on the PATH if that is the same file, for it may be a link that moves.
func ownPath() (string, error) {
	own, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding paddock's own file: %w", err)
	}
	found, err := exec.LookPath("paddock")
	if err != nil { // also where it is the working folder's: that may be another one tomorrow
		return own, nil
	}
	if found, err = filepath.Abs(found); err != nil {
		return own, nil
	}
	a, errA := os.Stat(own)
	b, errB := os.Stat(found)
	if errA == nil && errB == nil && os.SameFile(a, b) {
		return found, nil
	}
	return own, nil
}

// mcpArgs are the arguments that the client starts paddock with. Files and
// folders are given whole: the client starts it elsewhere.
func mcpArgs(c *cobra.Command) ([]string, error) {
	args := []string{"mcp"}
	for _, name := range forStarted {
		if value := c.Flags().Lookup(name).Value.String(); value != "" {
			args = append(args, "--"+name, value)
		}
	}
	for _, name := range []string{"config", "state-dir", "cache-dir"} {
		value, err := c.Flags().GetString(name)
		if err != nil || value == "" {
			continue
		}
		if value, err = filepath.Abs(value); err != nil {
			return nil, fmt.Errorf("finding the current folder: %w", err)
		}
		args = append(args, "--"+name, value)
	}
	return args, nil
}
