package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"paddock/internal/app"
	"paddock/internal/approval"
	"paddock/internal/fault"
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

// runOutput is how much of what a program prints run passes on when nobody
// says: people's pipes take more than models.
const runOutput = 64 << 20

// maxProgram is a little more than a session takes: it has the better words
// for what is too long.
const maxProgram = 1<<20 + 1

// runFlags are the flags of run that set no key of the configuration.
type runFlags struct {
	code, language, session string
	keep, json              bool
	network, secrets        *[]string // of its session; nil: nobody says
}

func (p *program) runCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run [flags] FILE|-c CODE|- [ARGS...]",
		Short: "Run a program isolated",
		Long: `Runs a program in a session of its own, which is gone afterwards. The program
is a FILE (.py, .js, .mjs, .cjs, .ts, .mts), CODE, or what comes on stdin (-).
What follows it are the program's own arguments. It reads paddock's stdin,
and what it prints comes out while it runs. It sees no file but those of its
session, in /workspace, no environment, and no network but the hosts that
--net-allow or the configuration name. A secret that is named by --secret or
there is a placeholder in its variable.

Exit codes: the program's own (1 after an error that it did not catch), or
  124  it was stopped at its time limit
  125  paddock itself failed, or was used wrongly
  130  it was stopped by Ctrl-C or a SIGTERM
  134  its interpreter crashed
  137  it was stopped at its limit of memory, fuel, disk or output
  141  whoever read the output went away
A third Ctrl-C ends paddock at once.`,
		Example: `  paddock run examples/hello.py
  paddock run -c 'print(sum(range(10)))'
  echo 'console.log(process.argv[2])' | paddock run --language javascript - hello
  paddock run --timeout 5s --memory 1GiB --json analysis.py data.csv
  paddock run --net-allow api.example.com --secret GITHUB_TOKEN fetch.py`,
		RunE: func(c *cobra.Command, args []string) error { return p.run(c, f, args) },
	}
	flags := c.Flags()
	flags.SetInterspersed(false)
	flags.StringVarP(&f.code, "code", "c", "", "run `CODE`")
	flags.StringVarP(&f.language, "language", "l", "", "`LANGUAGE` of the program: python, javascript, typescript or bash; else FILE's ending tells")
	flags.StringVar(&f.session, "session", "", "run in the session `ID`: its files are there, and stay")
	flags.BoolVar(&f.keep, "keep", false, "keep the session, and print its id to stderr")
	keyFlag(flags, "timeout", "stop the program after `TIME`, such as 30s or 2m")
	keyFlag(flags, "memory", "let the interpreter take `SIZE` of memory, such as 256MiB")
	keyFlag(flags, "fuel", "stop the program after `N` loop rounds and calls of its interpreter")
	keyFlag(flags, "max-output", "pass on `SIZE` of stdout and of stderr; 64MiB when no key is set")
	keyFlag(flags, "disk", "let files take `SIZE`, such as 512MiB")
	keyFlag(flags, "isolation", "run in this `KIND` of sandbox: wasm or linux")
	keyFlag(flags, "image", "run in the image `NAME`, and so in a Linux sandbox")
	netFlag(flags)
	secretFlag(flags)
	jsonFlag(c, &f.json)
	return c
}

