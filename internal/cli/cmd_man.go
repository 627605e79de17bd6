package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"paddock/internal/fault"
)

// manCommand is paddock man.
type manCommand struct{ *cli }

func (cmd manCommand) command() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "man [COMMAND...]",
		Short: "Print or write the manual pages",
		Long: `Prints the manual page of paddock, or of one of its commands, as man reads it. With
--dir it writes those of all commands into a folder.

Exit codes: 0 done, 1 failed or there is no such command, 2 wrong usage.`,
		Example: `  paddock man run | man -l -
  paddock man --dir ~/.local/share/man/man1`,
		RunE: func(c *cobra.Command, args []string) error {
			if dir != "" {
				return cmd.writePages(c.Root(), dir)
			}
			about, rest, err := c.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usage("there is no command %q", "paddock "+strings.Join(args, " ")).WithHint("paddock --help lists the commands")
			}
			_, err = fmt.Fprint(cmd.stdout, manPage(about))
			return err
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "write the pages of all commands into the folder `DIR`")
	return c
}

// writePages writes a page for each command.
func (cmd manCommand) writePages(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fault.New(fault.Unavailable, "the folder %q cannot be made", dir).WithCause(err)
	}
	var write func(c *cobra.Command) error
	write = func(c *cobra.Command) error {
		file := filepath.Join(dir, manName(c)+".1")
		if err := os.WriteFile(file, []byte(manPage(c)), 0o644); err != nil {
			return unwritable(file, err, nil)
		}
		for _, sub := range c.Commands() {
			if !sub.IsAvailableCommand() {
				continue
			}
			if err := write(sub); err != nil {
				return err
			}
		}
		return nil
	}
	return write(root)
}

func manName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manPage is a command's help as man reads it. Help is set in columns, which stay.
func manPage(c *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH \"%s\" \"1\" \"\" \"%s\" \"paddock\"\n", strings.ToUpper(manName(c)), roff("paddock "+build().Version))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n.SH SYNOPSIS\n%s\n", roff(manName(c)), roff(strings.ToLower(c.Short[:1])+c.Short[1:]), roff(c.UseLine()))
	section := func(name, text string) {
		if text = strings.Trim(text, "\n"); text != "" {
			fmt.Fprintf(&b, ".SH %s\n.nf\n%s\n.fi\n", name, roff(text))
		}
	}
	section("DESCRIPTION", c.Long)
	section("OPTIONS", c.LocalFlags().FlagUsagesWrapped(78))
	section("EXAMPLES", c.Example)
	var others []string
	if c.HasParent() {
		others = append(others, manName(c.Parent())+"(1)")
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			others = append(others, manName(sub)+"(1)")
		}
	}
	section("SEE ALSO", strings.Join(others, "\n"))
	return b.String()
}

// roff is text that man shows as it is.
func roff(text string) string {
	var b strings.Builder
	for line := range strings.Lines(strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)) {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			line = `\&` + line
		}
		b.WriteString(line)
	}
	return b.String()
}
