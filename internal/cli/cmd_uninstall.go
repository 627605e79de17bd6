package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"paddock/internal/fault"
	"paddock/internal/uninstall"
	"paddock/internal/vault"
)

// uninstallCommand is paddock uninstall.
type uninstallCommand struct{ *cli }

// uninstallFlags are the flags of paddock uninstall.
type uninstallFlags struct{ state, yes, asJSON bool }

func (cmd uninstallCommand) command() *cobra.Command {
	var f uninstallFlags
	c := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove paddock from this machine",
		Long: `Lists what paddock has on this machine for this user: its entries in MCP clients'
configurations, the cache, the program. It asks, and removes it. Sessions, tokens,
secrets and the configuration are kept, unless --state is given. A program that npm,
pip, uv or dpkg has installed is theirs to remove: the command for that is printed.
Nothing is removed while a paddock works in the state folder.

Exit codes: 0 done, 1 failed or not confirmed, 2 wrong usage.`,
		Example: "  paddock uninstall\n  paddock uninstall --state --yes",
		Args:    count(0, 0, ""),
		RunE:    func(c *cobra.Command, _ []string) error { return cmd.uninstall(c, f) },
	}
	c.Flags().BoolVar(&f.state, "state", false, "remove sessions, tokens, secrets and the configuration, too")
	c.Flags().BoolVarP(&f.yes, "yes", "y", false, "remove it without asking")
	jsonFlag(c, &f.asJSON)
	return c
}

func (cmd uninstallCommand) uninstall(c *cobra.Command, f uninstallFlags) error {
	if f.asJSON && !f.yes {
		return usage("--json needs --yes: with it nothing is asked")
	}
	if err := cmd.findPlaces(c.Flags()); err != nil {
		return err
	}
	place, err := cmd.place()
	if err != nil {
		return err
	}
	items := uninstall.Find(place, f.state)
	if !f.asJSON {
		if err := cmd.listItems(items); err != nil {
			return err
		}
	}
	if uninstall.Running(cmd.StateDir) {
		return fault.New(fault.Conflict, "a paddock works in %s", plain(cmd.StateDir)).
			WithHint("end the MCP clients that started one, and paddock serve; then run this again")
	}
	if !slices.ContainsFunc(items, func(i uninstall.Item) bool { return i.Action == uninstall.Remove }) {
		return cmd.tellRemoved(items, f)
	}
	if !f.yes {
		if err := cmd.askRemoval(c.Context()); err != nil {
			return err
		}
	}
	var failed error
	for _, i := range items {
		if err := i.Remove(); err != nil {
			failed = errors.Join(failed, fmt.Errorf("removing %s: %w", i.What, err))
		}
	}
	if failed != nil {
		return failed
	}
	return cmd.tellRemoved(items, f)
}

// place is where this user's paddock keeps things.
func (cmd uninstallCommand) place() (uninstall.Place, error) {
	p := uninstall.Place{StateDir: cmd.StateDir, CacheDir: cmd.CacheDir, Clients: here(), Entry: defaultEntry}
	own, err := os.Executable()
	if err == nil {
		own, err = filepath.EvalSymlinks(own)
	}
	if err != nil {
		return p, fmt.Errorf("finding paddock's own file: %w", err)
	}
	p.Program = own
	if len(cmd.places.search) > 0 {
		p.ConfigFile = cmd.places.search[0]
	}
	kept, err := vault.Kept(cmd.StateDir)
	if err == nil && !strings.Contains(kept, vault.KeyFile) {
		p.Key = kept
	}
	return p, nil // a key file that cannot be read goes with its folder
}

func (cmd uninstallCommand) listItems(items []uninstall.Item) error {
	rows := [][]string{{"ACTION", "WHAT", "SIZE", "WHERE"}}
	for _, i := range items {
		size := "-"
		if i.Bytes > 0 {
			size = amount(i.Bytes)
		}
		rows = append(rows, []string{string(i.Action), i.What, size, plain(i.Path)})
	}
	return cmd.printTable(rows)
}

// askRemoval asks a person. An error is every answer but yes.
func (cmd uninstallCommand) askRemoval(ctx context.Context) error {
	if !person(cmd.stdin) {
		return fault.New(fault.Denied, "nothing is removed: there is no terminal to ask at").WithHint("give --yes")
	}
	yes, err := cmd.confirm(ctx, "Remove what the list says?")
	if err == nil && !yes {
		err = fault.New(fault.Denied, "nothing is removed")
	}
	return err
}

// tellRemoved says what was removed, and what is left to do.
func (cmd uninstallCommand) tellRemoved(items []uninstall.Item, f uninstallFlags) error {
	if f.asJSON {
		return cmd.printJSON(map[string]any{"items": items})
	}
	for _, i := range items {
		line := "removed " + i.What
		switch i.Action {
		case uninstall.Keep:
			line = "kept " + i.What + " in " + plain(i.Path) + " (" + i.Hint + ")"
		case uninstall.ByHand:
			line = "left to do: " + i.What + " in " + plain(i.Path) + ": " + plain(i.Hint)
		}
		if _, err := fmt.Fprintln(cmd.stdout, line); err != nil {
			return err
		}
	}
	return nil
}