func (p *program) run(c *cobra.Command, f runFlags, args []string) error {
	image := c.Flags().Changed("image")
	if image && !c.Flags().Changed("isolation") {
		if err := c.Flags().Set("isolation", "linux"); err != nil {
			return err
		}
	}
	if err := p.load(c); err != nil {
		return err
	}
	if image && (f.session != "" || p.Config.Sandbox.Isolation != "linux") {
		return usage("--image is for a Linux sandbox of its own").WithHint("omit it, or --session and --isolation wasm")
	}
	req, err := p.request(f, c.Flags().Changed("code"), args)
	if err != nil {
		return err
	}
	defer p.outlastSignals()()
	a, err := p.Open(app.Options{Change: func(sc *session.Config) {
		sc.WaitInPlace = -1 // whoever started the program waits with it
		if !p.Config.IsSet("policy.stdout_max_bytes") {
			sc.Limits.StdoutBytes = runOutput
		}
		if !p.Config.IsSet("policy.stderr_max_bytes") {
			sc.Limits.StderrBytes = runOutput
		}
	}})
	if err != nil {
		return err
	}
	defer a.Close()
	ctx := c.Context()
	if c.Flags().Changed("secret") {
		f.secrets = &p.Config.Secrets.Allow
	}
	if err := p.warnOfLacking(a, f); err != nil {
		return err
	}
	id, done, err := p.sessionFor(ctx, a.Sessions, f, req.Language)
	if err != nil {
		return err
	}
	defer done()
	if info, err := a.Sessions.Info(session.Local, id); err == nil { // else execute says what is wrong
		if err := p.prepare(ctx, a.Backends.Named(info.Isolation)); err != nil {
			return err
		}
	}
	return p.execute(ctx, a.Sessions, id, req, f)
}

// sessionFor gives the session to run in, and what to do with it afterwards.
func (p *program) sessionFor(ctx context.Context, m *session.Manager, f runFlags, language string) (session.ID, func(), error) {
	if f.session != "" {
		return session.ID(f.session), func() {}, nil
	}
	set := session.Settings{Language: language, Isolation: p.Config.Sandbox.Isolation, Name: "paddock run", Network: f.network, Secrets: f.secrets}
	if !f.keep {
		set.TTL, set.Ephemeral = leftoverTTL, true
	}
	info, err := m.Create(ctx, session.Local, "", set)
	if err != nil {
		return "", nil, fmt.Errorf("making a session: %w", err)
	}
	if f.keep {
		return info.ID, func() { p.say("session", string(info.ID)) }, nil
	}
	return info.ID, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if err := m.Destroy(ctx, session.Local, info.ID); err != nil {
			p.report(fmt.Errorf("removing the session: %w", err))
		}
	}, nil
}

