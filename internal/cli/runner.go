package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"paddock/internal/app"
	"paddock/internal/mcpserver"
	"paddock/internal/sandbox"
	"paddock/internal/session"
)

// The exit codes of run that are not the program's own.
const (
	exitTimedOut  = 124
	exitRunFailed = 125 // paddock itself
	exitCancelled = 130
	exitCrashed   = 134
	exitLimit     = 137
	exitNoReader  = 141 // as a shell shows SIGPIPE
)

// leftoverTTL is when the next paddock removes a temporary session that its
// own process could not.
const leftoverTTL = time.Hour

// runner runs one program for a person, and tells how it ended.
type runner struct {
	*cli
	app   *app.App
	flags runFlags
}

// run runs a program in the session that the flags name, or in one of its own. fill, when
// set, puts files into the session first.
func (r runner) run(ctx context.Context, req session.Request, fill func(session.ID) error) error {
	id, done, err := r.session(ctx, req.Language)
	if err != nil {
		return err
	}
	defer done()
	if fill != nil {
		if err := fill(id); err != nil {
			return err
		}
	}
	if info, err := r.app.Sessions.Info(session.Local, id); err == nil { // else execute says what is wrong
		if err := r.prepare(ctx, r.app.Backends.Named(info.Isolation)); err != nil {
			return err
		}
	}
	got := brought{}
	if r.flags.personal && r.flags.session == "" {
		if req.Args, err = r.bring(ctx, id, got, req.Args); err != nil {
			return err
		}
	}
	err = r.execute(ctx, id, req, got)
	if r.flags.personal && r.flags.session == "" {
		if failed := r.takeOut(context.WithoutCancel(ctx), id, got); failed != nil {
			r.report(failed)
			err = cmp.Or(err, error(exit(exitRunFailed)))
		}
	}
	return err
}

// bring puts the program's folder and the files that its arguments name into its session. It
// gives the arguments as the program is to see them.
func (r runner) bring(ctx context.Context, id session.ID, got brought, args []string) ([]string, error) {
	tree, done, err := r.app.Sessions.Files(session.Local, id)
	if err != nil {
		return nil, err
	}
	defer done()
	b := &bringing{cli: r.cli, tree: tree, got: got}
	if f := r.flags; f.file != "" && !f.bare {
		if err := b.folder(ctx, filepath.Dir(f.file), filepath.Base(f.file)); err != nil {
			return nil, err
		}
	}
	return b.arguments(args)
}

// session gives the session to run in, and what to do with it afterwards.
func (r runner) session(ctx context.Context, language string) (id session.ID, done func(), err error) {
	f := r.flags
	if f.session != "" {
		_, id, err := chosen(r.app.Sessions, []session.Owner{session.Local}, f.session)
		return id, func() {}, err
	}
	set := session.Settings{
		Language: language, Isolation: r.Config.Sandbox.Isolation, Name: cmp.Or(f.name, "paddock run"),
		Network: f.network, Secrets: f.secrets, Machine: f.machine,
	}
	if !f.keep {
		set.TTL, set.Ephemeral = leftoverTTL, true
	}
	info, err := r.app.Sessions.Create(ctx, session.Local, "", set)
	if err != nil {
		return "", nil, fmt.Errorf("making a session: %w", err)
	}
	if f.keep {
		return info.ID, func() { r.say("session", string(info.ID)) }, nil
	}
	return info.ID, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if err := r.app.Sessions.Destroy(ctx, session.Local, info.ID); err != nil {
			r.report(fmt.Errorf("removing the session: %w", err))
		}
	}, nil
}

// execute runs the program, and prints what came of it.
func (r runner) execute(ctx context.Context, id session.ID, req session.Request, got brought) error {
	stdout, stderr := &sink{to: r.stdout}, &sink{to: r.stderr}
	if !r.flags.json {
		req.Stdout, req.Stderr = stdout, stderr
	}
	asking, done := r.askHere(ctx)
	res, err := r.app.Sessions.Execute(asking, session.Local, id, req)
	done()
	if err != nil {
		if ctx.Err() != nil {
			r.say("error", "the program was stopped: cancelled")
			return exit(exitCancelled)
		}
		return unknownSession(err)
	}
	if len(got) > 0 {
		if tree, done, err := r.app.Sessions.Files(session.Local, id); err == nil { // else all of them are told
			res.Changes = ownChanges(tree, res.Changes, got)
			done()
		}
	}
	for _, s := range []*sink{stdout, stderr} {
		if errors.Is(s.err, syscall.EPIPE) {
			return exit(exitNoReader)
		}
		if s.err != nil {
			return fmt.Errorf("passing output on: %w", s.err)
		}
	}
	if err := r.tell(res); err != nil {
		return err
	}
	if code := exitCode(res.Exit); code != 0 {
		return exit(code)
	}
	return nil
}

// tell prints a result as one object, or says to a person what the output does not show.
func (r runner) tell(res session.Result) error {
	stays := r.flags.session != "" || r.flags.keep // the session does
	if !r.flags.json {
		r.explain(res)
		if res.Refused != "" {
			r.say("warning", res.Refused)
		}
		if lacks := mcpserver.LacksIndex(res, r.app.ServesPackages); lacks != "" {
			r.say("hint", lacks)
		}
		if res.Notice != "" && stays { // else nothing of it is left anyway
			r.say("notice", res.Notice)
		}
		return nil
	}
	out := mcpserver.Describe(res)
	// A model reads an extract; a person has room for all of it.
	out.Stdout, out.StdoutTruncated = res.Stdout, res.Exit.StdoutTruncated
	out.Stderr, out.StderrTruncated = res.Stderr, res.Exit.StderrTruncated
	if !stays {
		out.SessionID = ""
	}
	if err := r.printJSON(out); err != nil {
		return fmt.Errorf("printing the result: %w", err)
	}
	return nil
}

// exitCode is what run ends with when a program ended like this.
func exitCode(e sandbox.Exit) int {
	switch e.Cause {
	case sandbox.Exited:
		if e.Code != 0 && e.Code&0xff == 0 {
			return 1 // what systems keep of the code would say that all was well
		}
		return e.Code & 0xff
	case sandbox.TimedOut:
		return exitTimedOut
	case sandbox.Cancelled:
		return exitCancelled
	case sandbox.Crashed:
		return exitCrashed
	}
	return exitLimit
}

// advice is which flag helps when a program was stopped.
var advice = map[sandbox.Cause]string{
	sandbox.TimedOut:       "--timeout gives it more time",
	sandbox.OutOfFuel:      "--fuel lets it do more",
	sandbox.OutOfMemory:    "--memory lets it take more",
	sandbox.OutOfSpace:     "--disk lets its files take more",
	sandbox.OutputExceeded: "--max-output lets it print more",
}

// explain says to a person what cannot be seen from the output.
func (r runner) explain(res session.Result) {
	e := res.Exit
	switch e.Cause {
	case sandbox.Exited:
	case sandbox.TimedOut:
		r.say("error", fmt.Sprintf("the program was stopped: timed out after %v", r.Config.Sessions.DefaultTimeout))
	default:
		r.say("error", "the program was stopped: "+e.Cause.String())
	}
	if hint := advice[e.Cause]; hint != "" {
		r.say("hint", hint)
	}
	if e.Cause == sandbox.Exited && (e.StdoutTruncated || e.StderrTruncated) {
		r.say("warning", "the output was cut at its limit; --max-output raises it")
	}
	for _, d := range res.Displays {
		r.show(d)
	}
	if res.Exit.Result != "" && person(r.stdout) {
		fmt.Fprint(r.stdout, lines(res.Exit.Result))
	}
}
