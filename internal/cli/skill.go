package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"paddock/internal/app"
	"paddock/internal/auth"
	"paddock/internal/fault"
	"paddock/internal/skill"
)

func (p *program) skillCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "skill",
		Short: "Install, check, list, run and remove skills",
		Long: `Installs, checks, lists, runs and removes skills: folders with a SKILL.md, as the
Agent Skills format has them. What is installed is there in every session of its owner
from its next program on: at /skills/NAME, and as the module skills.NAME. They are those
of this machine's user; with --principal those of a client of paddock serve.

A source is github:OWNER/REPO/PATH[@REF], git+https://HOST/REPO.git[@REF][#PATH], the
https URL of a SKILL.md, a .zip or a .tar.gz, or a folder or archive of this machine; #sha256=…
behind all but those of this machine pins what the skill is. The hosts that a source names here may be reached;
others, and all of what models install, are for skills.allow to say.`,
	}
	c.AddCommand(p.skillInstallCommand(), p.skillUpdateCommand(), p.skillCheckCommand(), p.skillSaveCommand(),
		p.skillListCommand(), p.skillSearchCommand(), p.skillShowCommand(), p.skillRunCommand(), p.skillRemoveCommand())
	return c
}

// skillFlags are those that most of the commands have.
type skillFlags struct {
	principal string
	json      bool
}

func (f *skillFlags) add(c *cobra.Command) *cobra.Command {
	principalFlag(c, &f.principal)
	jsonFlag(c, &f.json)
	return c
}

const skillCodes = "\n\nExit codes: 0 done, 1 failed, 2 wrong usage."

func (p *program) skillInstallCommand() *cobra.Command {
	var f skillFlags
	return f.add(&cobra.Command{
		Use: "install SOURCE", Short: "Install a skill, or update it",
		Long: "Fetches a skill, checks it, and installs it. One that is there already is updated, and\nwhat changed is shown: + added, ~ changed, - removed." + skillCodes,
		Args: count(1, 1, "the source of a skill"),
		RunE: func(c *cobra.Command, args []string) error {
			from, err := p.skillSource(args[0])
			if err != nil {
				return err
			}
			return p.withSkills(c, f, true, func(ctx context.Context, s *app.Skills, owner string) error {
				res, err := s.Install(ctx, owner, from)
				if err != nil {
					return err
				}
				return p.printInstalled(res, f.json)
			}, from)
		},
	})
}

func (p *program) skillUpdateCommand() *cobra.Command {
	var f skillFlags
	return f.add(&cobra.Command{
		Use: "update [NAME...]", Short: "Fetch skills again from where they came from",
		Long: "Fetches skills, all without a NAME, again from where they came from, and shows what\nchanged. What was saved, and what comes with paddock, has no source." + skillCodes,
		RunE: func(c *cobra.Command, args []string) error { return p.updateSkills(c, f, args) },
	})
}

func (p *program) skillCheckCommand() *cobra.Command {
	var f skillFlags
	c := &cobra.Command{
		Use: "check SOURCE", Short: "Tell what is wrong or odd about a skill",
		Long: "Fetches a skill and checks it, and installs nothing.\n\nExit codes: 0 it can be installed, 1 it cannot, 2 wrong usage.",
		Args: count(1, 1, "the source of a skill"),
		RunE: func(c *cobra.Command, args []string) error {
			from, err := p.skillSource(args[0])
			if err != nil {
				return err
			}
			return p.withSkills(c, f, false, func(ctx context.Context, s *app.Skills, _ string) error {
				found, origin, err := s.Look(ctx, from)
				if err != nil {
					return err
				}
				return p.printChecked(found, origin, f.json)
			}, from)
		},
	}
	jsonFlag(c, &f.json)
	return c
}

