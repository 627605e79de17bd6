package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"paddock/internal/app"
	"paddock/internal/config"
	"paddock/internal/fault"
	"paddock/internal/serverstore"
	"paddock/internal/setup"
)

func (cmd serverCommand) importCommand() *cobra.Command {
	var dry, replace, asJSON bool
	var only []string
	c := &cobra.Command{
		Use: "import [CLIENT|FILE]", Short: "Add the servers that an MCP client has",
		Long: fmt.Sprintf(`Reads the servers of an MCP client, and adds them here: %s,
or any file with mcpServers. Without an argument all of these clients are looked at.
Of a project only a file that is named is read, such as ./.mcp.json: its servers are
commands that whoever made the project chose.
What the client starts paddock itself with is left out, and so is what only the
client can fill in. The client's own file stays as it is.

Exit codes: 0 done, also where nothing was found; 1 failed, 2 wrong usage.`, wrapped(setup.Readable(), 84)),
		Example: "  paddock server import --dry-run\n  paddock server import cursor --only github,files",
		Args:    count(0, 1, ""),
		RunE: func(c *cobra.Command, args []string) error {
			return cmd.importServers(c, args, &importing{dry: dry, replace: replace, only: only}, asJSON)
		},
	}
	c.Flags().BoolVar(&dry, "dry-run", false, "show what would be added, and add nothing")
	c.Flags().BoolVar(&replace, "replace", false, "put them in the place of those of the same names")
	c.Flags().StringSliceVar(&only, "only", nil, "add only the servers of these `NAMES`")
	jsonFlag(c, &asJSON)
	return c
}

// importing is how servers are taken over.
type importing struct {
	dry, replace bool
	only         []string
	would        []serverstore.Entry // what a dry run would have added by now
}

// importJSON is what was done with a server that was found.
type importJSON struct {
	Name   string `json:"name"`   // here
	Client string `json:"client"` // empty: a file
	File   string `json:"file"`
	What   string `json:"what"`
	Done   string `json:"done"` // added, would add, skipped
	Reason string `json:"reason,omitempty"`
}

// What is done with a server that was found.
const (
	wasImported = "added"
	wouldImport = "would add"
	wasSkipped  = "skipped"
)

func (cmd serverCommand) importServers(c *cobra.Command, args []string, how *importing, asJSON bool) error {
	if err := cmd.loadServers(c); err != nil {
		return err
	}
	sources, err := sourcesOf(args)
	if err != nil {
		return err
	}
	list, read := []importJSON{}, 0
	for _, source := range sources {
		all, err := source.Read()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil && len(args) == 0: // the others can be read all the same
			cmd.report(err)
			continue
		case err != nil:
			return err
		}
		read++
		for _, found := range all {
			if len(how.only) > 0 && !slices.Contains(how.only, nameFor(found.Name)) && !slices.Contains(how.only, found.Name) {
				continue
			}
			one, err := cmd.importServer(c.Context(), source, found, how)
			if err != nil {
				return err
			}
			list = append(list, one)
		}
	}
	if read == 0 && len(args) == 1 {
		return fault.New(fault.NotFound, "there is no file with servers of %s", args[0]).WithHint("it would be %s", filesOf(sources))
	}
	if asJSON {
		return cmd.printJSON(map[string]any{"servers": list})
	}
	return cmd.printImport(list)
}

