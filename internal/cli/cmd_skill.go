package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"paddock/internal/app"
	"paddock/internal/fault"
	"paddock/internal/privatefile"
	"paddock/internal/skill"
)

// skillCommand is paddock skill and its subcommands.
type skillCommand struct{ *cli }

func (cmd skillCommand) command() *cobra.Command {
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
	c.AddCommand(cmd.installCommand(), cmd.updateCommand(), cmd.checkCommand(), cmd.saveCommand(),
		cmd.listCommand(), cmd.searchCommand(), cmd.showCommand(), cmd.runCommand(), cmd.removeCommand())
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

func (cmd skillCommand) listCommand() *cobra.Command {
	var f skillFlags
	return f.add(&cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the skills",
		Long: "Lists the skills, with how many programs that named them have run, and run well." + skillCodes,
		Args: count(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error {
			return cmd.printFound(c, f, func(_ context.Context, s *app.Skills, owner string) ([]skill.Record, error) {
				return s.List(owner)
			})
		},
	})
}

func (cmd skillCommand) searchCommand() *cobra.Command {
	var f skillFlags
	return f.add(&cobra.Command{
		Use: "search WORDS...", Short: "Find skills by what they are for",
		Long: "Finds skills by words of their names, tags and descriptions, the best first." + skillCodes,
		Args: count(1, -1, "words"),
		RunE: func(c *cobra.Command, args []string) error {
			return cmd.printFound(c, f, func(ctx context.Context, s *app.Skills, owner string) ([]skill.Record, error) {
				return s.Search(ctx, owner, strings.Join(args, " "), 20)
			})
		},
	})
}

// printFound prints the skills that find finds.
func (cmd skillCommand) printFound(c *cobra.Command, f skillFlags, find func(context.Context, *app.Skills, string) ([]skill.Record, error)) error {
	return cmd.withSkills(c, f, false, func(ctx context.Context, s *app.Skills, owner string) error {
		found, err := find(ctx, s, owner)
		if err != nil {
			return err
		}
		return cmd.printSkills(found, f.json)
	})
}

func (cmd skillCommand) showCommand() *cobra.Command {
	var f skillFlags
	return f.add(&cobra.Command{
		Use: "show NAME", Short: "Show a skill",
		Long: "Shows where a skill came from, what it holds, what it says that it uses, and its\ninstructions." + skillCodes,
		Args: count(1, 1, "the name of a skill"),
		RunE: func(c *cobra.Command, args []string) error {
			return cmd.withSkills(c, f, false, func(_ context.Context, s *app.Skills, owner string) error {
				in, err := s.Open(owner, args[0])
				if err != nil {
					return unknownSkill(err)
				}
				return cmd.printSkill(in, f.json)
			})
		},
	})
}

func (cmd skillCommand) removeCommand() *cobra.Command {
	var f skillFlags
	return f.add(&cobra.Command{
		Use: "rm NAME...", Aliases: []string{"remove"}, Short: "Remove skills",
		Long: "Removes skills, and prints their names.\n\nExit codes: 0 all were removed, 1 not all, 2 wrong usage.",
		Args: count(1, -1, "the names of skills"),
		RunE: func(c *cobra.Command, args []string) error {
			return cmd.withSkills(c, f, true, func(_ context.Context, s *app.Skills, owner string) error {
				removed, err := each(args, func(name string) error { return unknownSkill(s.Remove(owner, name)) })
				if f.json {
					return errors.Join(err, cmd.printJSON(map[string][]string{"removed": removed}))
				}
				for _, name := range removed {
					fmt.Fprintln(cmd.stdout, name)
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

// withSkills calls f with the store and whose skills it is about. change says that
// something will be written; from are sources whose hosts may be reached.
func (cmd skillCommand) withSkills(c *cobra.Command, f skillFlags, change bool, do func(context.Context, *app.Skills, string) error, from ...skill.Source) error {
	if err := cmd.load(c); err != nil {
		return err
	}
	owner, err := cmd.skillOwner(f.principal)
	if err != nil {
		return err
	}
	if change {
		if err := privatefile.CheckFolder(cmd.StateDir); err != nil {
			return err // what root writes there its owner could not remove
		}
	}
	if _, err := os.Stat(cmd.StateDir); errors.Is(err, fs.ErrNotExist) && change {
		if err := os.MkdirAll(cmd.StateDir, 0o700); err != nil {
			return fmt.Errorf("making the state folder: %w", err)
		}
	}
	var hosts []string
	for _, s := range from {
		hosts = append(hosts, app.HostsOf(s, cmd.Config)...)
	}
	s, err := cmd.NewSkills(nil, hosts...)
	if err != nil {
		return err
	}
	defer s.Close()
	return do(c.Context(), s, owner)
}

// skillOwner is whose skills a command is about: the user's own, where no principal
// was named.
func (cmd skillCommand) skillOwner(principal string) (string, error) {
	owners, err := cmd.owners(principal)
	if err != nil {
		return "", err
	}
	if len(owners) > 2 { // the name itself, and those of tokens
		return "", usage("there are %s tokens called %q", strconv.Itoa(len(owners)-1), principal).WithHint("give the id of one: paddock token ls lists them")
	}
	return string(owners[len(owners)-1]), nil
}
