package mcp

import (
	"testing"

	"paddock/internal/sandbox/sandboxtest"
	"paddock/tests/mcp/suite"
)

// TestTheTypeScriptSDKs runs client.mjs with each SDK, in each transport, and
// each era that it speaks.
func TestTheTypeScriptSDKs(t *testing.T) {
	packages := suite.Install(t)
	state := sandboxtest.Memory(t)
	sandboxes := ""
	t.Run("Linux sandboxes", func(t *testing.T) {
		needLinux(t, state)
		sandboxes = "1"
	})
	t.Setenv("PADDOCK_TOOLS_ENABLED", "core,files,sandbox")
	s := serveIn(t, state)
	for _, c := range []struct{ sdk, era string }{{"v1", "legacy"}, {"v2", "legacy"}, {"v2", "modern"}} {
		for transport, target := range map[string][]string{"http": {s.url, s.token}, "stdio": {sandboxtest.Binary(t)}} {
			t.Run(c.sdk+" "+c.era+" "+transport, func(t *testing.T) {
				cmd := packages.Node(t.Context(), "client.mjs", append([]string{c.sdk, c.era, packages.Dir, transport}, target...)...)
				cmd.Env = append(append(cmd.Env, environment(t, sandboxtest.Memory(t))...), "TEST_SANDBOXES="+sandboxes)
				out, err := cmd.CombinedOutput()
				if t.Logf("%s", out); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