func (p *program) skillSaveCommand() *cobra.Command {
	var f skillFlags
	var description, language string
	var tags []string
	c := f.add(&cobra.Command{
		Use: "save NAME FILE", Short: "Make a skill of a program",
		Long: "Makes a skill of the functions in a FILE (.py, .js or .ts; - is stdin), as skill_save does.\nIt replaces what was saved under the NAME before." + skillCodes,
		Args: count(2, 2, "a name and a file"),
		RunE: func(c *cobra.Command, args []string) error {
			if language == "" {
				language = languages[strings.ToLower(filepath.Ext(args[1]))]
			}
			code, err := p.codeOf(args[1])
			if err != nil {
				return err
			}
			return p.withSkills(c, f, true, func(_ context.Context, s *app.Skills, owner string) error {
				res, err := s.Save(owner, args[0], language, code, description, tags)
				if err != nil {
					return err
				}
				return p.printInstalled(res, f.json)
			})
		},
	})
	c.Flags().StringVar(&description, "description", "", "`TEXT` that says what it does and when to use it")
	c.Flags().StringVarP(&language, "language", "l", "", "`LANGUAGE` of the program: python, javascript or typescript; else FILE's ending tells")
	c.Flags().StringSliceVar(&tags, "tag", nil, "`TAG` to find it by, once for each")
	return c
}

func (p *program) codeOf(file string) (string, error) {
	if file == "-" {
		return source(p.stdin)
	}
	return sourceFile(file)
}

func (p *program) skillListCommand() *cobra.Command {
	var f skillFlags
	return f.add(&cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the skills",
		Long: "Lists the skills, with how many programs that named them have run, and run well." + skillCodes,
		Args: count(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error {
			return p.withSkills(c, f, false, func(_ context.Context, s *app.Skills, owner string) error {
				all, err := s.List(owner)
				if err != nil {
					return err
				}
				return p.printSkills(all, f.json)
			})
		},
	})
}

func (p *program) skillSearchCommand() *cobra.Command {
	var f skillFlags
	return f.add(&cobra.Command{
		Use: "search WORDS...", Short: "Find skills by what they are for",
		Long: "Finds skills by words of their names, tags and descriptions, the best first." + skillCodes,
		Args: count(1, -1, "words"),
		RunE: func(c *cobra.Command, args []string) error {
			return p.withSkills(c, f, false, func(ctx context.Context, s *app.Skills, owner string) error {
				found, err := s.Search(ctx, owner, strings.Join(args, " "), 20)
				if err != nil {
					return err
				}
				return p.printSkills(found, f.json)
			})
		},
	})
}

func (p *program) skillShowCommand() *cobra.Command {
	var f skillFlags
	return f.add(&cobra.Command{
		Use: "show NAME", Short: "Show a skill",
		Long: "Shows where a skill came from, what it holds, what it says that it uses, and its\ninstructions." + skillCodes,
		Args: count(1, 1, "the name of a skill"),
		RunE: func(c *cobra.Command, args []string) error {
			return p.withSkills(c, f, false, func(_ context.Context, s *app.Skills, owner string) error {
				in, err := s.Open(owner, args[0])
				if err != nil {
					return unknownSkill(err)
				}
				return p.printSkill(in, f.json)
			})
		},
	})
}

func (p *program) skillRemoveCommand() *cobra.Command {
	var f skillFlags
	return f.add(&cobra.Command{
		Use: "rm NAME...", Aliases: []string{"remove"}, Short: "Remove skills",
		Long: "Removes skills, and prints their names.\n\nExit codes: 0 all were removed, 1 not all, 2 wrong usage.",
		Args: count(1, -1, "the names of skills"),
		RunE: func(c *cobra.Command, args []string) error {
			return p.withSkills(c, f, true, func(_ context.Context, s *app.Skills, owner string) error {
				removed, err := each(args, func(name string) error { return unknownSkill(s.Remove(owner, name)) })
				if f.json {
					return errors.Join(err, p.printJSON(map[string][]string{"removed": removed}))
				}
				for _, name := range removed {
					fmt.Fprintln(p.stdout, name)
				}
				return err
			})
		},
	})
}

// each does something with each name, and gives those with which it was done.
func each(names []string, do func(string) error) (done []string, err error) {
	done = []string{}
	for _, name := range names {
		if e := do(name); e != nil {
			err = errors.Join(err, e)
			continue
		}
		done = append(done, name)
	}
	return done, err
}

// unknownSkill gives a skill that is not there a hint for people.
func unknownSkill(err error) error {
	if fault.KindOf(err) != fault.NotFound {
		return err
	}
	return fault.Of(err).WithHint("paddock skill ls lists those that there are")
}

