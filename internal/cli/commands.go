package cli

import (
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// root makes the tree of commands.
func (cl *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "paddock",
		Short: "A safe place to run code, for any MCP client",
		Long: `paddock runs programs isolated, for models (paddock mcp) and for people (paddock
run): Python, JavaScript and TypeScript in WebAssembly interpreters inside an
unprivileged process, and on Linux hosts whatever an image has, in a machine of its
own (--isolation linux).

Each key of the configuration can be set in paddock.toml, by a variable and,
some of them, by a flag: paddock config show lists them all.

Exit codes: 0 done, 1 failed, 2 wrong usage; paddock run has its own.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		CompletionOptions: cobra.CompletionOptions{
			DisableDefaultCmd: true, // completionCommand is ours
		},
	}
	root.Version = build().Version
	root.SetVersionTemplate(build().String() + "\n")
	root.Flags().BoolP("version", "V", false, "print the version")
	root.SetIn(cl.stdin)
	root.SetOut(cl.stdout)
	root.SetErr(cl.stderr)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usage("%v", err).WithHint("%s --help lists the flags", c.CommandPath())
	})
	flags := root.PersistentFlags()
	flags.String("config", "", "read the configuration from `FILE` (PADDOCK_CONFIG); else ./paddock.toml where it is trusted, or the user's")
	flags.String("state-dir", "", "keep sessions in `DIR` (PADDOCK_STATE_DIR)")
	flags.String("cache-dir", "", "keep compiled interpreters in `DIR` (PADDOCK_CACHE_DIR)")
	keyFlag(root.PersistentFlags(), "log-level", "log to stderr from `LEVEL` on: debug, info, warn or error")
	for _, of := range []interface{ command() *cobra.Command }{
		runCommand{cl}, replCommand{cl}, shellCommand{cl}, topCommand{cl}, mcpCommand{cl}, serveCommand{cl}, sessionCommand{cl}, skillCommand{cl}, imageCommand{cl},
		serverCommand{cl}, secretCommand{cl}, tokenCommand{cl}, openCommand{cl}, auditCommand{cl}, approvalsCommand{cl},
		doctorCommand{cl}, prepareCommand{cl}, setupCommand{cl}, configCommand{cl}, trustCommand{cl}, uninstallCommand{cl}, versionCommand{cl},
		copyCommand{cl}, completionCommand{cl}, manCommand{cl},
	} {
		root.AddCommand(of.command())
	}
	for _, c := range append(root.Commands(), root) {
		if c.HasSubCommands() && c.RunE == nil {
			group(c)
		}
	}
	cl.completeAll(root)
	return root
}

// group makes a command that only holds others: alone it prints its help, and
// a word that names none of them is a mistake.
func group(c *cobra.Command) {
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		err := usage("there is no command %q", c.CommandPath()+" "+args[0])
		if near := c.SuggestionsFor(args[0]); len(near) > 0 {
			return err.WithHint("did you mean %s?", strings.Join(near, " or "))
		}
		return err.WithHint("%s --help lists the commands", c.CommandPath())
	}
	c.SuggestionsMinimumDistance = 2
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
}

// count checks how many arguments a command has; most < 0: any number.
func count(least, most int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usage("%s needs %s", c.CommandPath(), what).WithHint("%s", c.UseLine())
		case most >= 0 && len(args) > most:
			return usage("%s takes no %q", c.CommandPath(), args[most]).WithHint("%s", c.UseLine())
		}
		return nil
	}
}

// endFlags finds out whether args are those of the command run; then it ends
// the flags where the program's own arguments begin.
func endFlags(root *cobra.Command, args []string) (ended []string, running bool) {
	c, rest, err := root.Find(args)
	if c == root && len(args) > 0 && namesProgram(args[0]) {
		return append([]string{"run"}, args...), true
	}
	if err != nil || c.Name() != "run" {
		return args, err == nil && c.Name() == "shell"
	}
	if c.Parent() != root { // of a skill's script
		return args, true
	}
	return append([]string{"run"}, endAfterCode(c, rest)...), true
}

// namesProgram reports whether a word is the path of a program that names its interpreter:
// a system starts #!/usr/bin/env paddock as paddock PATH.
func namesProgram(word string) bool {
	if strings.HasPrefix(word, "-") {
		return false
	}
	file, err := os.Open(word)
	if err != nil {
		return false
	}
	defer file.Close()
	mark := make([]byte, 2)
	_, err = io.ReadFull(file, mark)
	return err == nil && string(mark) == "#!"
}

// endAfterCode puts a -- behind -c CODE. Behind a FILE none is needed.
func endAfterCode(c *cobra.Command, args []string) []string {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		name, isLong := strings.CutPrefix(arg, "--")
		name, _, hasValue := strings.Cut(name, "=")
		switch {
		case arg == "--" || arg == "-" || !strings.HasPrefix(arg, "-"):
			return args
		case strings.HasPrefix(arg, "-c") && !isLong, name == "code":
			if arg == "-c" || isLong && !hasValue {
				i++
			}
			if i+1 >= len(args) {
				return args
			}
			return slices.Insert(slices.Clone(args), i+1, "--")
		case isLong && !hasValue && takesValue(c.Flag(name)), len(arg) == 2 && takesValue(c.Flags().ShorthandLookup(arg[1:])):
			i++
		}
	}
	return args
}

func takesValue(f *pflag.Flag) bool { return f != nil && f.NoOptDefVal == "" }
