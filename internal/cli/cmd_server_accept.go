package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"paddock/internal/audit"
	"paddock/internal/bindings/broker"
	"paddock/internal/bindings/catalog"
	"paddock/internal/fault"
)

// acceptFlags are the flags of paddock server accept.
type acceptFlags struct {
	fingerprint string
	all, asJSON bool
	vary        bool
}

func (cmd serverCommand) acceptCommand() *cobra.Command {
	var f acceptFlags
	c := &cobra.Command{
		Use: "accept NAME [TOOL]", Short: "Look at tools that are not what they were, and accept them",
		Long: `Programs may not call a tool whose description, schemas or annotations are not what
they were when it was first used: what was harmless may have become something else.
Without TOOL this shows the tools that were refused for that, and what changed of
them. With TOOL, or with --all, what is shown is accepted. With --any-description they
may say of themselves what they like from then on, such as what is in a folder, and
only their schemas and annotations count.

Exit codes: 0 done, 1 failed, no such tool or it has not changed, 2 wrong usage.`,
		Example: "  paddock server accept github\n  paddock server accept github create_issue",
		Args:    count(1, 2, "the name of a server"),
		RunE:    func(c *cobra.Command, args []string) error { return cmd.acceptTools(c, args, f) },
	}
	c.Flags().StringVar(&f.fingerprint, "fingerprint", "", "accept the tool only if it is the one with this `FINGERPRINT`")
	c.Flags().BoolVar(&f.vary, "any-description", false, "accept whatever title and description become as well")
	c.Flags().BoolVar(&f.all, "all", false, "accept all of the server's")
	jsonFlag(c, &f.asJSON)
	return c
}

// changeJSON is a tool that is not what it was.
type changeJSON struct {
	Tool        string     `json:"tool"`
	Fingerprint string     `json:"fingerprint"`
	Before      string     `json:"before"`
	Noticed     time.Time  `json:"noticed"`
	Parts       []partJSON `json:"parts"`
	Accepted    bool       `json:"accepted"`
}

type partJSON struct {
	Part   string `json:"part"`
	Before string `json:"before"`
	Now    string `json:"now"`
}

func (cmd serverCommand) acceptTools(c *cobra.Command, args []string, f acceptFlags) error {
	switch {
	case f.all && len(args) == 2:
		return usage("--all is about all tools, and %q is one", args[1])
	case f.vary && !f.all && len(args) == 1:
		return usage("--any-description is about a tool that is accepted").WithHint("name the tool, or say --all")
	case f.fingerprint != "" && len(args) == 1:
		return usage("--fingerprint is about one tool").WithHint("%s", c.UseLine())
	}
	if err := cmd.loadServers(c); err != nil {
		return err
	}
	seen, err := broker.OpenSeen(cmd.ServersFolder())
	if err != nil {
		return err
	}
	all, err := seen.Changes(c.Context())
	if err != nil {
		return err
	}
	list, found := []changeJSON{}, false
	for _, n := range all {
		if n.Server != args[0] || len(args) == 2 && n.Tool != args[1] {
			continue
		}
		found = true
		one := noticed(n)
		if one.Accepted = f.all || len(args) == 2; one.Accepted {
			if err := cmd.accept(c.Context(), seen, n, f); err != nil {
				return err
			}
		}
		list = append(list, one)
	}
	if !found {
		if err := cmd.noChange(args, all); err != nil {
			return err
		}
	}
	if f.asJSON {
		return cmd.printJSON(map[string]any{"server": args[0], "changed": list})
	}
	return cmd.printChanges(args[0], list)
}

// noChange says why there is nothing to accept, where that is a mistake.
func (cmd serverCommand) noChange(args []string, all []catalog.Noticed) error {
	if len(args) == 2 {
		return fault.New(fault.NotFound, "the server %q has no tool %q that was refused because it changed", args[0], args[1]).WithHint("paddock server accept %s lists those that there are", args[0])
	}
	_, done, err := cmd.FindServer(args[0])
	if err != nil {
		var others []string
		for _, n := range all {
			others = append(others, fmt.Sprintf("%q", n.Server))
		}
		if slices.Sort(others); len(others) > 0 {
			return fault.New(fault.NotFound, "%s", fault.Of(err).Message).WithHint("tools of %s have changed", strings.Join(slices.Compact(others), ", "))
		}
		return err
	}
	done()
	return nil
}

// accept has a tool be what it has become, if that is what was looked at.
func (cmd serverCommand) accept(ctx context.Context, seen *catalog.Store, n catalog.Noticed, f acceptFlags) error {
	looked := f.fingerprint
	if looked == "" {
		looked = n.Now
	}
	if looked != n.Now {
		return fault.New(fault.Conflict, "the tool %q of %q is not what was looked at", n.Tool, n.Server).WithHint("paddock server accept %s shows what it is now", n.Server)
	}
	if err := cmd.recordAction(ctx, audit.ServerAccept, n.Server+"/"+n.Tool); err != nil {
		return err
	}
	if f.vary {
		return seen.Accept(ctx, n.Server, n.Tool, looked, "title", "description")
	}
	return seen.Accept(ctx, n.Server, n.Tool, looked)
}

func noticed(n catalog.Noticed) changeJSON {
	one := changeJSON{Tool: n.Tool, Fingerprint: n.Now, Before: n.Before, Noticed: n.At, Parts: []partJSON{}}
	for _, d := range n.Parts {
		one.Parts = append(one.Parts, partJSON{d.Part, d.Before, d.Now})
	}
	return one
}

func (cmd serverCommand) printChanges(server string, list []changeJSON) error {
	if len(list) == 0 {
		_, err := fmt.Fprintf(cmd.stdout, "no tool of %s was refused because it changed\n", server)
		return err
	}
	for _, one := range list {
		state := "changed"
		if one.Accepted {
			state = "accepted"
		}
		fmt.Fprintf(cmd.stdout, "%s: %s (%s)\n", state, plain(one.Tool), one.Fingerprint)
		for _, d := range one.Parts {
			fmt.Fprintf(cmd.stdout, "  %s\n    was  %s\n    is   %s\n", d.Part, plain(d.Before), plain(d.Now))
		}
	}
	if !list[0].Accepted {
		cmd.say("hint", fmt.Sprintf("paddock server accept %s TOOL accepts one, --all in its place all of them; with --any-description what they say of themselves may go on changing", server))
	}
	return nil
}
