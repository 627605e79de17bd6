package app

import (
	"slices"

	"paddock/internal/web"
	webapprovals "paddock/internal/web/approvals"
	"paddock/internal/web/files"
	"paddock/internal/web/preview"
)

// HTTPPaths are all paths of the HTTP server, where the MCP endpoint is at mcp.
func HTTPPaths(mcp string) []web.Path {
	return slices.Concat(web.Paths(mcp), files.Paths(), preview.Paths(), webapprovals.Paths())
}
