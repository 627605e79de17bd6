package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/reeflective/readline"
	"github.com/reeflective/readline/inputrc"
	"github.com/spf13/cobra"

	"paddock/internal/app"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/session"
)

// replCommand is paddock repl.
type replCommand struct{ *cli }

// replLanguages are those that can be typed in, by what they may be called.
var replLanguages = map[string]string{
	"python": "python", "py": "python", "javascript": "javascript", "js": "javascript", "typescript": "typescript", "ts": "typescript",
}

func (cmd replCommand) command() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "repl [flags] [python|javascript|typescript]",
		Short: "Type programs in, line by line",
		Long: `Runs what is typed, at once, in a session of its own, which is gone afterwards, or in
the one that --session names: Python, if nothing else is said. Lines that belong
together are run together. Tab completes from the live interpreter, the arrows and
Ctrl-R find what was typed before, ~/.inputrc counts, and Ctrl-C stops what runs.
The value of an expression is printed, and a picture that is displayed is shown where
the terminal can, else written to a file that is named.

  undo, :undo   take back what was run last, with its files and variables
  :help         list these commands
  exit, Ctrl-D  leave

Exit codes: 0 done, 1 failed, 2 wrong usage.`,
		Example: "  paddock repl\n  paddock repl javascript --keep\n  paddock repl --session s-4nq2k7",
		Args:    count(0, 1, "at most one language"),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				if f.language = replLanguages[strings.ToLower(args[0])]; f.language == "" {
					return usage("%q cannot be typed in here", args[0]).WithHint("say python, javascript or typescript; paddock shell opens bash")
				}
			}
			return cmd.open(c, f)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.session, "session", "", "run in the session `ID`: what it has is there, and stays")
	flags.BoolVar(&f.keep, "keep", false, "keep the session, and print its id to stderr")
	keyFlag(flags, "timeout", "stop what runs after `TIME`, such as 30s or 2m")
	keyFlag(flags, "memory", "let the interpreter take `SIZE` of memory, such as 256MiB")
	keyFlag(flags, "disk", "let files take `SIZE`, such as 512MiB")
	keyFlag(flags, "isolation", "run in this `KIND` of sandbox: wasm or linux")
	netFlag(flags)
	secretFlag(flags)
	return c
}

// open opens the configuration and the sessions for a REPL. c may be another command with
// the same flags.
func (cmd replCommand) open(c *cobra.Command, f runFlags) error {
	if _, err := cmd.terminalHere("paddock repl", "paddock run - reads a program from a pipe"); err != nil {
		return err
	}
	if f.session != "" && f.keep {
		return usage("--keep and --session do not go together").WithHint("a session that was named stays anyway")
	}
	if err := cmd.load(c); err != nil {
		return err
	}
	if c.Flags().Changed("secret") {
		f.secrets = &cmd.Config.Secrets.Allow
	}
	a, err := cmd.Open(app.Options{Change: func(sc *session.Config) { sc.WaitInPlace = -1 }})
	if err != nil {
		return err
	}
	defer a.Close()
	r := repl{runner: runner{cmd.cli, a, f}}
	return r.run(c.Context())
}

// repl is a person who types programs into a session.
type repl struct {
	runner
	id       session.ID
	language string
	line     *readline.Shell
	pictures pictures
}

// run reads and runs until there is nothing more.
func (r *repl) run(ctx context.Context) error {
	// An interrupt is for what runs, and not for paddock.
	ctx = context.WithoutCancel(ctx)
	if err := r.openSession(ctx); err != nil {
		return err
	}
	info, err := r.app.Sessions.Info(session.Local, r.id)
	if err == nil {
		err = r.prepare(ctx, r.app.Backends.Named(info.Isolation))
	}
	if err != nil {
		return errors.Join(unknownSession(err), r.closeSession(ctx))
	}
	if r.language == "" {
		r.language = info.Settings.Language
	}
	if !slices.Contains([]string{"python", "javascript", "typescript"}, r.language) {
		r.language = "python"
	}
	r.openLine(ctx)
	fmt.Fprintf(r.stdout, "paddock: %s in %s, isolated; :help lists commands, Ctrl-D leaves\n", r.language, info.Isolation)
	for {
		text, err := r.line.Readline()
		switch {
		case errors.Is(err, readline.ErrInterrupt):
			continue
		case errors.Is(err, io.EOF):
			fmt.Fprintln(r.stdout)
			return r.closeSession(ctx)
		case err != nil:
			return errors.Join(fmt.Errorf("reading from the terminal: %w", err), r.closeSession(ctx))
		}
		if r.command(ctx, strings.TrimSpace(text)) {
			return r.closeSession(ctx)
		}
	}
}

// openSession takes the session that was named, or makes one. It has checkpoints, for undo.
func (r *repl) openSession(ctx context.Context) error {
	f := r.flags
	r.language = f.language
	if f.session != "" {
		r.id = session.ID(f.session)
		return nil
	}
	if r.language == "" {
		r.language = "python"
	}
	info, err := r.app.Sessions.Create(ctx, session.Local, "", session.Settings{
		Language: r.language, Isolation: r.Config.Sandbox.Isolation, Name: "paddock repl", Network: f.network, Secrets: f.secrets,
	})
	if err != nil {
		return fmt.Errorf("making a session: %w", err)
	}
	r.id = info.ID
	return nil
}

