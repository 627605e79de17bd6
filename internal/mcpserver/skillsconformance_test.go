package mcpserver

import (
	"testing"

	"paddock/tests/mcp/suite"
)

// The scenarios of extensions are in no revision's requirements.
func TestConformanceOfTheSkillsExtension(t *testing.T) {
	packages := suite.Install(t)
	url := serveFixtures(t)
	for _, scenario := range []string{"sep-2640-skills-enumeration", "sep-2640-skills-directory", "sep-2640-skills-manifest"} {
		t.Run(scenario, func(t *testing.T) { packages.Scenario(t, url, scenario, "2026-07-28") })
	}
}
