package mcp

import (
	"testing"

	"paddock/tests/mcp/suite"
)

// The binary as it is shipped: what fails needs a tool, a prompt or a resource
// of the suite's own. With those, see internal/mcpserver.
func TestConformance(t *testing.T) {
	packages := suite.Install(t)
	s := serve(t, "--dev")
	for _, revision := range suite.Revisions {
		t.Run(revision, func(t *testing.T) { packages.Conformance(t, s.url, revision, "testdata") })
	}
}