// sourcesOf are the files that are meant.
func sourcesOf(args []string) ([]setup.Source, error) {
	if len(args) == 0 {
		return setup.Sources(outside(), ""), nil
	}
	if all := setup.Sources(outside(), args[0]); len(all) > 0 {
		return all, nil
	}
	if !strings.ContainsAny(args[0], `./\`) {
		return nil, usage("paddock knows no client %q", args[0]).WithHint("%s; a file is named with its folder or its ending", config.Suggest(args[0], setup.Readable()))
	}
	path, err := filepath.Abs(args[0])
	return []setup.Source{{File: path}}, err
}

// outside is this machine without the working folder: what a project's file names was
// written by whoever made the folder, and is taken over only from a file that is named.
func outside() setup.Place {
	at := here()
	at.Folder = ""
	return at
}

func filesOf(sources []setup.Source) string {
	var all []string
	for _, s := range sources {
		all = append(all, s.File)
	}
	return strings.Join(all, " or ")
}

// importServer takes one server over, or says why not. An error is one of adding.
func (cmd serverCommand) importServer(ctx context.Context, source setup.Source, found setup.Found, how *importing) (importJSON, error) {
	s := taking(found)
	one := importJSON{Name: nameFor(found.Name), Client: source.Client, File: source.File, What: app.WhatIs(s), Done: wasSkipped}
	switch {
	case one.Name == "":
		one.Reason = "its name has no letter that a name here may have"
	case cmd.isPaddock(found):
		one.Reason = "it is paddock itself"
	case found.Unusable != "":
		one.Reason = found.Unusable
	}
	if one.Reason != "" {
		return one, nil
	}
	if configured, ok := cmd.Config.Servers[one.Name]; ok {
		one.Reason = "there is one of that name in " + cmd.Config.Origin("servers."+one.Name)
		if same(configured, s) {
			one.Reason = "it is the same as that in " + cmd.Config.Origin("servers."+one.Name)
		}
		return one, nil
	}
	entries, err := cmd.AddedServers().List()
	if err != nil {
		return one, err
	}
	entries = append(entries, how.would...)
	for _, e := range entries {
		switch {
		case e.Name != one.Name:
		case e.Err == nil && same(e.Server, s):
			one.Reason = "it is here already"
			return one, nil
		case !how.replace:
			one.Reason = "there is another one of that name here; --replace puts this one in its place"
			return one, nil
		}
	}
	if how.dry {
		if err = cmd.checkServer(one.Name, s, entries); err == nil {
			how.would = append(how.would, serverstore.Entry{Name: one.Name, Server: s})
			one.Done = wouldImport
			return one, nil
		}
		return notImported(one, err)
	}
	k, err := cmd.putServer(ctx, one.Name, s, how.replace)
	if err != nil {
		return notImported(one, err)
	}
	defer k.Close()
	one.Done = wasImported
	if k.Err != nil {
		one.Reason = "it cannot be used as it is: " + strings.ReplaceAll(k.Err.Error(), "\n", "; ")
	}
	return one, nil
}

// notImported tells why a server is skipped, where that is its own fault.
func notImported(one importJSON, err error) (importJSON, error) {
	if kind := fault.KindOf(err); kind != fault.Invalid && kind != fault.Conflict {
		return one, err
	}
	one.Reason = fault.Of(err).Message
	return one, nil
}

// taking is a client's server as paddock has it.
func taking(f setup.Found) config.Server {
	s := config.Server{Command: f.Command, Args: f.Args, Env: f.Env, Dir: f.Dir, Timeout: f.Timeout}
	if f.URL != "" {
		s = config.Server{URL: f.URL, Headers: f.Headers, Transport: f.Transport, Timeout: f.Timeout}
	}
	s.Tools.Allow, s.Tools.Deny = f.Allow, f.Deny
	return s
}

func same(a, b config.Server) bool {
	for _, s := range []*config.Server{&a, &b} {
		for _, m := range []*map[string]string{&s.Env, &s.Headers} {
			if len(*m) == 0 {
				*m = nil
			}
		}
		for _, l := range []*[]string{&s.Args, &s.Tools.Allow, &s.Tools.Ask, &s.Tools.Deny, &s.OAuth.Scopes} {
			if len(*l) == 0 {
				*l = nil
			}
		}
	}
	return reflect.DeepEqual(a, b)
}

// isPaddock reports whether a client's server is this program.
func (cmd serverCommand) isPaddock(f setup.Found) bool {
	command := strings.TrimSuffix(strings.ToLower(f.Command[strings.LastIndexAny(f.Command, `/\`)+1:]), ".exe")
	return command == "paddock" || f.URL != "" && f.URL == servedURL(cmd.Config) ||
		f.Name == "paddock" && f.URL != "" && strings.Contains(f.URL, "127.0.0.1")
}

// odd is what a name here has not.
var odd = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// nameFor is a client's name for a server as a name here; empty: nothing is left of it.
func nameFor(name string) string {
	name = strings.Trim(odd.ReplaceAllString(name, "-"), "-")
	return strings.TrimRight(name[:min(len(name), 40)], "-")
}

func (cmd serverCommand) printImport(list []importJSON) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(cmd.stdout, "no servers were found")
		return err
	}
	rows := [][]string{{"NAME", "FROM", "DONE", "WHAT"}}
	for _, one := range list {
		from := one.Client
		if from == "" {
			from = one.File
		}
		rows = append(rows, []string{orDash(one.Name), plain(from), one.Done, plain(one.What)})
		if one.Reason != "" {
			rows = append(rows, []string{"", "", "", "→ " + plain(one.Reason)})
		}
	}
	return cmd.printTable(rows)
}
