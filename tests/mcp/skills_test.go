package mcp

import (
	"testing"

	"paddock/tests/mcp/suite"
)

// What comes with paddock is served by the extension for skills.
func TestConformanceOfTheSkillsExtension(t *testing.T) {
	packages := suite.Install(t)
	s := serve(t, "--dev")
	for _, scenario := range []string{"sep-2640-skills-enumeration", "sep-2640-skills-directory", "sep-2640-skills-manifest"} {
		t.Run(scenario, func(t *testing.T) { packages.Scenario(t, s.url, scenario, "2026-07-28") })
	}
}
