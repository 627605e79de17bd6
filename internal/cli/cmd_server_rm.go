package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"paddock/internal/app"
	"paddock/internal/audit"
	"paddock/internal/fault"
)

func (cmd serverCommand) removeCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "rm NAME", Aliases: []string{"remove"}, Short: "Remove a server that was added, with its tokens",
		Long: `Removes a server that was added, and the tokens of a login to it. Servers of
paddock.toml are removed there.

Exit codes: 0 done, 1 failed or no such server, 2 wrong usage.`,
		Args: count(1, 1, "the name of a server"),
		RunE: func(c *cobra.Command, args []string) error { return cmd.removeServer(c, args[0], asJSON) },
	}
	jsonFlag(c, &asJSON)
	return c
}

func (cmd serverCommand) removeServer(c *cobra.Command, name string, asJSON bool) error {
	if err := cmd.loadServers(c); err != nil {
		return err
	}
	entries, err := cmd.AddedServers().List()
	if err != nil {
		return err
	}
	known := false
	for _, e := range entries {
		known = known || e.Name == name
	}
	if _, ok := cmd.Config.Servers[name]; ok && !known {
		return fault.New(fault.Conflict, "the server %q is defined in %s", name, cmd.Config.Origin("servers."+name)).WithHint("remove it there")
	}
	if known {
		if err := cmd.recordAction(c.Context(), audit.ServerRemove, name); err != nil {
			return err
		}
	}
	if err := cmd.AddedServers().Remove(name); err != nil {
		return err
	}
	if _, ok := cmd.Config.Servers[name]; !ok { // its tokens would be another's
		if err := cmd.TokenFiles().Save(c.Context(), app.TokenKey(name), nil); err != nil {
			return err
		}
	}
	if asJSON {
		return cmd.printJSON(map[string]any{"removed": name})
	}
	_, err = fmt.Fprintln(cmd.stdout, name)
	return err
}
