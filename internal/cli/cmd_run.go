package cli

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"paddock/internal/app"
	"paddock/internal/session"
)

// runCommand is paddock run.
type runCommand struct{ *cli }

// runOutput is how much of what a program prints run passes on when no key
// is set: people's pipes take more than models.
const runOutput = 64 << 20

// runFlags are the flags of run that set no key of the configuration.
type runFlags struct {
	code, language, session, name string
	keep, json                    bool
	with                          []string // packages that are installed first

	// What paddock run alone has.
	personal   bool   // a person's files go in and out
	file       string // of the program; empty: it has none
	bare       bool
	watch      bool
	out, write string // the folders that files go to; empty: none
	writeBack  bool
	env        []string
	envFiles   []string
	volumes    []string
	machine    *session.Machine // of its session; nil: as by default

	network, secrets *[]string // of its session; nil: what sessions have by default
}

func (cmd runCommand) command() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run [flags] [FILE|-c CODE|-] [ARGS...]",
		Short: "Run a program isolated",
		Long: `Runs a program in a session of its own, which is gone afterwards. The program
is a FILE (.py, .js, .mjs, .cjs, .ts, .mts, .sh, or one whose first line names an
interpreter), CODE, or what comes on stdin (-). A shell script runs in a Linux
session, unless --isolation says otherwise.
Without any of them it is what comes from a pipe, and at a terminal paddock repl begins.
What follows it are the program's own arguments. It reads paddock's stdin,
and what it prints comes out while it runs.

It sees a copy of FILE's folder in /workspace, but for files with a dot and what git
ignores, and of the files that its arguments name; --bare shows it FILE alone. What it
writes stays in that copy: --out DIR and --write take it out. It has no other file of this
machine, no environment but -e, and no network but the hosts that
--net-allow or the configuration name. A secret that is named by --secret or
there is a placeholder in its variable. Packages that --with names are installed first, and
so are those that a Python program names in its inline metadata (PEP 723).

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
  paddock run -v ./data:/data:ro -e LEVEL=3 report.sh
  paddock run --net-allow api.example.com --secret GITHUB_TOKEN fetch.py`,
		RunE: func(c *cobra.Command, args []string) error { return cmd.run(c, f, args) },
	}
	flags := c.Flags()
	flags.SetInterspersed(false)
	flags.StringVarP(&f.code, "code", "c", "", "run `CODE`")
	flags.StringVarP(&f.language, "language", "l", "", "`LANGUAGE` of the program: python, javascript, typescript or bash, also py, js, ts, sh; else FILE's ending or its first line tells")
	flags.StringVar(&f.session, "session", "", "run in the session `ID`, which may be a name or the beginning of an id: its files are there, and stay")
	flags.BoolVar(&f.keep, "keep", false, "keep the session, and print its id to stderr")
	flags.StringArrayVar(&f.with, "with", nil, "install these `PACKAGES` first, with commas, such as requests,rich; may be repeated")
	flags.StringVar(&f.name, "name", "", "keep the session under the `NAME`")
	keyFlag(flags, "timeout", "stop the program after `TIME`, such as 30s or 2m; without the key it has all the time that it needs")
	keyFlag(flags, "memory", "let the interpreter take `SIZE` of memory, such as 256MiB")
	keyFlag(flags, "fuel", "stop the program after `N` loop rounds and calls of its interpreter")
	keyFlag(flags, "max-output", "pass on `SIZE` of stdout and of stderr; 64MiB when no key is set")
	keyFlag(flags, "disk", "let files take `SIZE`, such as 512MiB")
	keyFlag(flags, "isolation", "run in this `KIND` of sandbox: wasm or linux")
	keyFlag(flags, "image", "run in the image `NAME`, and so in a Linux sandbox")
	netFlag(flags)
	secretFlag(flags)
	flags.StringArrayVarP(&f.env, "env", "e", nil, "set the variable `KEY=VALUE`; KEY alone passes paddock's own on; may be repeated")
	flags.StringArrayVar(&f.envFiles, "env-file", nil, "set the variables in `FILE`, a KEY=VALUE on each line; may be repeated")
	flags.StringArrayVarP(&f.volumes, "volume", "v", nil, "let a Linux session use a folder of this machine: `HOST:GUEST[:ro]`; may be repeated")
	flags.BoolVar(&f.bare, "bare", false, "do not put the program's folder into its session")
	flags.StringVar(&f.out, "out", "", "copy the files that the program wrote into the folder `DIR`")
	flags.BoolVar(&f.writeBack, "write", false, "copy the files that the program wrote into the program's own folder")
	flags.BoolVar(&f.watch, "watch", false, "run it again whenever a file of its folder changes, until Ctrl-C")
	jsonFlag(c, &f.json)
	return c
}

