package app

import (
	"slices"

	"paddock/console"
	"paddock/internal/web"
	webapprovals "paddock/internal/web/approvals"
	webconsole "paddock/internal/web/console"
	"paddock/internal/web/files"
	"paddock/internal/web/preview"
)

// ConsoleBuilt reports whether this paddock has its console.
func ConsoleBuilt() bool { return webconsole.Built(console.Files()) }

// HTTPPaths are all paths of the HTTP server, where the MCP endpoint is at mcp.
func HTTPPaths(mcp string) []web.Path {
	return slices.Concat(web.Paths(mcp), files.Paths(), preview.Paths(), webapprovals.Paths(), webconsole.Paths())
}
