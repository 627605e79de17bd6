package cli

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"paddock/internal/app"
	"paddock/internal/fault"
	"paddock/internal/session"
	"paddock/internal/skill"
)

func (cmd skillCommand) runCommand() *cobra.Command {
	f := runFlags{}
	c := &cobra.Command{
		Use:   "run [flags] NAME SCRIPT [ARGS...]",
		Short: "Run a script of a skill, with the rights that the skill declares",
		Long: `Runs a script of a skill (.py, .js, .mjs, .ts or .sh) in a session of its own, which is
gone afterwards. It may call those tools of bound servers, reach those hosts and use those
secrets that the skill declares, as far as sessions may: no other, whatever sessions may.
What is missing of them is told. The SCRIPT is a file of the skill, with or without
scripts/ before it; what follows are its own arguments. Files of the current folder that
they name are copied into the session, where the script finds them by the same names.

Exit codes: those of paddock run.`,
		Args: count(2, -1, "the name of a skill and a script"),
		RunE: func(c *cobra.Command, args []string) error { return cmd.runSkill(c, f, args) },
	}
	flags := c.Flags()
	flags.SetInterspersed(false)
	keyFlag(flags, "timeout", "stop the script after `TIME`, such as 30s or 2m")
	keyFlag(flags, "isolation", "run in this `KIND` of sandbox: wasm or linux")
	netFlag(flags)
	secretFlag(flags)
	jsonFlag(c, &f.json)
	return c
}

func (cmd skillCommand) runSkill(c *cobra.Command, f runFlags, args []string) error {
	if err := cmd.load(c); err != nil {
		return err
	}
	kept, err := cmd.NewSkills(nil)
	if err != nil {
		return err
	}
	defer kept.Close()
	in, err := kept.Open(string(session.Local), args[0])
	if err != nil {
		return unknownSkill(err)
	}
	req, err := cmd.scriptOf(in, args[1], args[2:])
	if err != nil {
		return err
	}
	defer cmd.outlastSignals()()
	a, err := cmd.Open(app.Options{Declared: &in.Manifest})
	if err != nil {
		return err
	}
	defer a.Close()
	grants, warnings, err := a.Declared(in.Manifest)
	for _, text := range warnings {
		cmd.say("warning", text)
	}
	if err != nil {
		return err
	}
	f.network, f.secrets = &grants.Hosts, &grants.Secrets
	return runner{cmd.cli, a, f}.run(c.Context(), req, func(id session.ID) error { return copyNamed(a.Sessions, id, req.Args) })
}

// copyNamed puts those files of the current folder that arguments name into a session's
// workspace, where the program finds them by the same names. Files elsewhere stay where
// they are.
func copyNamed(sessions *session.Manager, id session.ID, args []string) error {
	tree, done, err := sessions.Files(session.Local, id)
	if err != nil {
		return err
	}
	defer done()
	here, err := os.OpenRoot(".")
	if err != nil {
		return fault.New(fault.Unavailable, "the current folder cannot be read").WithCause(err)
	}
	defer here.Close() // a link that leads out of it is not a file of it
	for _, arg := range args {
		if !filepath.IsLocal(arg) {
			continue
		}
		info, err := here.Stat(arg)
		if err != nil || !info.Mode().IsRegular() {
			continue // it is not a file
		}
		file, err := here.Open(arg)
		if err != nil {
			return fault.New(fault.Denied, "the file %.200q cannot be read", arg).WithCause(err)
		}
		_, err = tree.Put(path.Clean(filepath.ToSlash(arg)), file, info.Size())
		file.Close()
		if err != nil {
			return fmt.Errorf("giving the script the file %q: %w", arg, err)
		}
	}
	return nil
}

// scriptOf is the program that runs a script where programs find it.
func (cmd skillCommand) scriptOf(in *skill.Installed, name string, args []string) (session.Request, error) {
	file, ok := in.Skill.Folder.Get(name)
	if !ok {
		file, ok = in.Skill.Folder.Get("scripts/" + name)
	}
	if !ok {
		return session.Request{}, fault.New(fault.NotFound, "the skill %q has no script %.100q", in.Name, name).WithHint("paddock skill show %s lists its files", in.Name)
	}
	at := path.Join(skill.Mount(in.Name), file.Path)
	req := session.Request{Name: at, Args: args, Stdin: cmd.stdin, Language: languages[path.Ext(at)]}
	switch req.Language {
	case "python":
		req.Code = fmt.Sprintf("import runpy, sys\nsys.argv[0] = %[1]s\nsys.path.insert(0, %[2]s)\n_ = runpy.run_path(%[1]s, run_name=\"__main__\")\n", strconv.QuoteToASCII(at), strconv.QuoteToASCII(path.Dir(at)))
	case "javascript", "typescript":
		req.Language = "javascript"
		req.Code = fmt.Sprintf("await import(%s)\nundefined\n", strconv.QuoteToASCII(at))
	case "bash":
		req.Code = fmt.Sprintf(". '%s'\n", at) // no file of a skill has a quote in its name that could end it
		if strings.ContainsRune(at, '\'') {
			return req, fault.New(fault.Invalid, "the name of the script holds a quote")
		}
	default:
		return req, fault.New(fault.Unsupported, "the ending of %.100q tells no language", file.Path).WithHint("scripts end in .py, .js, .mjs, .ts or .sh")
	}
	return req, nil
}
