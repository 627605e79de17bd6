package web

import "testing"

// TestAddressesThatNameSessionsAreTheEndpoints: whatever the name, it is one route, also
// to those who count requests by it.
func TestAddressesThatNameSessionsAreTheEndpoints(t *testing.T) {
	s := &Server{config: Config{Path: "/a/mcp"}}
	for path, want := range map[string]string{
		"/a/mcp/s/work": "/a/mcp", "/a/mcp/s/": "/a/mcp", "/a/mcp/s/x/y": "/a/mcp", "/a/mcp/sx": "/a/mcp/sx", "/mcp/s/work": "/mcp/s/work",
		wellKnown + "/a/mcp/s/work": wellKnown,
	} {
		if got := s.prefix(path); got != want {
			t.Errorf("%s counts as %s, not %s", path, got, want)
		}
	}
}
