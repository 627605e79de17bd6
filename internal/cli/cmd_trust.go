package cli

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"paddock/internal/audit"
	"paddock/internal/config"
	"paddock/internal/fault"
	"paddock/internal/privatefile"
	"paddock/internal/telemetry"
	"paddock/internal/trust"
)

// trustCommand is paddock trust and its subcommands.
type trustCommand struct{ *cli }

func (cmd trustCommand) command() *cobra.Command {
	var yes, asJSON, listJSON, removeJSON bool
	c := &cobra.Command{
		Use: "trust [FILE]", Short: "Have the paddock.toml of a working folder count",
		Long: `Shows the paddock.toml of the current folder, or FILE, with what it starts and
allows, and asks whether it may. Until then it is not read: whoever made the folder
wrote it. It counts where it is and as it is: when it changes, or is copied elsewhere,
it is ignored again. What --config or PADDOCK_CONFIG names counts without this.

Exit codes: 0 it is trusted, 1 it is not, 2 wrong usage.`,
		Example: "  paddock trust\n  paddock trust ~/project --yes\n  paddock trust ls",
		Args:    count(0, 1, ""),
		RunE:    func(c *cobra.Command, args []string) error { return cmd.trust(c, args, yes, asJSON) },
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "trust it without showing it and asking")
	ls := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the files that were trusted",
		Long: `Lists the files that were trusted, and whether they count: a file that is another
one now, or is gone, does not.

Exit codes: 0 done, 1 failed, 2 wrong usage.`,
		Args: count(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error { return cmd.listTrusted(c, listJSON) },
	}
	rm := &cobra.Command{
		Use: "rm [FILE]", Short: "Have a file count no more",
		Long: `Has the paddock.toml of the current folder, or FILE, count no more, also when it is
gone already. What runs with it goes on until it ends.

Exit codes: 0 done, 1 failed or it was not trusted, 2 wrong usage.`,
		Args: count(0, 1, ""),
		RunE: func(c *cobra.Command, args []string) error { return cmd.forgetTrusted(c, args, removeJSON) },
	}
	jsonFlag(c, &asJSON)
	jsonFlag(ls, &listJSON)
	jsonFlag(rm, &removeJSON)
	c.AddCommand(ls, rm)
	return c
}

// trustee is the file that is meant: that of the current folder, or of the one that is
// named.
func trustee(args []string) (string, error) {
	path := trust.Name
	if len(args) > 0 {
		path = args[0]
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			path = filepath.Join(path, trust.Name)
		}
	}
	if filepath.Base(path) != trust.Name {
		return "", usage("%q is not looked for: a working folder's file is called %s", path, trust.Name).WithHint("--config FILE reads any other one")
	}
	return path, nil
}

func (cmd trustCommand) trust(c *cobra.Command, args []string, yes, asJSON bool) error {
	path, err := trustee(args)
	if err == nil {
		err = cmd.findPlaces(c.Flags())
	}
	if err != nil {
		return err
	}
	text, err := config.ReadProject(path) // once: what is shown is what is trusted
	if err != nil {
		return err
	}
	place, err := trust.Place(path)
	if err != nil {
		return err
	}
	if err := ofOthers(path, place); err != nil {
		return err
	}
	would, err := config.Project(path, text)
	if err != nil {
		return err
	}
	switch trusted, err := cmd.trustedFiles().Trusts(path, text); {
	case err != nil:
		return err
	case !trusted && !yes:
		if err := cmd.askTrust(c.Context(), place, text, would); err != nil {
			return err
		}
	}
	// First, as for runs: what cannot be recorded does not happen.
	if err := cmd.noteTrust(c, audit.TrustGive, trust.Entry{Path: place, SHA256: trust.Digest(text)}); err != nil {
		return err
	}
	e, err := cmd.trustedFiles().Trust(path, text)
	if err != nil {
		return err
	}
	if asJSON {
		return cmd.printJSON(e)
	}
	_, err = fmt.Fprintf(cmd.stdout, "%s is trusted as it is now (SHA-256 %s)\n", plain(e.Path), e.SHA256)
	return err
}

// noteTrust records that a file counts, or does so no more. The user's own configuration
// says how the audit log is kept: no file says whether its own trust is recorded.
func (cmd trustCommand) noteTrust(c *cobra.Command, action string, e trust.Entry) error {
	var err error
	if cmd.Config, err = config.Load(config.Source{File: cmd.places.config, Search: cmd.places.search, Environ: os.Environ()}); err != nil {
		return err
	}
	cmd.Log = telemetry.NewLogger(cmd.stderr, cmd.Config.Logging.Level, cmd.Config.Logging.Structured)
	return cmd.recordAction(c.Context(), action, e.Path+" "+e.SHA256)
}

