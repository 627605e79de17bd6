package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"paddock/internal/app"
	"paddock/internal/audit"
	"paddock/internal/bindings/broker"
	"paddock/internal/bindings/catalog"
	"paddock/internal/bindings/stub"
	"paddock/internal/bindings/upstream"
	"paddock/internal/fault"
)

func (p *program) serverToolsCommand() *cobra.Command {
	var asJSON bool
	var language string
	c := &cobra.Command{
		Use: "tools NAME", Short: "List a server's tools, as programs call them",
		Long: `Connects to a server and lists its tools: how a program calls each, what the
server says of it, and whether it may be called (allowed, asked, denied) or is not
what it was when it was first used (changed). What the server lists and programs cannot
call, such as a tool without a name, is left out, which a warning says.

Exit codes: 0 done, 1 failed or no such server, 2 wrong usage.`,
		Example: "  paddock server tools github --language typescript",
		Args:    count(1, 1, "the name of a server"),
		RunE:    func(c *cobra.Command, args []string) error { return p.serverTools(c, args[0], language, asJSON) },
	}
	c.Flags().StringVar(&language, "language", string(stub.Python), "show how a program of this `LANGUAGE` calls them: python or typescript")
	jsonFlag(c, &asJSON)
	return c
}

// toolJSON is a tool as results show it.
type toolJSON struct {
	Name         string          `json:"name"`
	Title        string          `json:"title,omitempty"`
	Description  string          `json:"description,omitempty"`
	Verdict      string          `json:"verdict"`
	Changed      bool            `json:"changed"`
	Signature    string          `json:"signature"`
	Import       string          `json:"import"`
	InputSchema  json.RawMessage `json:"input_schema,omitempty"`
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
}

func (p *program) serverTools(c *cobra.Command, name, language string, asJSON bool) error {
	if language != string(stub.Python) && language != string(stub.TypeScript) {
		return usage("flag --language: %q is not one of %s, %s", language, stub.Python, stub.TypeScript)
	}
	if err := p.load(c); err != nil {
		return err
	}
	k, done, err := p.FindServer(name)
	if err != nil {
		return err
	}
	defer done()
	listing, info, err := p.askTools(c.Context(), k)
	if err != nil {
		return err
	}
	seen, err := broker.OpenSeen(p.ServersFolder())
	if err != nil {
		return err
	}
	list := []toolJSON{}
	for _, n := range stub.Names(listing.Tools) {
		change, err := changeOf(c.Context(), seen, k, n)
		if err != nil {
			return err
		}
		list = append(list, toolJSON{
			Name: n.Tool.Name, Title: n.Tool.Title, Description: n.Tool.Description, Verdict: k.Policy().Of(n.Tool).String(), Changed: change != nil,
			Signature: n.Signature(stub.Language(language)), Import: n.Import(name, stub.Language(language)), InputSchema: n.Tool.Input, OutputSchema: n.Tool.Output,
		})
	}
	if asJSON {
		all := map[string]any{"server": name, "title": info.Title, "version": info.Version, "protocol": info.Protocol, "tools": list}
		if len(listing.LeftOut) > 0 {
			all["left_out"] = listing.LeftOut
		}
		return p.printJSON(all)
	}
	for _, out := range listing.LeftOut {
		p.say("warning", "left out: "+plain(out))
	}
	return p.printTools(list)
}

func (p *program) printTools(list []toolJSON) error {
	rows := [][]string{{"MAY", "TOOL"}}
	for _, t := range list {
		may := t.Verdict
		if t.Changed {
			may += ", changed"
		}
		rows = append(rows, []string{may, plain(t.Signature)})
		if t.Description != "" {
			rows = append(rows, []string{"", "  " + plain(stub.Line(t.Description, 120))})
		}
	}
	return p.printTable(rows)
}

// askTools connects to a server and gives its tools.
func (p *program) askTools(ctx context.Context, k *app.Server) (upstream.Listing, upstream.Info, error) {
	conn, err := p.Dial(ctx, k)
	if err != nil {
		return upstream.Listing{}, upstream.Info{}, p.withLogin(k, err)
	}
	defer conn.Close()
	listing, err := conn.List(ctx)
	if err != nil {
		return upstream.Listing{}, upstream.Info{}, p.withLogin(k, err)
	}
	return listing, conn.Info(), nil
}