func (cmd runCommand) run(c *cobra.Command, f runFlags, args []string) error {
	piped := len(args) == 0 && !c.Flags().Changed("code")
	if piped {
		if person(cmd.stdin) && terminal(cmd.stdout) && !f.json {
			return replCommand(cmd).open(c, f)
		}
		args = []string{"-"}
	}
	image := c.Flags().Changed("image")
	if (image || len(f.volumes) > 0) && !c.Flags().Changed("isolation") {
		if err := c.Flags().Set("isolation", "linux"); err != nil {
			return err
		}
	}
	f.keep = f.keep || f.name != ""
	if err := cmd.load(c); err != nil {
		return err
	}
	if image && (f.session != "" || cmd.Config.Sandbox.Isolation != "linux") {
		return usage("--image is for a Linux sandbox of its own").WithHint("omit it, or --session and --isolation wasm")
	}
	hasCode := c.Flags().Changed("code")
	req, err := cmd.request(f, hasCode, args)
	if err != nil {
		return err
	}
	if piped && strings.TrimSpace(req.Code) == "" {
		return usage("paddock run needs a program").WithHint("name a file, give -c CODE, or - for stdin")
	}
	if err := f.place(hasCode, args); err != nil {
		return err
	}
	if cmd.Config.Policy.Env, err = environment(cmd.Config.Policy.Env, f.env, f.envFiles); err != nil {
		return err
	}
	if len(f.volumes) > 0 {
		if f.session != "" || f.keep || cmd.Config.Sandbox.Isolation != "linux" {
			return usage("--volume is for a Linux sandbox that ends with its program").WithHint("omit it, or --session, --keep, --name and --isolation wasm")
		}
		volumes, err := volumesOf(f.volumes)
		if err != nil {
			return err
		}
		f.machine = &session.Machine{Volumes: volumes}
	}
	if req.Language == "bash" && f.session == "" && !c.Flags().Changed("isolation") {
		cmd.Config.Sandbox.Isolation = "linux" // a shell is part of a machine
	}
	defer cmd.outlastSignals()()
	a, err := cmd.Open(app.Options{Change: cmd.personal})
	if err != nil {
		return err
	}
	defer a.Close()
	if c.Flags().Changed("secret") {
		f.secrets = &cmd.Config.Secrets.Allow
	}
	if err := cmd.warnOfLacking(a, f); err != nil {
		return err
	}
	r := runner{cmd.cli, a, f}
	if f.watch {
		return cmd.watch(c.Context(), r, req, args)
	}
	return cmd.runOnce(c.Context(), r, req)
}

// place finds out where a program's files are, and go to.
func (f *runFlags) place(hasCode bool, args []string) error {
	f.personal = true
	if !hasCode && args[0] != "-" {
		f.file = args[0]
	}
	switch {
	case f.file == "" && (f.writeBack || f.watch):
		return usage("--write and --watch are for a program in a FILE").WithHint("--out DIR takes what other programs write")
	case f.writeBack && f.out != "":
		return usage("--write and --out do not go together").WithHint("give one of them")
	case f.writeBack:
		f.write = filepath.Dir(f.file)
	}
	return nil
}

// runOnce installs what a program needs, and runs it.
func (cmd runCommand) runOnce(ctx context.Context, r runner, req session.Request) error {
	fill, err := cmd.installing(ctx, r.app, r.flags, req)
	if err != nil {
		return err
	}
	return r.run(ctx, req, fill)
}

// watch runs a program, and again whenever its folder changes, until ctx ends.
func (cmd runCommand) watch(ctx context.Context, r runner, req session.Request, args []string) error {
	for {
		was := cmd.stampOf(ctx, r.flags.file)
		err := cmd.runOnce(ctx, r, req)
		var ended exit
		if err != nil && !errors.As(err, &ended) {
			cmd.report(err)
		}
		if ctx.Err() != nil {
			return err
		}
		cmd.say("notice", "waiting for a change; Ctrl-C ends")
		for {
			if !cmd.waitForChange(ctx, r.flags.file, was) {
				return nil
			}
			next, err := cmd.request(r.flags, false, args)
			if err == nil {
				req = next
				break
			}
			cmd.report(err) // it may be written just now
			was = cmd.stampOf(ctx, r.flags.file)
		}
	}
}

// personal changes the limits of programs to what a person expects, where no key sets them.
func (cmd runCommand) personal(sc *session.Config) {
	sc.WaitInPlace = -1 // the person who started the program waits with it
	if !cmd.Config.IsSet("sessions.default_timeout_seconds") {
		sc.DefaultTimeout, sc.MaxTimeout = session.Unlimited, session.Unlimited
	}
	if !cmd.Config.IsSet("policy.stdout_max_bytes") {
		sc.Limits.StdoutBytes = runOutput
	}
	if !cmd.Config.IsSet("policy.stderr_max_bytes") {
		sc.Limits.StderrBytes = runOutput
	}
}

// request is what the command line asks for. Its time limit is the
// configuration's default, which --timeout sets.
func (cmd runCommand) request(f runFlags, hasCode bool, args []string) (session.Request, error) {
	req := session.Request{Code: f.code, Name: "<code>", Args: args, Stdin: cmd.stdin}
	if f.language != "" {
		req.Language = languageNamed(f.language)
	}
	if f.session != "" && f.keep && f.name == "" {
		return req, usage("--keep and --session do not go together").WithHint("a session that was named stays anyway")
	}
	if f.session != "" && f.name != "" {
		return req, usage("--name and --session do not go together").WithHint("paddock session rename gives a session another name")
	}
	var err error
	switch {
	case hasCode:
	case args[0] == "-":
		req.Name, req.Args, req.Stdin = "<stdin>", args[1:], nil
		req.Code, err = source(cmd.stdin)
	default:
		req.Name, req.Args = fileName(args[0]), args[1:]
		if req.Code, err = sourceFile(args[0]); err == nil && req.Language == "" {
			req.Language, err = languageOf(args[0], req.Code)
		}
	}
	if req.Language == "" && f.session == "" {
		req.Language = "python"
	}
	req.Code = withoutHashbang(req.Code, req.Language)
	return req, err
}

// warnOfLacking warns of what keeps the program from using the secrets that were named, and
// says whether its session, where it was named, can have them.
func (cmd runCommand) warnOfLacking(a *app.App, f runFlags) error {
	if f.secrets == nil {
		return nil
	}
	if f.session != "" {
		_, id, err := chosen(a.Sessions, []session.Owner{session.Local}, f.session)
		if err != nil {
			return err
		}
		info, err := a.Sessions.Info(session.Local, id)
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
		cmd.say("warning", text)
	}
	return err
}