// skillSource reads a source. A folder's name is made whole, so that it can be
// fetched again from elsewhere.
func (p *program) skillSource(text string) (skill.Source, error) {
	from, err := skill.ParseSource(text, true)
	if err != nil || from.Kind != skill.Local {
		return from, err
	}
	dir, err := filepath.Abs(text)
	if err != nil {
		return from, fmt.Errorf("finding the skill's folder: %w", err)
	}
	return skill.ParseSource(dir, true)
}

// withSkills calls f with the store and whose skills it is about. change says that
// something will be written; from are sources whose hosts may be reached.
func (p *program) withSkills(c *cobra.Command, f skillFlags, change bool, do func(context.Context, *app.Skills, string) error, from ...skill.Source) error {
	if err := p.load(c); err != nil {
		return err
	}
	owner, err := p.skillOwner(f.principal)
	if err != nil {
		return err
	}
	if change {
		if err := auth.CheckFolder(p.StateDir); err != nil {
			return err // what root writes there its owner could not remove
		}
	}
	if _, err := os.Stat(p.StateDir); errors.Is(err, fs.ErrNotExist) && change {
		if err := os.MkdirAll(p.StateDir, 0o700); err != nil {
			return fmt.Errorf("making the state folder: %w", err)
		}
	}
	var hosts []string
	for _, s := range from {
		hosts = append(hosts, app.HostsOf(s, p.Config)...)
	}
	s, err := p.NewSkills(nil, hosts...)
	if err != nil {
		return err
	}
	defer s.Close()
	return do(c.Context(), s, owner)
}

// skillOwner is whose skills a command is about: the user's own, where no principal
// was named.
func (p *program) skillOwner(principal string) (string, error) {
	owners, err := p.owners(principal)
	if err != nil {
		return "", err
	}
	if len(owners) > 2 { // the name itself, and those of tokens
		return "", usage("there are %s tokens called %q", strconv.Itoa(len(owners)-1), principal).WithHint("give the id of one: paddock token ls lists them")
	}
	return string(owners[len(owners)-1]), nil
}

// updateSkills fetches skills again.
func (p *program) updateSkills(c *cobra.Command, f skillFlags, names []string) error {
	if err := p.load(c); err != nil {
		return err
	}
	owner, err := p.skillOwner(f.principal)
	if err != nil {
		return err
	}
	here, err := p.NewSkills(nil)
	if err != nil {
		return err
	}
	defer here.Close()
	if names, err = updatable(here, owner, names); err != nil {
		return err
	}
	all := []*skill.Result{}
	_, failed := each(names, func(name string) error {
		res, err := p.updateSkill(c, f, here, owner, name)
		if err != nil {
			return fmt.Errorf("updating %s: %w", name, err)
		}
		all = append(all, res)
		return nil
	})
	if f.json {
		list := []skillJSON{}
		for _, res := range all {
			list = append(list, installedJSON(res))
		}
		return errors.Join(failed, p.printJSON(map[string]any{"skills": list}))
	}
	for _, res := range all {
		p.tellInstalled(res)
	}
	return failed
}

// updatable are the names, or all skills that have a source.
func updatable(s *app.Skills, owner string, names []string) ([]string, error) {
	if len(names) > 0 {
		return names, nil
	}
	all, err := s.List(owner)
	for _, r := range all {
		if r.Source.Kind != skill.Saved && r.Source.Kind != skill.Builtin {
			names = append(names, r.Name)
		}
	}
	return names, err
}

func (p *program) updateSkill(c *cobra.Command, f skillFlags, here *app.Skills, owner, name string) (*skill.Result, error) {
	in, err := here.Open(owner, name)
	if err != nil {
		return nil, unknownSkill(err)
	}
	if in.Source.Kind == skill.Saved || in.Source.Kind == skill.Builtin {
		return nil, fault.New(fault.Invalid, "the skill %q came from no source", name).WithHint("save again what was saved; paddock's own skills come with paddock")
	}
	from, err := p.skillSource(in.Source.Text)
	if err != nil {
		return nil, err
	}
	var res *skill.Result
	err = p.withSkills(c, f, true, func(ctx context.Context, s *app.Skills, owner string) (err error) {
		res, err = s.Install(ctx, owner, from)
		return err
	}, from)
	return res, err
}
