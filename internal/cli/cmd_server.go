package cli

import (
	"github.com/spf13/cobra"
)

// serverCommand is paddock server and its subcommands.
type serverCommand struct{ *cli }

func (cmd serverCommand) command() *cobra.Command {
	c := &cobra.Command{
		Use:   "server",
		Short: "Add and look at other MCP servers, which programs call",
		Long: `Adds, lists and looks at other MCP servers, whose tools programs call as functions
of the module servers.NAME. Servers can also be defined in paddock.toml, as [servers.NAME].

What is added here is kept in the state folder, with variables and headers
encrypted. A paddock that runs already has it when it starts the next time.`,
	}
	c.AddCommand(cmd.addCommand(), cmd.listCommand(), cmd.removeCommand(), cmd.toolsCommand(), cmd.loginCommand(), cmd.importCommand(), cmd.acceptCommand())
	return c
}
