// Package cli is paddock's command line. It is the only place that reads
// flags, files and the environment, and the only one where the parts are
// joined: a backend, a session manager, an MCP server.
//
// Results go to stdout and what people should know to stderr. Each command's
// help lists its exit codes.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"paddock/internal/app"
	"paddock/internal/config"
	"paddock/internal/fault"
)

// The exit codes of every command but run, which has its own.
const (
	exitFailed = 1
	exitUsage  = 2
)

// Main runs the command line args, without the program's name, and gives the
// exit code. It reads the process's environment and takes its signals: the
// first interrupt ends what runs, gently, and the second the process.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	log.SetOutput(io.Discard) // net/http quotes there what a host sends unasked, which may be a secret
	p := &program{stdin: stdin, stdout: stdout, stderr: stderr, Env: app.Env{NewBackends: app.NewBackends}}
	return p.main(ctx, args)
}

// program is one run of the command line.
type program struct {
	app.Env // load fills it in

	stdin          io.Reader
	stdout, stderr io.Writer
	places         places
}

// exit is an error that has been reported already: only its code is left.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// errUsage is the cause of a fault in the command line itself.
var errUsage = errors.New("wrong usage")

func usage(format string, args ...any) *fault.Error {
	return fault.New(fault.Invalid, format, args...).WithCause(errUsage)
}

func (p *program) main(ctx context.Context, args []string) (code int) {
	p.Log = slog.New(slog.DiscardHandler)
	root := p.root()
	args, running := endFlags(root, args)
	defer func() {
		if v := recover(); v != nil {
			p.panicked(v)
			code = ownFailure(running, nil)
		}
	}()
	ctx, stop := signal.NotifyContext(ctx, terminationSignals()...)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // a second signal does what it does without us
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var done exit
	switch {
	case err == nil:
		return 0
	case errors.As(err, &done):
		return int(done)
	case isBrokenPipe(err):
		return exitNoReader
	}
	p.report(err)
	return ownFailure(running, err)
}

// isBrokenPipe tells that nobody reads what is printed any more, as head does not. Other
// broken connections are in faults.
func isBrokenPipe(err error) bool {
	var f *fault.Error
	return errors.Is(err, syscall.EPIPE) && !errors.As(err, &f)
}

// terminationSignals are the signals that end what runs, without those that whoever
// started paddock wants ignored (nohup, a shell's background).
func terminationSignals() []os.Signal {
	return slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}, signal.Ignored)
}

// ownFailure is the exit code of what went wrong in paddock, not in a program.
func ownFailure(running bool, err error) int {
	switch {
	case running:
		return exitRunFailed
	case isUsageError(err):
		return exitUsage
	}
	return exitFailed
}

// isUsageError tells whether there is a mistake in the command line itself.
func isUsageError(err error) bool { return errors.Is(err, errUsage) || errors.Is(err, config.ErrFlag) }

// report tells a person every mistake in err.
func (p *program) report(err error) {
	for _, e := range fault.Apart(err) {
		var f *fault.Error
		switch {
		case errors.As(e, &f):
			p.say("error", f.Message)
			if f.Hint != "" {
				p.say("hint", f.Hint)
			}
			if cause := errors.Unwrap(f); cause != nil && !isUsageError(cause) {
				p.Log.Debug("the cause", "error", e, "cause", cause)
			}
		case errors.Is(e, context.Canceled):
			p.say("error", "cancelled")
		default: // whoever types commands may know where it went wrong
			p.say("error", e.Error())
		}
	}
}

// say prints one message for people. What others wrote may be in it: nothing of that
// reaches the terminal as more than text.
func (p *program) say(kind, message string) {
	fmt.Fprintf(p.stderr, "paddock: %s: %s\n", kind, plainLines(strings.TrimRight(message, "\n")))
}

func (p *program) panicked(v any) {
	p.say("error", fmt.Sprintf("paddock made a mistake: %v", v))
	if p.Log.Enabled(context.Background(), slog.LevelDebug) {
		fmt.Fprintf(p.stderr, "%s", debug.Stack())
		return
	}
	p.say("hint", "the same with --log-level debug shows where; please report it")
}

// root makes the tree of commands.
func (p *program) root() *cobra.Command {
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
			HiddenDefaultCmd: true,
		},
	}
	root.SetIn(p.stdin)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usage("%v", err).WithHint("%s --help lists the flags", c.CommandPath())
	})
	flags := root.PersistentFlags()
	flags.String("config", "", "read the configuration from `FILE` (PADDOCK_CONFIG); else ./paddock.toml where it is trusted, or the user's")
	flags.String("state-dir", "", "keep sessions in `DIR` (PADDOCK_STATE_DIR)")
	flags.String("cache-dir", "", "keep compiled interpreters in `DIR` (PADDOCK_CACHE_DIR)")
	keyFlag(root.PersistentFlags(), "log-level", "log to stderr from `LEVEL` on: debug, info, warn or error")
	root.AddCommand(p.runCommand(), p.mcpCommand(), p.serveCommand(), p.sessionCommand(), p.skillCommand(), p.imageCommand(), p.serverCommand(), p.secretCommand(), p.tokenCommand(), p.auditCommand(), p.approvalsCommand(), p.doctorCommand(), p.prepareCommand(), p.setupCommand(), p.configCommand(), p.trustCommand(), p.versionCommand())
	for _, c := range append(root.Commands(), root) {
		if c.HasSubCommands() && c.RunE == nil {
			group(c)
		}
	}
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
	if err != nil || c.Name() != "run" {
		return args, false
	}
	if c.Parent() != root { // of a skill's script
		return args, true
	}
	return append([]string{"run"}, endAfterCode(c, rest)...), true
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