// withLogin says how to log in to a server that wants that, and of another one that
// cannot be used what it said itself.
func (p *program) withLogin(k *app.Server, err error) error {
	if upstream.ReasonOf(err) != upstream.Unauthorized || k.Login == nil {
		f := fault.Of(err)
		if said := itSaid(err); said != "" && f.Hint == "" {
			return fault.New(f.Kind, "%s", f.Message).WithHint("%s", plain(said)).WithCause(err)
		}
		return err
	}
	return fault.New(fault.Denied, "%s", fault.Of(err).Message).WithHint("paddock server login %s", k.Name).WithCause(err)
}

// changeOf tells what of a tool is not what it was when it was first used; nil: nothing,
// or it was not used yet, which this is not. A change can be accepted then.
func changeOf(ctx context.Context, seen *catalog.Store, k *app.Server, n stub.Named) (*catalog.Change, error) {
	before, err := seen.Load(ctx, k.Name, n.Tool.Name)
	if err != nil || before == nil {
		return nil, err
	}
	change, err := (&catalog.Watch{Seen: seen}).Use(ctx, k.Name, n.Tool)
	if err == nil && change != nil {
		err = seen.Notice(ctx, change)
	}
	return change, err
}

// acceptFlags are the flags of paddock server accept.
type acceptFlags struct {
	fingerprint string
	all, asJSON bool
	vary        bool
}

func (p *program) serverAcceptCommand() *cobra.Command {
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
		RunE:    func(c *cobra.Command, args []string) error { return p.acceptTools(c, args, f) },
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

func (p *program) acceptTools(c *cobra.Command, args []string, f acceptFlags) error {
	switch {
	case f.all && len(args) == 2:
		return usage("--all is about all tools, and %q is one", args[1])
	case f.vary && !f.all && len(args) == 1:
		return usage("--any-description is about a tool that is accepted").WithHint("name the tool, or say --all")
	case f.fingerprint != "" && len(args) == 1:
		return usage("--fingerprint is about one tool").WithHint("%s", c.UseLine())
	}
	if err := p.loadServers(c); err != nil {
		return err
	}
	seen, err := broker.OpenSeen(p.ServersFolder())
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
			if err := p.accept(c.Context(), seen, n, f); err != nil {
				return err
			}
		}
		list = append(list, one)
	}
	if !found {
		if err := p.noChange(args, all); err != nil {
			return err
		}
	}
	if f.asJSON {
		return p.printJSON(map[string]any{"server": args[0], "changed": list})
	}
	return p.printChanges(args[0], list)
}

// noChange says why there is nothing to accept, where that is a mistake.
func (p *program) noChange(args []string, all []catalog.Noticed) error {
	if len(args) == 2 {
		return fault.New(fault.NotFound, "the server %q has no tool %q that was refused because it changed", args[0], args[1]).WithHint("paddock server accept %s lists those that there are", args[0])
	}
	_, done, err := p.FindServer(args[0])
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
func (p *program) accept(ctx context.Context, seen *catalog.Store, n catalog.Noticed, f acceptFlags) error {
	looked := f.fingerprint
	if looked == "" {
		looked = n.Now
	}
	if looked != n.Now {
		return fault.New(fault.Conflict, "the tool %q of %q is not what was looked at", n.Tool, n.Server).WithHint("paddock server accept %s shows what it is now", n.Server)
	}
	if err := p.noteServer(ctx, audit.ServerAccept, n.Server+"/"+n.Tool); err != nil {
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

func (p *program) printChanges(server string, list []changeJSON) error {
	if len(list) == 0 {
		_, err := fmt.Fprintf(p.stdout, "no tool of %s was refused because it changed\n", server)
		return err
	}
	for _, one := range list {
		state := "changed"
		if one.Accepted {
			state = "accepted"
		}
		fmt.Fprintf(p.stdout, "%s: %s (%s)\n", state, plain(one.Tool), one.Fingerprint)
		for _, d := range one.Parts {
			fmt.Fprintf(p.stdout, "  %s\n    was  %s\n    is   %s\n", d.Part, plain(d.Before), plain(d.Now))
		}
	}
	if !list[0].Accepted {
		p.say("hint", fmt.Sprintf("paddock server accept %s TOOL accepts one, --all in its place all of them; with --any-description what they say of themselves may go on changing", server))
	}
	return nil
}
