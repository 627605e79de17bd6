package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"paddock/internal/config"
	"paddock/internal/fault"
)

func (cmd configCommand) initCommand() *cobra.Command {
	return &cobra.Command{
		Use: "init [FILE]", Short: "Write a configuration with every key in it",
		Long: `Writes a paddock.toml that has every key with its default and what it decides, each as a
comment: nothing changes until a line is made valid. FILE is the user's own where none is
named; it must not be there yet.

Exit codes: 0 done, 1 failed or the file is there, 2 wrong usage.`,
		Args: count(0, 1, ""),
		RunE: func(c *cobra.Command, args []string) error {
			if err := cmd.findPlaces(c.Flags()); err != nil {
				return err
			}
			file := cmd.places.config
			switch {
			case len(args) > 0:
				file = args[0]
			case file == "" && len(cmd.places.search) > 0:
				file = cmd.places.search[0]
			case file == "":
				return usage("the user has no folder for configurations").WithHint("name a FILE")
			}
			return cmd.initConfig(file)
		},
	}
}

func (cmd configCommand) initConfig(file string) error {
	text, err := commentedConfig()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fault.New(fault.Unavailable, "the folder of %s cannot be made", file).WithCause(err)
	}
	to, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fault.New(fault.Conflict, "%s is there already", file).WithHint("paddock config show tells what counts; name another FILE to have one to read")
	}
	if err != nil {
		return unwritable(file, err, nil)
	}
	_, err = to.WriteString(text)
	if err := errors.Join(err, to.Close()); err != nil {
		return unwritable(file, err, nil)
	}
	_, err = fmt.Fprintln(cmd.stdout, file)
	return err
}

// commentedConfig is a configuration that has every key as a comment.
func commentedConfig() (string, error) {
	defaults, err := config.Load(config.Source{})
	if err != nil {
		return "", fmt.Errorf("finding the defaults: %w", err)
	}
	var b strings.Builder
	b.WriteString("# paddock.toml: every key with its default. A line without its # counts.\n# paddock config check finds mistakes, paddock config show tells what counts.\n")
	values := defaults.Values()
	section := ""
	for i, k := range config.Keys() {
		if own := values[i].Section(); own != section {
			section = own
			fmt.Fprintf(&b, "\n[%s]\n", section)
		}
		fmt.Fprintf(&b, "# %s: %s\n", k.Doc, k.Accepts)
		for _, line := range values[i].Lines() {
			b.WriteString("# " + line + "\n")
		}
	}
	return b.String(), nil
}
