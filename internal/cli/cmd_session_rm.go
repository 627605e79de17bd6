package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"paddock/internal/privatefile"
	"paddock/internal/session"
)

// removal is which sessions are to be removed.
type removal struct {
	principal string
	ids       []string
	all       bool
	older     age
	json      bool
}

func (cmd sessionCommand) removeCommand() *cobra.Command {
	var r removal
	c := &cobra.Command{
		Use: "rm ID...", Aliases: []string{"remove"}, Short: "Remove sessions with their files",
		Long: `Removes sessions with their files, and prints their ids: those that are named, all of
them, or those that were not used for a time. A session that another process has open stays.

Exit codes: 0 all were removed, 1 not all, 2 wrong usage.`,
		Example: `  paddock session rm s-4x report
  paddock session rm --older 7d`,
		Args: func(c *cobra.Command, args []string) error {
			switch chosen := r.all || r.older > 0; {
			case len(args) == 0 && !chosen:
				return usage("paddock session rm needs the ids of sessions").WithHint("or --all, or --older 7d")
			case len(args) > 0 && chosen, r.all && r.older > 0:
				return usage("ids, --all and --older are three things").WithHint("give one of them")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			r.ids = args
			return cmd.removeSessions(c, r)
		},
	}
	c.Flags().BoolVar(&r.all, "all", false, "remove all of them")
	c.Flags().Var(&r.older, "older", "remove those that were not used for a `TIME` such as 7d, 36h or 2w")
	jsonFlag(c, &r.json)
	principalFlag(c, &r.principal)
	return c
}

func (cmd sessionCommand) removeSessions(c *cobra.Command, r removal) error {
	return cmd.withSessions(c, func(ctx context.Context, m *session.Manager) error {
		owners, err := cmd.owners(r.principal)
		if err != nil {
			return err
		}
		if err := privatefile.CheckFolder(cmd.StateDir); err != nil {
			return err // what root records there its owner could not go on with
		}
		meant, mistakes := r.find(m, owners)
		removed := []string{}
		for _, one := range meant {
			if err := m.Destroy(ctx, one.Owner, one.ID); err != nil {
				mistakes = append(mistakes, unknownSession(err))
				continue
			}
			removed = append(removed, string(one.ID))
			if !r.json {
				fmt.Fprintln(cmd.stdout, one.ID)
			}
		}
		if r.json {
			mistakes = append(mistakes, cmd.printJSON(map[string]any{"removed": removed}))
		}
		return errors.Join(mistakes...)
	})
}

// find gives the sessions that are meant, and what is wrong with the others.
func (r removal) find(m *session.Manager, owners []session.Owner) (meant []session.Info, mistakes []error) {
	for _, text := range r.ids {
		o, id, err := chosen(m, owners, text)
		if err != nil {
			mistakes = append(mistakes, err)
			continue
		}
		meant = append(meant, session.Info{Owner: o, ID: id})
	}
	if len(r.ids) > 0 {
		return meant, mistakes
	}
	before := time.Now().Add(-time.Duration(r.older))
	for _, o := range owners {
		all, err := m.List(o)
		if err != nil {
			return nil, []error{fmt.Errorf("listing the sessions: %w", err)}
		}
		for _, i := range all {
			if r.all || i.LastUsedAt.Before(before) {
				meant = append(meant, i)
			}
		}
	}
	return meant, mistakes
}

// age is the value of a flag: a time as people give it, also in days and weeks.
type age time.Duration

func (a *age) String() string {
	if *a == 0 {
		return ""
	}
	return time.Duration(*a).String()
}

func (a *age) Type() string { return "time" }

func (a *age) Set(text string) error {
	for unit, long := range map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour} {
		number, ok := strings.CutSuffix(text, unit)
		if n, err := strconv.ParseUint(number, 10, 16); ok && err == nil && n > 0 {
			*a = age(time.Duration(n) * long)
			return nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return errors.New("it is not a time such as 7d, 36h or 2w")
	}
	*a = age(d)
	return nil
}
