package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"paddock/internal/app"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/session"
)

// shellCommand is paddock shell.
type shellCommand struct{ *cli }

type shellFlags struct {
	session, principal string
	keep, fresh        bool
	network, secrets   *[]string // of its session; nil: what sessions have by default
}

func (cmd shellCommand) command() *cobra.Command {
	var f shellFlags
	c := &cobra.Command{
		Use:   "shell [flags] [PROGRAM ARGS...]",
		Short: "Open bash in a Linux session, at a terminal",
		Long: `Opens bash, or a PROGRAM, at a terminal of its own in a Linux session: one that is
made for it and gone afterwards, or the one that --session names, also where another
paddock has that open. Job control, the window's size, colours and full-screen
programs work. What is typed goes there, Ctrl-C too.

Ctrl-] and then d detaches: the session stays, with the shell in it, and the same
command with --session comes back to it. So does a terminal that is closed. Where no
other paddock has the session open, it sleeps meanwhile, and what ran in it goes on
when somebody comes back. Ctrl-] twice types one Ctrl-].

What programs print reaches this terminal as it is, escape sequences as well.

Exit codes: the program's own; 0 after detaching; or
  125  paddock itself failed, or was used wrongly`,
		Example: `  paddock shell
  paddock shell --image python:3.13 --net-allow pypi.org
  paddock shell --session s-4nq2k7 top`,
		RunE: func(c *cobra.Command, args []string) error { return cmd.open(c, f, args) },
	}
	flags := c.Flags()
	flags.SetInterspersed(false)
	flags.StringVar(&f.session, "session", "", "open it in the session `ID`; a shell that somebody detached from is there again")
	flags.BoolVar(&f.keep, "keep", false, "keep the session, and print its id to stderr")
	flags.BoolVar(&f.fresh, "new", false, "start another shell where one is there already")
	keyFlag(flags, "memory", "let the machine take `SIZE` of memory, such as 512MiB")
	keyFlag(flags, "disk", "let files take `SIZE`, such as 512MiB")
	keyFlag(flags, "image", "run in the image `NAME`")
	netFlag(flags)
	secretFlag(flags)
	principalFlag(c, &f.principal)
	return c
}

// bash is what a shell runs where no program is named. Its prompt counts where the
// image's own settings do not say another.
var bash = []string{"bash"}

const prompt = `\[\e[1;32m\]paddock\[\e[0m\]:\[\e[1;34m\]\w\[\e[0m\]\$ `

func (cmd shellCommand) open(c *cobra.Command, f shellFlags, args []string) error {
	t, err := cmd.terminalHere("paddock shell", "paddock run -l bash --isolation linux -c CODE needs none")
	if err != nil {
		return err
	}
	if f.session != "" && (f.keep || c.Flags().Changed("image")) {
		return usage("--keep and --image are for a session that is made").WithHint("omit them, or --session")
	}
	if f.session == "" && (f.principal != "" || f.fresh) {
		return usage("--principal and --new go with --session").WithHint("name a session")
	}
	if err := cmd.load(c); err != nil {
		return err
	}
	if c.Flags().Changed("secret") {
		f.secrets = &cmd.Config.Secrets.Allow
	}
	owners, err := cmd.owners(f.principal)
	if err != nil {
		return err
	}
	a, err := cmd.Open(app.Options{})
	if err != nil {
		return err
	}
	defer a.Close()
	s := shell{cli: cmd.cli, sessions: a.Sessions, terminal: t, flags: f}
	if err := cmd.prepare(c.Context(), a.Backends.Named("linux")); err != nil {
		return err
	}
	if f.session == "" {
		return s.inNewSession(c.Context(), args)
	}
	if s.owner, s.id, err = chosen(a.Sessions, owners, f.session); err != nil {
		return err
	}
	return s.run(c.Context(), args)
}

