package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"paddock/internal/cli/config"
)

func (p *program) configCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "Check and show the configuration",
		Long: `Checks and shows the configuration: paddock.toml in the current folder or the
user's (or --config FILE), the environment and flags. Each key of a section is
also the variable PADDOCK_SECTION_KEY.`,
	}
	var checkJSON, showJSON bool
	check := &cobra.Command{
		Use: "check", Short: "Check the configuration",
		Long: "Checks the configuration and lists every mistake with where it stands.\n\nExit codes: 0 it is right, 1 it has mistakes, 2 wrong usage.",
		Args: count(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error { return p.checkConfig(c, checkJSON) },
	}
	show := &cobra.Command{
		Use: "show", Short: "Show every key with its value and where that comes from",
		Long: `Shows every key as paddock.toml has it, with where its value comes from: the
default, a line of the file, a variable or a flag. With --json also what each
key decides and accepts.

Exit codes: 0 done, 1 the configuration has mistakes, 2 wrong usage.`,
		Args: count(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error { return p.showConfig(c, showJSON) },
	}
	jsonFlag(check, &checkJSON)
	jsonFlag(show, &showJSON)
	c.AddCommand(check, show)
	return c
}

func (p *program) checkConfig(c *cobra.Command, asJSON bool) error {
	if err := p.load(c); err != nil {
		return err
	}
	if asJSON {
		return p.printJSON(map[string]any{"ok": true, "file": p.config.File})
	}
	_, err := fmt.Fprintln(p.stdout, p.aboutConfig())
	return err
}

// aboutConfig says which configuration counts.
func (p *program) aboutConfig() string {
	if p.config.File == "" {
		return "there is no paddock.toml; variables, flags and defaults count"
	}
	return p.config.File + " is right"
}

// keyJSON is a key with all that the table knows.
type keyJSON struct {
	config.Value
	Doc       string   `json:"doc"`
	Accepts   string   `json:"accepts"`
	Variables []string `json:"variables"`
	Flag      string   `json:"flag,omitempty"`
}

func (p *program) showConfig(c *cobra.Command, asJSON bool) error {
	if err := p.load(c); err != nil {
		return err
	}
	values := p.config.Values()
	if asJSON {
		all := []keyJSON{}
		for i, k := range config.Keys() {
			all = append(all, keyJSON{Value: values[i], Doc: k.Doc, Accepts: k.Accepts, Variables: k.Vars(), Flag: k.Flag})
		}
		return p.printJSON(map[string]any{"file": p.config.File, "keys": all})
	}
	section := ""
	var rows [][]string
	for _, v := range values {
		own, name, _ := strings.Cut(v.Key, ".")
		if own != section {
			if section != "" {
				rows = append(rows, nil)
			}
			section = own
			rows = append(rows, []string{"[" + section + "]"})
		}
		rows = append(rows, []string{name + " = " + v.Literal, "# " + v.Origin})
	}
	return p.printTable(rows)
}
