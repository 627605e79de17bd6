package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"paddock/internal/config"
	"paddock/internal/fault"
	"paddock/internal/image"
	"paddock/internal/web"
)

// configCommand is paddock config.
type configCommand struct{ *cli }

func (cmd configCommand) command() *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "Write, check and show the configuration",
		Long: `Writes, checks and shows the configuration: paddock.toml in the current folder where
that is trusted (paddock trust), or the user's (or --config FILE), the environment
and flags. Each key of a section is also the variable PADDOCK_SECTION_KEY.`,
	}
	var checkJSON, showJSON bool
	check := &cobra.Command{
		Use: "check", Short: "Check the configuration",
		Long: `Checks the configuration and lists every mistake with where it stands, also what
only paddock serve would refuse: an address without TLS, or a file that is not
there. Nothing is made or started.

Exit codes: 0 it is right, 1 it has mistakes, 2 wrong usage.`,
		Args: count(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error { return cmd.checkConfig(c, checkJSON) },
	}
	show := &cobra.Command{
		Use: "show", Short: "Show every key with its value and where that comes from",
		Long: `Shows every key as paddock.toml has it, with where its value comes from: the
default, a line of the file, a variable or a flag. Of servers only what was set is
shown, and no secrets are. With --json also what each key decides and accepts.

Exit codes: 0 done, 1 the configuration has mistakes, 2 wrong usage.`,
		Args: count(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error { return cmd.showConfig(c, showJSON) },
	}
	jsonFlag(check, &checkJSON)
	jsonFlag(show, &showJSON)
	c.AddCommand(check, show, cmd.initCommand())
	return c
}

func (cmd configCommand) checkConfig(c *cobra.Command, asJSON bool) error {
	err := cmd.load(c)
	if err == nil {
		err = cmd.checkServe()
	}
	switch {
	case cmd.Config == nil:
		return err
	case err != nil && asJSON:
		return cmd.printMistakes(err)
	case err != nil:
		return err
	}
	cmd.warnOfSecrets()
	if asJSON {
		return cmd.printJSON(cmd.withIgnored(map[string]any{"ok": true, "file": cmd.Config.File}))
	}
	_, err = fmt.Fprintln(cmd.stdout, cmd.aboutConfig())
	return err
}

// checkServe finds what paddock serve would refuse to start with, and references
// that are none. Nothing is made or opened for it.
func (cmd configCommand) checkServe() error {
	wc, _, err := cmd.WebConfig(false)
	if err == nil {
		_, err = web.New(wc)
	}
	if err == nil {
		err = cmd.CheckLimits()
	}
	return errors.Join(err, checkImages(cmd.Config))
}

// mistakeJSON is one mistake in the configuration.
type mistakeJSON struct {
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// printMistakes prints what is wrong as JSON, and gives it back to be reported.
func (cmd configCommand) printMistakes(err error) error {
	all := []mistakeJSON{}
	for _, e := range fault.Apart(err) {
		one := mistakeJSON{Message: e.Error()}
		if f := fault.Of(e); f.Kind != fault.Internal {
			one = mistakeJSON{Message: f.Message, Hint: f.Hint}
		}
		all = append(all, one)
	}
	return errors.Join(err, cmd.printJSON(cmd.withIgnored(map[string]any{"ok": false, "file": cmd.Config.File, "mistakes": all})))
}

// withIgnored adds to a result the working folder's file, where that is not read.
func (cmd configCommand) withIgnored(result map[string]any) map[string]any {
	if cmd.Config.Ignored != "" {
		result["ignored"] = cmd.Config.Ignored
	}
	return result
}

// keyJSON is a key with all that the table knows.
type keyJSON struct {
	config.Value
	Doc       string   `json:"doc"`
	Accepts   string   `json:"accepts"`
	Variables []string `json:"variables"`
	Flag      string   `json:"flag,omitempty"`
}

func (cmd configCommand) showConfig(c *cobra.Command, asJSON bool) error {
	if err := cmd.load(c); err != nil {
		if asJSON && cmd.Config != nil {
			return cmd.printMistakes(err)
		}
		return err
	}
	values := cmd.Config.Values()
	if asJSON {
		all := []keyJSON{}
		for i, k := range config.Keys() {
			all = append(all, keyJSON{Value: values[i], Doc: k.Doc, Accepts: k.Accepts, Variables: k.Vars(), Flag: k.Flag})
		}
		for _, v := range values[len(all):] {
			doc, accepts := config.DescribeServer(v.Key)
			all = append(all, keyJSON{Value: v, Doc: doc, Accepts: accepts, Variables: []string{}})
		}
		return cmd.printJSON(cmd.withIgnored(map[string]any{"file": cmd.Config.File, "keys": all}))
	}
	section := ""
	var rows [][]string
	for _, v := range values {
		if own := v.Section(); own != section {
			if section != "" {
				rows = append(rows, nil)
			}
			section = own
			rows = append(rows, []string{"[" + section + "]"})
		}
		for _, line := range v.Lines() {
			rows = append(rows, []string{line, "# " + v.Origin})
		}
	}
	return cmd.printTable(rows)
}

// checkImages finds references in the configuration that are none.
func checkImages(c *config.Config) error {
	var mistakes []error
	check := func(key, ref string) {
		if _, named := c.Images[ref]; ref == image.Host || key == "sandbox.image" && named {
			return
		}
		if err := image.CheckReference(ref); err != nil {
			f := fault.Of(err)
			mistakes = append(mistakes, fault.New(fault.Invalid, "%s: %s: %s", c.Origin(key), key, f.Message).WithHint("%s", f.Hint))
		}
	}
	check("sandbox.image", c.Sandbox.Image)
	for _, name := range slices.Sorted(maps.Keys(c.Images)) {
		check("images", c.Images[name])
	}
	return errors.Join(mistakes...)
}