// terminalHere gives the terminal that paddock is used at; what is the command that needs
// one, and instead what to do without.
func (cl *cli) terminalHere(what, instead string) (*localTerminal, error) {
	in, isFile := cl.stdin.(*os.File)
	out, isFileToo := cl.stdout.(*os.File)
	if !isFile || !isFileToo || !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return nil, usage("%s needs a terminal at stdin and stdout", what).WithHint("%s", instead)
	}
	return &localTerminal{in: in, out: out}, nil
}

// shell is a terminal of a session that is shown at this one.
type shell struct {
	*cli
	sessions *session.Manager
	terminal *localTerminal
	flags    shellFlags
	owner    session.Owner
	id       session.ID
}

// inNewSession makes a session, which is gone afterwards unless somebody detached.
func (s shell) inNewSession(ctx context.Context, args []string) error {
	info, err := s.sessions.Create(ctx, session.Local, "", session.Settings{
		Language: "bash", Isolation: "linux", Name: "paddock shell", Network: s.flags.network, Secrets: s.flags.secrets,
	})
	if err != nil {
		return fmt.Errorf("making a session: %w", err)
	}
	s.owner, s.id = session.Local, info.ID
	err = s.run(ctx, args)
	var ended exit
	if err == errDetached {
		return nil
	}
	if s.flags.keep && (err == nil || errors.As(err, &ended)) {
		s.say("session", string(info.ID))
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if gone := s.sessions.Destroy(ctx, session.Local, info.ID); gone != nil {
		s.report(fmt.Errorf("removing the session: %w", gone))
	}
	return err
}

// errDetached says that the program at the terminal goes on.
var errDetached = exit(0)

// run shows a terminal of the session until its program has ended, or somebody detaches.
func (s shell) run(ctx context.Context, args []string) error {
	size := s.terminal.size()
	one, err := s.find(ctx, args, size)
	if err != nil {
		return err
	}
	stream, err := s.sessions.AttachTerminal(ctx, s.owner, s.id, one.ID, one.Printed-min(one.Printed, replayed))
	if err != nil {
		return fmt.Errorf("attaching to the terminal: %w", err)
	}
	defer stream.Close()
	resize := func(size sandbox.TerminalSize) error {
		return s.sessions.ResizeTerminal(ctx, s.owner, s.id, one.ID, size)
	}
	detached, err := s.terminal.show(ctx, stream, one.Printed-stream.From(), resize)
	if err != nil {
		return err
	}
	if detached {
		s.say("notice", fmt.Sprintf("detached: the session keeps the shell; paddock shell --session %s comes back to it", s.id))
		return errDetached
	}
	return s.ended(ctx, one.ID)
}

// replayed is how much of what was printed before is shown to who comes back, in bytes.
const replayed = 32 << 10

// find gives the newest terminal to which no one is attached, or a new one.
func (s shell) find(ctx context.Context, args []string, size sandbox.TerminalSize) (sandbox.Terminal, error) {
	if s.flags.session != "" && !s.flags.fresh && len(args) == 0 {
		all, err := s.sessions.Terminals(ctx, s.owner, s.id)
		if err != nil {
			return sandbox.Terminal{}, err
		}
		for n := len(all) - 1; n >= 0; n-- {
			if !all[n].Ended && all[n].Attached == 0 {
				return all[n], nil
			}
		}
	}
	if len(args) == 0 {
		args = bash
	}
	env := map[string]string{"PS1": prompt}
	for _, name := range []string{"TERM", "COLORTERM", "NO_COLOR"} {
		if value := os.Getenv(name); value != "" {
			env[name] = value
		}
	}
	return s.sessions.OpenTerminal(ctx, s.owner, s.id, sandbox.TerminalSpec{Command: args, Env: env, Size: size})
}

// ended gives the exit code of the program.
func (s shell) ended(ctx context.Context, number uint32) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	all, err := s.sessions.Terminals(ctx, s.owner, s.id)
	if err != nil {
		return err
	}
	for _, one := range all {
		switch {
		case one.ID == number && one.Ended && one.ExitCode != 0:
			return exit(one.ExitCode)
		case one.ID == number && one.Ended:
			return nil
		}
	}
	return fault.New(fault.Unavailable, "the connection to the session's terminal was cut").
		WithHint("paddock shell --session %s opens it again", s.id)
}

