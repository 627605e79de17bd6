package cli

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"paddock/internal/audit"
	"paddock/internal/auth"
	"paddock/internal/config"
	"paddock/internal/fault"
	"paddock/internal/privatefile"
)

// tokenCommand is paddock token and its subcommands.
type tokenCommand struct{ *cli }

func (cmd tokenCommand) command() *cobra.Command {
	c := &cobra.Command{
		Use:   "token",
		Short: "Make, list and revoke the tokens of HTTP clients",
		Long: `Makes, lists and revokes the bearer tokens that clients of paddock serve send.
Only their digests are kept. A running server hears of a change at once.`,
	}
	c.AddCommand(cmd.createCommand(), cmd.listCommand(), cmd.revokeCommand())
	return c
}

func (cmd tokenCommand) createCommand() *cobra.Command {
	var asJSON, approve, e2b bool
	var tools, namespaces, expires string
	c := &cobra.Command{
		Use: "create NAME", Short: "Make a token and print it, once",
		Long: `Makes a token and prints it on stdout, alone. It is not kept: what is lost has
to be made again. Each token has sessions of its own, which no other reaches.

Exit codes: 0 done, 1 failed or there is one of that name, 2 wrong usage.`,
		Example: `  paddock token create laptop
  paddock token create ci --tools core --expires 30d > ci.token
  export E2B_API_KEY=$(paddock token create agents --e2b)`,
		Args: count(1, 1, "the name of a token"),
		RunE: func(c *cobra.Command, args []string) error {
			t := auth.Token{Name: args[0], Owner: auth.Local}
			var err error
			if c.Flags().Changed("tools") {
				if t.Tools, err = toolSets(tools); err != nil {
					return err
				}
			}
			if approve {
				t.Tools = append(t.Tools, config.Approve)
			}
			if c.Flags().Changed("namespaces") {
				if t.Namespaces, err = namespaceNames(namespaces); err != nil {
					return err
				}
			}
			if c.Flags().Changed("expires") {
				life, err := lifetime(expires)
				if err != nil {
					return err
				}
				t.Expires = time.Now().Add(life).Truncate(time.Second)
			}
			return cmd.createToken(c, t, e2b, asJSON)
		},
	}
	c.Flags().StringVar(&tools, "tools", "", "let it use only these `SETS` of tools, with commas: "+strings.Join(config.ToolSets, ", "))
	c.Flags().StringVar(&namespaces, "namespaces", "", "let it use sandboxes only in the namespaces of these `NAMES`, with commas")
	c.Flags().BoolVar(&approve, "approve", false, "let it allow and deny what programs of all principals wait for; without --tools it can do nothing else")
	c.Flags().BoolVar(&e2b, "e2b", false, "make it an API key as E2B's clients take it, for E2B_API_KEY")
	c.Flags().StringVar(&expires, "expires", "", "have it end after this `TIME`, such as 12h, 30d or 2w; without, it does not end")
	jsonFlag(c, &asJSON)
	return c
}

func (cmd tokenCommand) listCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the tokens",
		Long: `Lists the tokens in the order of their making, with those that ended in the
last 30 days. When one was used is known to the hour.

Exit codes: 0 done, 1 failed, 2 wrong usage.`,
		Args: count(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error { return cmd.listTokens(c, asJSON) },
	}
	jsonFlag(c, &asJSON)
	return c
}

func (cmd tokenCommand) revokeCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "revoke NAME|ID", Short: "End a token, at once and for good",
		Long: `Ends a token: it is refused from the next request on. Its sessions
stay until they expire. Prints the token's id.

Exit codes: 0 done, 1 failed, no such token or revoked already, 2 wrong usage.`,
		Example: "  paddock token revoke ci",
		Args:    count(1, 1, "the name or id of a token"),
		RunE:    func(c *cobra.Command, args []string) error { return cmd.revokeToken(c, args[0], asJSON) },
	}
	jsonFlag(c, &asJSON)
	return c
}

// tokens gives the tokens of the state folder.
func (cmd tokenCommand) tokens(c *cobra.Command) (*auth.Tokens, error) {
	if err := cmd.load(c); err != nil {
		return nil, err
	}
	if err := privatefile.CheckFolder(cmd.StateDir); err != nil {
		return nil, cmd.explainTokens(err)
	}
	return auth.OpenTokens(cmd.StateDir), nil
}

// tokenJSON is a token as results show it.
type tokenJSON struct {
	auth.Token
	State string `json:"state"` // valid, expired, revoked
	Text  string `json:"token,omitempty"`
}

func tokenOf(t auth.Token) tokenJSON {
	state := "valid"
	switch {
	case t.Valid(time.Now()):
	case t.Revoked.IsZero():
		state = "expired"
	default:
		state = "revoked"
	}
	return tokenJSON{Token: t, State: state}
}

