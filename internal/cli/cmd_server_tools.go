package cli

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"paddock/internal/app"
	"paddock/internal/bindings/broker"
	"paddock/internal/bindings/stub"
	"paddock/internal/bindings/upstream"
	"paddock/internal/fault"
	"paddock/internal/textsafe"
)

func (cmd serverCommand) toolsCommand() *cobra.Command {
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
		RunE:    func(c *cobra.Command, args []string) error { return cmd.serverTools(c, args[0], language, asJSON) },
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

func (cmd serverCommand) serverTools(c *cobra.Command, name, language string, asJSON bool) error {
	if language != string(stub.Python) && language != string(stub.TypeScript) {
		return usage("flag --language: %q is not one of %s, %s", language, stub.Python, stub.TypeScript)
	}
	if err := cmd.load(c); err != nil {
		return err
	}
	k, done, err := cmd.FindServer(name)
	if err != nil {
		return err
	}
	defer done()
	listing, info, err := cmd.askTools(c.Context(), k)
	if err != nil {
		return err
	}
	seen, err := broker.OpenSeen(cmd.ServersFolder())
	if err != nil {
		return err
	}
	list := []toolJSON{}
	for _, n := range stub.Names(listing.Tools) {
		change, err := seen.ChangeOf(c.Context(), k.Name, n.Tool)
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
		return cmd.printJSON(all)
	}
	for _, out := range listing.LeftOut {
		cmd.say("warning", "left out: "+plain(out))
	}
	return cmd.printTools(list)
}

func (cmd serverCommand) printTools(list []toolJSON) error {
	rows := [][]string{{"MAY", "TOOL"}}
	for _, t := range list {
		may := t.Verdict
		if t.Changed {
			may += ", changed"
		}
		rows = append(rows, []string{may, plain(t.Signature)})
		if t.Description != "" {
			rows = append(rows, []string{"", "  " + plain(textsafe.Line(t.Description, 120))})
		}
	}
	return cmd.printTable(rows)
}

// askTools connects to a server and gives its tools.
func (cmd serverCommand) askTools(ctx context.Context, k *app.Server) (upstream.Listing, upstream.Info, error) {
	conn, err := cmd.Dial(ctx, k)
	if err != nil {
		return upstream.Listing{}, upstream.Info{}, cmd.withLogin(k, err)
	}
	defer conn.Close()
	listing, err := conn.List(ctx)
	if err != nil {
		return upstream.Listing{}, upstream.Info{}, cmd.withLogin(k, err)
	}
	return listing, conn.Info(), nil
}

// withLogin says how to log in to a server that wants that, and of another one that
// cannot be used what it said itself.
func (cmd serverCommand) withLogin(k *app.Server, err error) error {
	if upstream.ReasonOf(err) != upstream.Unauthorized || k.Login == nil {
		f := fault.Of(err)
		if said := itSaid(err); said != "" && f.Hint == "" {
			return fault.New(f.Kind, "%s", f.Message).WithHint("%s", plain(said)).WithCause(err)
		}
		return err
	}
	return fault.New(fault.Denied, "%s", fault.Of(err).Message).WithHint("paddock server login %s", k.Name).WithCause(err)
}