// execute runs the program and tells how it ended.
func (p *program) execute(ctx context.Context, m *session.Manager, id session.ID, req session.Request, f runFlags) error {
	stdout, stderr := &sink{to: p.stdout}, &sink{to: p.stderr}
	if !f.json {
		req.Stdout, req.Stderr = stdout, stderr
	}
	res, err := m.Execute(approval.WithAsker(ctx, personHere{p}), session.Local, id, req)
	if err != nil {
		if ctx.Err() != nil {
			p.say("error", "the program was stopped: cancelled")
			return exit(exitCancelled)
		}
		return unknownSession(err)
	}
	for _, s := range []*sink{stdout, stderr} {
		if errors.Is(s.err, syscall.EPIPE) {
			return exit(exitNoReader)
		}
		if s.err != nil {
			return fmt.Errorf("passing output on: %w", s.err)
		}
	}
	if f.json {
		out := mcpserver.Describe(res)
		// A model reads an extract; who asks here has room for all of it.
		out.Stdout, out.StdoutTruncated = res.Stdout, res.Exit.StdoutTruncated
		out.Stderr, out.StderrTruncated = res.Stderr, res.Exit.StderrTruncated
		if f.session == "" && !f.keep {
			out.SessionID = "" // there is none any more
		}
		if err := p.printJSON(out); err != nil {
			return fmt.Errorf("printing the result: %w", err)
		}
	} else {
		p.explain(res)
		if res.Refused != "" {
			p.say("warning", res.Refused)
		}
		if res.Notice != "" && (f.session != "" || f.keep) { // else nothing of it is left anyway
			p.say("notice", res.Notice)
		}
	}
	if code := exitCode(res.Exit); code != 0 {
		return exit(code)
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
func (p *program) explain(res session.Result) {
	e := res.Exit
	switch e.Cause {
	case sandbox.Exited:
	case sandbox.TimedOut:
		p.say("error", fmt.Sprintf("the program was stopped: timed out after %v", p.Config.Sessions.DefaultTimeout))
	default:
		p.say("error", "the program was stopped: "+e.Cause.String())
	}
	if hint := advice[e.Cause]; hint != "" {
		p.say("hint", hint)
	}
	if e.Cause == sandbox.Exited && (e.StdoutTruncated || e.StderrTruncated) {
		p.say("warning", "the output was cut at its limit; --max-output raises it")
	}
	if n := len(res.Displays); n > 0 {
		p.say("warning", fmt.Sprintf("the program displayed something that is not shown here (%d times, first %s)", n, plain(res.Displays[0].MIME)))
	}
}

// sink passes output on and remembers why it could not.
type sink struct {
	to  io.Writer
	err error
}

func (s *sink) Write(b []byte) (int, error) {
	n, err := s.to.Write(b)
	if err != nil {
		s.err = err
	}
	return n, err
}

// languages are the endings of files.
var languages = map[string]string{
	".py": "python", ".js": "javascript", ".mjs": "javascript", ".cjs": "javascript", ".ts": "typescript", ".mts": "typescript",
	".sh": "bash", ".bash": "bash",
}

// request is what the command line asks for. Its time limit is the
// configuration's default, which --timeout sets.
func (p *program) request(f runFlags, hasCode bool, args []string) (session.Request, error) {
	req := session.Request{Code: f.code, Language: f.language, Name: "<code>", Args: args, Stdin: p.stdin}
	if f.session != "" && f.keep {
		return req, usage("--keep and --session do not go together").WithHint("a session that was named stays anyway")
	}
	var err error
	switch {
	case hasCode:
	case len(args) == 0:
		return req, usage("paddock run needs a program").WithHint("name a file, give -c CODE, or - for stdin")
	case args[0] == "-":
		req.Name, req.Args, req.Stdin = "<stdin>", args[1:], nil
		req.Code, err = source(p.stdin)
	default:
		req.Name, req.Args = fileName(args[0]), args[1:]
		if req.Language == "" {
			if req.Language = languages[strings.ToLower(filepath.Ext(args[0]))]; req.Language == "" {
				return req, usage("the ending of %q tells no language", args[0]).WithHint("say --language python, javascript, typescript or bash")
			}
		}
		req.Code, err = sourceFile(args[0])
	}
	if req.Language == "" && f.session == "" {
		req.Language = "python"
	}
	return req, err
}

// fileName is what error reports call a file: its path, or if that is long
// the end of it.
func fileName(path string) string {
	const most = 200 // bytes, see session.Request
	if len(path) <= most {
		return filepath.ToSlash(path)
	}
	return strings.ToValidUTF8(filepath.ToSlash(path[len(path)-most:]), "")
}

func sourceFile(path string) (string, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fault.New(fault.NotFound, "there is no file %q", path)
	}
	if err != nil {
		return "", fmt.Errorf("reading the program: %w", err)
	}
	defer file.Close()
	return source(file)
}

// source reads a program, without the mark that some editors put before text.
func source(r io.Reader) (string, error) {
	b, err := io.ReadAll(bufio.NewReader(io.LimitReader(r, maxProgram)))
	if err != nil {
		return "", fmt.Errorf("reading the program: %w", err)
	}
	return string(bytes.TrimPrefix(b, []byte("\ufeff"))), nil
}

// warnOfLacking warns of what keeps the program from using the secrets that were named, and
// says whether its session, where it was named, can have them.
func (p *program) warnOfLacking(a *app.App, f runFlags) error {
	if f.secrets == nil {
		return nil
	}
	if f.session != "" {
		info, err := a.Sessions.Info(session.Local, session.ID(f.session))
		if err != nil {
			return unknownSession(err)
		}
		for _, name := range *f.secrets {
			if had := info.Settings.Secrets; had == nil || !slices.Contains(*had, name) {
				return usage("the session %s was made without the secret %s", plain(f.session), name).
					WithHint("omit --secret, or --session: a session has the secrets that it is made with")
			}
		}
	}
	warnings, err := a.Unreachable(*f.secrets)
	for _, text := range warnings {
		p.say("warning", text)
	}
	return err
}