func (cmd tokenCommand) createToken(c *cobra.Command, t auth.Token, e2b, asJSON bool) error {
	tokens, err := cmd.tokens(c)
	if err != nil {
		return err
	}
	create := tokens.Create
	if e2b {
		create = tokens.CreateForE2B
	}
	text, made, err := create(t)
	if fault.KindOf(err) == fault.Invalid { // it is only the name: the rest was checked
		return fault.Of(err).WithCause(errUsage).WithHint("such as laptop or ci.2")
	}
	if err != nil {
		return cmd.explainTokens(err)
	}
	if err := cmd.recordAction(c.Context(), audit.TokenCreate, made.ID); err != nil {
		_, undone := tokens.Revoke(made.ID)
		return errors.Join(err, undone)
	}
	if asJSON {
		result := tokenOf(made)
		result.Text = text
		return cmd.printJSON(result)
	}
	ends := "does not expire"
	if !made.Expires.IsZero() {
		ends = "expires at " + moment(made.Expires)
	}
	cmd.say("token", fmt.Sprintf("%s (%s) %s; keep it now: it is not shown again", made.Name, made.ID, ends))
	_, err = fmt.Fprintln(cmd.stdout, text)
	return err
}

func (cmd tokenCommand) listTokens(c *cobra.Command, asJSON bool) error {
	tokens, err := cmd.tokens(c)
	if err != nil {
		return err
	}
	all, err := tokens.List()
	if err != nil {
		return cmd.explainTokens(err)
	}
	list := []tokenJSON{}
	rows := [][]string{{"ID", "NAME", "STATE", "TOOLS", "NAMESPACES", "CREATED", "EXPIRES", "LAST USED"}}
	for _, t := range all {
		one := tokenOf(t)
		list = append(list, one)
		rows = append(rows, []string{
			t.ID, plain(t.Name), one.State, orAll(t.Tools), orAll(t.Namespaces), moment(t.Created), moment(t.Expires), moment(t.LastUsed),
		})
	}
	return cmd.printList(asJSON, "tokens", list, rows)
}

func orAll(names []string) string {
	if names == nil {
		return "all"
	}
	return orDash(strings.Join(names, ","))
}

func (cmd tokenCommand) revokeToken(c *cobra.Command, which string, asJSON bool) error {
	tokens, err := cmd.tokens(c)
	if err != nil {
		return err
	}
	revoked, err := tokens.Revoke(which)
	if err != nil {
		return cmd.explainTokens(err)
	}
	// That it was not recorded gives the token no life again.
	if err := cmd.recordAction(c.Context(), audit.TokenRevoke, revoked.ID); err != nil {
		cmd.say("warning", "the token is revoked, and that is not recorded")
		return err
	}
	if asJSON {
		return cmd.printJSON(tokenOf(revoked))
	}
	_, err = fmt.Fprintln(cmd.stdout, revoked.ID)
	return err
}

// toolSets reads the names of tool sets; none is none at all.
func toolSets(s string) ([]string, error) {
	return names(s, "tools", func(set string) error {
		if slices.Contains(config.ToolSets, set) {
			return nil
		}
		return usage("flag --tools: there is no set %q", set).WithHint("%s", config.Suggest(set, config.ToolSets))
	})
}

var namespacePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)

func namespaceNames(s string) ([]string, error) {
	return names(s, "namespaces", func(name string) error {
		if namespacePattern.MatchString(name) {
			return nil
		}
		return usage("flag --namespaces: %q is not a namespace's name", name).
			WithHint("it has 1 to 63 letters, digits, - and _, and begins with a letter or digit")
	})
}

// names reads the words of a flag, each once.
func names(s, flag string, check func(string) error) ([]string, error) {
	words := []string{}
	for _, word := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' }) {
		if err := check(word); err != nil {
			return nil, err
		}
		if slices.Contains(words, word) {
			return nil, usage("flag --%s: %q is there twice", flag, word)
		}
		words = append(words, word)
	}
	if len(words) == 0 {
		return nil, usage("flag --%s names nothing", flag).WithHint("leave it out to let the token use all")
	}
	return words, nil
}

// mostLife is the longest that a token with an end lasts: what ends later may
// as well not end.
const mostLife = 10 * 365 * 24 * time.Hour

var lifePattern = regexp.MustCompile(`^([0-9]{1,6})([mhdw])$`)

// lifetime reads how long a token lasts: 30m, 12h, 30d, 2w.
func lifetime(s string) (time.Duration, error) {
	bad := usage("flag --expires: %q is not a time such as 12h, 30d or 2w", s).WithHint("from 1m to 3650d; without --expires it does not end")
	m := lifePattern.FindStringSubmatch(s)
	if m == nil {
		return 0, bad
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return 0, bad
	}
	unit := map[string]time.Duration{"m": time.Minute, "h": time.Hour, "d": 24 * time.Hour, "w": 7 * 24 * time.Hour}[m[2]]
	life := time.Duration(n) * unit
	if life < time.Minute || life > mostLife {
		return 0, fault.New(fault.Invalid, "flag --expires: %s is not between 1m and 3650d", s).WithCause(errUsage)
	}
	return life, nil
}