// detacher looks for the keys that detach in what is typed: Ctrl-] and then d.
type detacher struct{ escaped bool }

const escapeKey = 0x1d // Ctrl-]

// pass gives what of it is for the program, and whether somebody wants to detach.
func (d *detacher) pass(typed []byte) (p []byte, detach bool) {
	for _, b := range typed {
		switch {
		case d.escaped && b == 'd':
			return p, true
		case d.escaped && b == escapeKey:
			p = append(p, b)
			d.escaped = false
		case d.escaped:
			p = append(p, escapeKey, b)
			d.escaped = false
		case b == escapeKey:
			d.escaped = true
		default:
			p = append(p, b)
		}
	}
	return p, false
}

// localTerminal is the terminal that paddock is used at.
type localTerminal struct{ in, out *os.File }

// size is how large it is; zeros where it does not say.
func (t *localTerminal) size() sandbox.TerminalSize {
	cols, rows, err := term.GetSize(int(t.out.Fd()))
	if err != nil || cols <= 0 || rows <= 0 {
		return sandbox.TerminalSize{}
	}
	return sandbox.TerminalSize{Rows: uint16(min(rows, sandbox.MaxTerminalSide)), Cols: uint16(min(cols, sandbox.MaxTerminalSide))}
}

// show carries what is typed to a program, and what it prints here, until it ends, somebody
// detaches, or ctx ends, which detaches as well. The first old bytes were printed before.
func (t *localTerminal) show(ctx context.Context, stream sandbox.TerminalStream, old int64, resize func(sandbox.TerminalSize) error) (detached bool, err error) {
	state, err := term.MakeRaw(int(t.in.Fd()))
	if err != nil {
		return false, fmt.Errorf("taking over the terminal: %w", err)
	}
	defer func() {
		_, _ = io.WriteString(t.out, leaveModes(detached)) // a terminal that is gone needs none
		_ = term.Restore(int(t.in.Fd()), state)
	}()
	changed, forget := sizeChanges()
	defer forget()
	left := make(chan struct{})
	// It waits for the next key, and so ends with paddock at the latest.
	go func() {
		defer close(left)
		t.typeInto(stream)
	}()
	over := make(chan error, 1)
	go func() { over <- t.print(stream, old) }()
	if err := resize(t.size()); err != nil && fault.KindOf(err) != fault.NotFound { // it may have ended
		return false, err
	}
	for {
		select {
		case err := <-over:
			return false, err
		case <-left:
		case <-ctx.Done():
		case <-changed:
			_ = resize(t.size()) // what is wrong with the connection shows when it is read
			continue
		}
		stream.Close()
		<-over
		return true, nil
	}
}

// typeInto sends what is typed until somebody detaches, or nothing more can be.
func (t *localTerminal) typeInto(stream io.Writer) {
	var keys detacher
	buf := make([]byte, 4<<10)
	for {
		n, err := t.in.Read(buf)
		p, detach := keys.pass(buf[:n])
		if len(p) > 0 {
			if _, err := stream.Write(p); err != nil {
				return
			}
		}
		if detach || err != nil {
			return
		}
	}
}

// print shows what a program prints, until it ends. Of the first old bytes, which were
// printed before, it leaves out what asks a terminal for answers: no program waits for them.
func (t *localTerminal) print(stream io.Reader, old int64) error {
	before, err := io.ReadAll(io.LimitReader(stream, max(old, 0)))
	if err == nil {
		_, err = t.out.Write(terminalQueries.ReplaceAll(before, nil))
	}
	if err == nil {
		_, err = io.Copy(t.out, stream)
	}
	return err
}
