package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"paddock/internal/config"
	"paddock/internal/session"
)

// completionCommand is paddock completion.
type completionCommand struct{ *cli }

// shells are those that paddock completion writes a script for.
var shells = []string{"bash", "zsh", "fish", "powershell"}

func (cmd completionCommand) command() *cobra.Command {
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the script by which a shell completes paddock's commands",
		Long: `Prints a script for bash, zsh, fish or powershell. With it the shell completes commands
and flags, and also the ids and names of sessions, languages and isolations.

Exit codes: 0 done, 2 wrong usage.`,
		Example: `  paddock completion bash > ~/.local/share/bash-completion/completions/paddock
  paddock completion zsh > "${fpath[1]}/_paddock"
  paddock completion fish > ~/.config/fish/completions/paddock.fish`,
		Args:      count(1, 1, "the name of a shell: "+strings.Join(shells, ", ")),
		ValidArgs: shells,
		RunE: func(c *cobra.Command, args []string) error {
			switch root := c.Root(); args[0] {
			case "bash":
				return root.GenBashCompletionV2(cmd.stdout, true)
			case "zsh":
				return root.GenZshCompletion(cmd.stdout)
			case "fish":
				return root.GenFishCompletion(cmd.stdout, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(cmd.stdout)
			}
			return usage("there is no script for the shell %.100q", args[0]).WithHint("name one of %s", strings.Join(shells, ", "))
		},
	}
}

// choices are the values that flags of a name may have.
var choices = map[string][]string{
	"language":  {"python", "javascript", "typescript", "bash"},
	"isolation": {"wasm", "linux"},
	"log-level": {"debug", "info", "warn", "error"},
	"tools":     config.ToolSets,
}

// completeAll says what a shell can complete below c: the values of flags, and the sessions
// that arguments named ID mean.
func (cl *cli) completeAll(c *cobra.Command) {
	for name, values := range choices {
		if c.LocalNonPersistentFlags().Lookup(name) != nil {
			_ = c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
		}
	}
	if c.LocalNonPersistentFlags().Lookup("session") != nil {
		_ = c.RegisterFlagCompletionFunc("session", cl.completeSession) // it is there
	}
	if words := strings.Fields(c.Use); len(words) > 1 && strings.HasPrefix(words[1], "ID") && c.HasParent() && c.Parent().Name() == "session" {
		many := words[1] == "ID..."
		c.ValidArgsFunction = func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 && !many {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return cl.completeSession(c, args, begun)
		}
	}
	for _, sub := range c.Commands() {
		cl.completeAll(sub)
	}
}

// completeSession gives the ids and names of sessions that begin like this, and what they
// are.
func (cl *cli) completeSession(c *cobra.Command, given []string, begun string) (found []string, _ cobra.ShellCompDirective) {
	err := cl.withSessions(c, func(_ context.Context, m *session.Manager) error {
		all, err := m.List(session.Local)
		for _, i := range all {
			about := strings.TrimSpace(i.Settings.Language + ", " + plain(i.Settings.Name))
			for _, word := range []string{string(i.ID), i.Settings.Name} {
				if word != "" && strings.HasPrefix(word, begun) && !slices.Contains(given, word) && word == plain(word) {
					found = append(found, word+"\t"+about)
				}
			}
		}
		return err
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}
