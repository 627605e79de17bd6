package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"paddock/internal/app"
	"paddock/internal/fault"
	"paddock/internal/skill"
)

func (cmd skillCommand) installCommand() *cobra.Command {
	var f skillFlags
	return f.add(&cobra.Command{
		Use: "install SOURCE", Short: "Install a skill, or update it",
		Long: "Fetches a skill, checks it, and installs it. One that is there already is updated, and\nwhat changed is shown: + added, ~ changed, - removed." + skillCodes,
		Args: count(1, 1, "the source of a skill"),
		RunE: func(c *cobra.Command, args []string) error {
			from, err := cmd.skillSource(args[0])
			if err != nil {
				return err
			}
			return cmd.withSkills(c, f, true, func(ctx context.Context, s *app.Skills, owner string) error {
				res, err := s.Install(ctx, owner, from)
				if err != nil {
					return err
				}
				return cmd.printInstalled(res, f.json)
			}, from)
		},
	})
}

func (cmd skillCommand) updateCommand() *cobra.Command {
	var f skillFlags
	return f.add(&cobra.Command{
		Use: "update [NAME...]", Short: "Fetch skills again from where they came from",
		Long: "Fetches skills, all without a NAME, again from where they came from, and shows what\nchanged. What was saved, and what comes with paddock, has no source." + skillCodes,
		RunE: func(c *cobra.Command, args []string) error { return cmd.updateSkills(c, f, args) },
	})
}

func (cmd skillCommand) checkCommand() *cobra.Command {
	var f skillFlags
	c := &cobra.Command{
		Use: "check SOURCE", Short: "Tell what is wrong or odd about a skill",
		Long: "Fetches a skill and checks it, and installs nothing.\n\nExit codes: 0 it can be installed, 1 it cannot, 2 wrong usage.",
		Args: count(1, 1, "the source of a skill"),
		RunE: func(c *cobra.Command, args []string) error {
			from, err := cmd.skillSource(args[0])
			if err != nil {
				return err
			}
			return cmd.withSkills(c, f, false, func(ctx context.Context, s *app.Skills, _ string) error {
				found, origin, err := s.Look(ctx, from)
				if err != nil {
					return err
				}
				return cmd.printChecked(found, origin, f.json)
			}, from)
		},
	}
	jsonFlag(c, &f.json)
	return c
}

func (cmd skillCommand) saveCommand() *cobra.Command {
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
			code, err := cmd.codeOf(args[1])
			if err != nil {
				return err
			}
			return cmd.withSkills(c, f, true, func(_ context.Context, s *app.Skills, owner string) error {
				res, err := s.Save(owner, args[0], language, code, description, tags)
				if err != nil {
					return err
				}
				return cmd.printInstalled(res, f.json)
			})
		},
	})
	c.Flags().StringVar(&description, "description", "", "`TEXT` that says what it does and when to use it")
	c.Flags().StringVarP(&language, "language", "l", "", "`LANGUAGE` of the program: python, javascript or typescript; else FILE's ending tells")
	c.Flags().StringSliceVar(&tags, "tag", nil, "`TAG` to find it by, once for each")
	return c
}

func (cmd skillCommand) codeOf(file string) (string, error) {
	if file == "-" {
		return source(cmd.stdin)
	}
	return sourceFile(file)
}

// skillSource reads a source. A folder's name is made whole, so that it can be
// fetched again from elsewhere.
func (cmd skillCommand) skillSource(text string) (skill.Source, error) {
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

// updateSkills fetches skills again.
func (cmd skillCommand) updateSkills(c *cobra.Command, f skillFlags, names []string) error {
	if err := cmd.load(c); err != nil {
		return err
	}
	owner, err := cmd.skillOwner(f.principal)
	if err != nil {
		return err
	}
	here, err := cmd.NewSkills(nil)
	if err != nil {
		return err
	}
	defer here.Close()
	if names, err = updatable(here, owner, names); err != nil {
		return err
	}
	all := []*skill.Result{}
	_, failed := each(names, func(name string) error {
		res, err := cmd.updateSkill(c, f, here, owner, name)
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
		return errors.Join(failed, cmd.printJSON(map[string]any{"skills": list}))
	}
	for _, res := range all {
		cmd.tellInstalled(res)
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

func (cmd skillCommand) updateSkill(c *cobra.Command, f skillFlags, here *app.Skills, owner, name string) (*skill.Result, error) {
	in, err := here.Open(owner, name)
	if err != nil {
		return nil, unknownSkill(err)
	}
	if in.Source.Kind == skill.Saved || in.Source.Kind == skill.Builtin {
		return nil, fault.New(fault.Invalid, "the skill %q came from no source", name).WithHint("save again what was saved; paddock's own skills come with paddock")
	}
	from, err := cmd.skillSource(in.Source.Text)
	if err != nil {
		return nil, err
	}
	var res *skill.Result
	err = cmd.withSkills(c, f, true, func(ctx context.Context, s *app.Skills, owner string) (err error) {
		res, err = s.Install(ctx, owner, from)
		return err
	}, from)
	return res, err
}
