package cli

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"paddock/internal/config"
	"paddock/internal/fault"
	"paddock/internal/web"
)

func (p *program) configCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "Check and show the configuration",
		Long: `Checks and shows the configuration: paddock.toml in the current folder where
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
		RunE: func(c *cobra.Command, _ []string) error { return p.checkConfig(c, checkJSON) },
	}
	show := &cobra.Command{
		Use: "show", Short: "Show every key with its value and where that comes from",
		Long: `Shows every key as paddock.toml has it, with where its value comes from: the
default, a line of the file, a variable or a flag. Of servers only what was set is
shown, and no secrets are. With --json also what each key decides and accepts.

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
	err := p.load(c)
	if err == nil {
		err = p.checkServe()
	}
	switch {
	case p.Config == nil:
		return err
	case err != nil && asJSON:
		return p.printMistakes(err)
	case err != nil:
		return err
	}
	p.warnOfSecrets()
	if asJSON {
		return p.printJSON(p.withIgnored(map[string]any{"ok": true, "file": p.Config.File}))
	}
	_, err = fmt.Fprintln(p.stdout, p.aboutConfig())
	return err
}

// checkServe finds what paddock serve would refuse to start with, and references
// that are none. Nothing is made or opened for it.
func (p *program) checkServe() error {
	wc, _, err := p.WebConfig(false)
	if err == nil {
		_, err = web.New(wc)
	}
	if err == nil {
		err = p.CheckLimits()
	}
	return errors.Join(err, checkImages(p.Config))
}

// mistakeJSON is one mistake in the configuration.
type mistakeJSON struct {
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// printMistakes prints what is wrong as JSON, and gives it back to be reported.
func (p *program) printMistakes(err error) error {
	all := []mistakeJSON{}
	for _, e := range fault.Apart(err) {
		one := mistakeJSON{Message: e.Error()}
		if f := fault.Of(e); f.Kind != fault.Internal {
			one = mistakeJSON{Message: f.Message, Hint: f.Hint}
		}
		all = append(all, one)
	}
	return errors.Join(err, p.printJSON(p.withIgnored(map[string]any{"ok": false, "file": p.Config.File, "mistakes": all})))
}

// warnOfSecrets says when every user of this machine can read a secret in the
// configuration.
func (p *program) warnOfSecrets() {
	file := p.Config.File
	if file == "" || runtime.GOOS == "windows" {
		return
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode()&0o004 == 0 {
		return
	}
	keys := []string{"transport_http.auth_token", "registries.credentials"}
	for name, s := range p.Config.Servers {
		if s.HasSecrets() {
			keys = append(keys, "servers."+name)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		if strings.HasPrefix(p.Config.Origin(key), file+":") {
			p.say("warning", file+" has "+key+", and every user of this machine can read it")
			p.say("hint", "chmod 600 "+file)
		}
	}
}

// withIgnored adds to a result the working folder's file, where that is not read.
func (p *program) withIgnored(result map[string]any) map[string]any {
	if p.Config.Ignored != "" {
		result["ignored"] = p.Config.Ignored
	}
	return result
}

// aboutConfig says which configuration counts.
func (p *program) aboutConfig() string {
	if p.Config.File == "" {
		if p.Config.Ignored != "" {
			return "no paddock.toml is read; variables, flags and defaults count"
		}
		return "there is no paddock.toml; variables, flags and defaults count"
	}
	return p.Config.File + " is right"
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
		if asJSON && p.Config != nil {
			return p.printMistakes(err)
		}
		return err
	}
	values := p.Config.Values()
	if asJSON {
		all := []keyJSON{}
		for i, k := range config.Keys() {
			all = append(all, keyJSON{Value: values[i], Doc: k.Doc, Accepts: k.Accepts, Variables: k.Vars(), Flag: k.Flag})
		}
		for _, v := range values[len(all):] {
			doc, accepts := config.DescribeServer(v.Key)
			all = append(all, keyJSON{Value: v, Doc: doc, Accepts: accepts, Variables: []string{}})
		}
		return p.printJSON(p.withIgnored(map[string]any{"file": p.Config.File, "keys": all}))
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
	return p.printTable(rows)
}