func (r *repl) closeSession(ctx context.Context) error {
	switch {
	case r.flags.session != "":
		return nil
	case r.flags.keep:
		r.say("session", string(r.id))
		return nil
	}
	return r.app.Sessions.Destroy(ctx, session.Local, r.id)
}

// openLine makes the line editor.
func (r *repl) openLine(ctx context.Context) {
	r.line = readline.NewShell(inputrc.WithApp("paddock"))
	// It asks the terminal where its cursor is, and waits for the answer: not all give one.
	_ = r.line.Config.Set("cursor-position-probe", false)
	first, next := ">>> ", "... "
	if r.language != "python" {
		first, next = "> ", "... "
	}
	r.line.Prompt.Primary(func() string { return first })
	r.line.Prompt.Secondary(func() string { return next })
	r.line.AcceptMultiline = func(line []rune) bool { return complete(r.language, string(line)) }
	r.line.Completer = func(line []rune, cursor int) readline.Completions { return r.complete(ctx, line, cursor) }
	if err := os.MkdirAll(r.StateDir, 0o700); err == nil {
		r.line.History.AddFromFile("paddock "+r.language, filepath.Join(r.StateDir, "repl-history-"+r.language))
	}
}

const replHelp = `undo, :undo   take back what was run last, with its files and variables
:help         list these commands
exit, Ctrl-D  leave
Tab completes, the arrows and Ctrl-R find what was typed before, Ctrl-C stops what runs.`

// command runs what was typed, and reports whether that was to leave.
func (r *repl) command(ctx context.Context, text string) (leave bool) {
	switch {
	case text == "":
	case text == "exit", text == "quit", text == "exit()", text == "quit()", text == ":exit", text == ":quit", text == ".exit":
		return true
	case text == ":help":
		fmt.Fprintln(r.stdout, replHelp)
	case text == ":undo", text == "undo" && !r.has(ctx, "undo"):
		r.undo(ctx)
	case strings.HasPrefix(text, ":"):
		r.report(usage("there is no command %q", text).WithHint(":help lists them"))
	default:
		r.execute(ctx, text)
	}
	return false
}

// has reports whether a variable is called so.
func (r *repl) has(ctx context.Context, name string) bool {
	d, err := r.app.Sessions.Details(ctx, session.Local, r.id)
	return err == nil && slices.ContainsFunc(d.Variables, func(v sandbox.Variable) bool { return v.Name == name })
}

func (r *repl) undo(ctx context.Context) {
	back, err := r.app.Sessions.Undo(ctx, session.Local, r.id)
	if err != nil {
		r.report(unknownSession(err))
		return
	}
	var changed []string
	for _, v := range back.Variables {
		changed = append(changed, v.Name)
	}
	for _, f := range back.Changes {
		changed = append(changed, f.Path)
	}
	told := "nothing differs now"
	if len(changed) > 0 {
		told = "what is as it was before: " + strings.Join(changed, ", ")
	}
	r.say("undone", told)
	if back.Notice != "" {
		r.say("notice", back.Notice)
	}
}

// execute runs a program, and shows what came of it. An interrupt stops it.
func (r *repl) execute(ctx context.Context, code string) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	stdout, stderr := &sink{to: r.stdout}, &sink{to: r.stderr}
	req := session.Request{Code: code, Language: r.language, Name: "<input>", Stdout: stdout, Stderr: stderr}
	asking, done := r.askHere(ctx)
	res, err := r.app.Sessions.Execute(asking, session.Local, r.id, req)
	done()
	switch {
	case err != nil && ctx.Err() != nil:
		r.say("error", "the program was stopped: cancelled")
		return
	case err != nil:
		r.report(unknownSession(err))
		return
	}
	if text := res.Exit.Result; text != "" {
		fmt.Fprintln(r.stdout, plainLines(text))
	}
	for _, d := range res.Displays {
		if err := r.pictures.show(r.stdout, d); err != nil {
			r.report(err)
		}
	}
	res.Displays = nil
	r.explain(res)
	if e := res.Exit.Error; e != nil && e.Hint != "" {
		r.say("hint", plain(e.Hint))
	}
	for _, told := range []string{res.Refused, res.Notice} {
		if told != "" {
			r.say("notice", told)
		}
	}
}

// completeTime bounds how long completion may take: who types waits no longer.
const completeTime = 2e9

// complete gives what the word before the cursor may become.
func (r *repl) complete(ctx context.Context, line []rune, cursor int) readline.Completions {
	word := lastWord(string(line[:min(cursor, len(line))]))
	code := lookUp(r.language, word)
	if code == "" {
		return readline.Completions{}
	}
	ctx, cancel := context.WithTimeout(ctx, completeTime)
	defer cancel()
	res, err := r.app.Sessions.Execute(ctx, session.Local, r.id, session.Request{Code: code, Language: r.language, Name: "<completion>", Look: true})
	if err != nil {
		return readline.CompleteMessage("%s", plain(fault.Of(err).Message))
	}
	names := namesIn(res.Stdout, word)
	if !strings.Contains(word, ".") {
		if d, err := r.app.Sessions.Details(ctx, session.Local, r.id); err == nil {
			for _, v := range d.Variables {
				if strings.HasPrefix(v.Name, word) {
					names = append(names, v.Name)
				}
			}
		}
	}
	slices.Sort(names)
	c := readline.CompleteValues(slices.Compact(names)...)
	c.PREFIX = word
	return c
}
