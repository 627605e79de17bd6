package cli

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"paddock/internal/app"
	"paddock/internal/config"
	"paddock/internal/session"
)

// mcpCommand is paddock mcp.
type mcpCommand struct{ *cli }

func (cmd mcpCommand) command() *cobra.Command {
	c := &cobra.Command{
		Use:   "mcp",
		Short: "Serve an MCP client over stdin and stdout",
		Long: `Serves one MCP client that started paddock: requests on stdin, answers on
stdout, the log on stderr. It ends when stdin does, and on a SIGTERM.

Exit codes: 0 the client hung up, 1 failed, 2 wrong usage.`,
		Example: `  {"mcpServers": {"paddock": {"command": "paddock", "args": ["mcp"]}}}`,
		Args:    count(0, 0, ""),
		RunE:    func(c *cobra.Command, _ []string) error { return cmd.mcp(c) },
	}
	keyFlag(c.Flags(), "tools", "offer these `SETS` of tools, with commas: "+strings.Join(config.ToolSets, ", "))
	keyFlag(c.Flags(), "isolation", "run programs in this `KIND` of sandbox: wasm or linux")
	netFlag(c.Flags())
	secretFlag(c.Flags())
	return c
}

func (cmd mcpCommand) mcp(c *cobra.Command) error {
	if err := cmd.load(c); err != nil {
		return err
	}
	cmd.Transport = app.OverStdio
	a, err := cmd.Open(app.Options{})
	if err != nil {
		return err
	}
	defer a.Close()
	ctx, cancel := context.WithCancel(c.Context())
	var preparing sync.WaitGroup
	defer preparing.Wait()
	defer cancel()
	preparing.Go(func() {
		// A call that comes before it is done waits for it, and gets its failure
		// too: here it is only seen early.
		if err := cmd.prepare(ctx, a.Backends); err != nil && ctx.Err() == nil {
			cmd.Log.Error("the interpreters cannot be prepared", "cause", err)
		}
	})
	server, err := a.NewMCP()
	if err != nil {
		return err
	}
	defer app.Resume(server, session.Local)()
	err = server.ServeStdio(ctx, readCloser(cmd.stdin), writeCloser(cmd.stdout))
	if errors.Is(err, context.Canceled) && c.Context().Err() != nil {
		return nil // it was told to end
	}
	return err
}

func readCloser(r io.Reader) io.ReadCloser {
	if rc, ok := r.(io.ReadCloser); ok {
		return rc
	}
	return io.NopCloser(r)
}

func writeCloser(w io.Writer) io.WriteCloser {
	if wc, ok := w.(io.WriteCloser); ok {
		return wc
	}
	return openEnded{w}
}

type openEnded struct{ io.Writer }

func (openEnded) Close() error { return nil }
