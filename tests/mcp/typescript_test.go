package mcp

import (
	"path/filepath"
	"testing"

	"paddock/internal/sandbox/sandboxtest"
	"paddock/tests/mcp/suite"
)

// TestTheTypeScriptSDKs runs client.mjs with each SDK, in each transport, and
// each era that it speaks.
func TestTheTypeScriptSDKs(t *testing.T) {
	packages := suite.Install(t)
	s := serve(t)
	for _, c := range []struct{ sdk, era string }{{"v1", "legacy"}, {"v2", "legacy"}, {"v2", "modern"}} {
		for name, target := range map[string]func(*testing.T) []string{
			"http":  func(*testing.T) []string { return []string{s.url, s.token} },
			"stdio": func(t *testing.T) []string { return []string{sandboxtest.Binary(t), t.TempDir()} },
		} {
			t.Run(c.sdk+" "+c.era+" "+name, func(t *testing.T) {
				script := filepath.Join(".", "client.mjs")
				out, err := packages.Node(t.Context(), script, append([]string{c.sdk, c.era, packages.Dir, name}, target(t)...)...).CombinedOutput()
				if t.Logf("%s", out); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