// askTrust shows a file to a person and asks. An error is every answer but yes.
func (cmd trustCommand) askTrust(ctx context.Context, place string, text []byte, would *config.Config) error {
	if !person(cmd.stdin) {
		return fault.New(fault.Denied, "%s is not trusted: there is no terminal to ask at", place).
			WithHint("read it, and give --yes")
	}
	fmt.Fprintf(cmd.stderr, "%s has %d bytes:\n\n%s\n\n", plain(place), len(text), indented(plainLines(strings.TrimRight(string(text), "\n"))))
	if all := effects(would); len(all) > 0 {
		fmt.Fprintf(cmd.stderr, "Where paddock is started in that folder, this file:\n%s\n\n", indented(strings.Join(all, "\n")))
	}
	yes, err := cmd.confirm(ctx, "Trust it as it is now?")
	if err == nil && !yes {
		err = fault.New(fault.Denied, "%s is not trusted, and is not read", place)
	}
	return err
}

// effects are what a file has happen on this machine, a line each: what it starts first.
func effects(c *config.Config) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(c.Servers)) {
		s := c.Servers[name]
		if s.Command == "" {
			all = append(all, fmt.Sprintf("connects to %s (servers.%s)", plain(s.URL), plain(name)))
			continue
		}
		line := "starts " + plain(fmt.Sprintf("%q", append([]string{s.Command}, s.Args...)))
		if len(s.Env) > 0 {
			line += ", with the variables " + plain(strings.Join(slices.Sorted(maps.Keys(s.Env)), ", "))
		}
		all = append(all, fmt.Sprintf("%s (servers.%s)", line, plain(name)))
	}
	for _, v := range c.Values() {
		what, telling := tellingKeys[v.Key]
		if telling && c.IsSet(v.Key) {
			all = append(all, fmt.Sprintf("%s: %s (%s)", what, plain(v.Literal), v.Key))
		}
	}
	return all
}

// tellingKeys are those that open something, and what they open.
var tellingKeys = map[string]string{
	"network.allow":             "lets programs reach",
	"secrets.allow":             "gives programs placeholders of the secrets",
	"sandbox.volumes":           "lets sandboxes have folders of this machine",
	"sandbox.image":             "runs programs in the image",
	"images":                    "names images",
	"tools.enabled":             "offers clients the tools",
	"mcp.allowlist":             "lets programs bind servers",
	"skills.allow":              "lets skills be fetched from",
	"packages.pypi.index":       "installs Python packages from",
	"packages.npm.index":        "installs npm packages from",
	"packages.files":            "lets files of packages come from",
	"packages.cert":             "believes the authorities in",
	"registries.insecure":       "speaks without TLS to registries at",
	"transport_http.host":       "has paddock serve listen at",
	"transport_http.auth_token": "lets clients in with a token",
	"telemetry.endpoint":        "sends traces and metrics to",
	"audit.mode":                "keeps the audit log",
	"approvals.ask_client":      "lets the client's user allow calls",
}

// ofOthers refuses a file that somebody else can change while it is looked at.
func ofOthers(path, place string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fault.New(fault.NotFound, "%s is gone", place)
	}
	if privatefile.OfAnother(info) {
		return fault.New(fault.Denied, "%s belongs to another user of this machine", place).
			WithHint("have your own copy of the folder, or name the file with --config each time")
	}
	return nil
}

// What became of files that were trusted.
const (
	stillCounts = "counts"
	hasChanged  = "changed"
	isGone      = "gone"
)

func (cmd trustCommand) listTrusted(c *cobra.Command, asJSON bool) (err error) {
	if err = cmd.findPlaces(c.Flags()); err != nil {
		return err
	}
	all, err := cmd.trustedFiles().List()
	if err != nil {
		return err
	}
	type entry struct {
		trust.Entry
		State string `json:"state"`
	}
	list, rows := []entry{}, [][]string{{"FILE", "STATE", "TRUSTED", "SHA-256"}}
	for _, e := range all {
		state := hasChanged
		text, err := config.ReadProject(e.Path)
		if fault.KindOf(err) == fault.NotFound {
			state = isGone
		} else if err == nil && trust.Digest(text) == e.SHA256 {
			state = stillCounts
		}
		list = append(list, entry{e, state})
		rows = append(rows, []string{plain(e.Path), state, moment(e.Trusted), e.SHA256})
	}
	return cmd.printList(asJSON, "files", list, rows)
}

func (cmd trustCommand) forgetTrusted(c *cobra.Command, args []string, asJSON bool) error {
	path, err := trustee(args)
	if err == nil {
		err = cmd.findPlaces(c.Flags())
	}
	if err != nil {
		return err
	}
	e, err := cmd.trustedFiles().Forget(path)
	if err != nil {
		return err
	}
	if err := cmd.noteTrust(c, audit.TrustTake, e); err != nil {
		return err
	}
	if asJSON {
		return cmd.printJSON(e)
	}
	_, err = fmt.Fprintf(cmd.stdout, "%s is not trusted any more\n", plain(e.Path))
	return err
}
