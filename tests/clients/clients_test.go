// Package clients runs real MCP clients against the built binary.
package clients

import (
	"os/exec"
	"strings"
	"testing"

	"paddock/internal/sandbox/sandboxtest"
)

// TestTheOfficialTypeScriptClientOverStdio runs stdio.mjs: the documented
// examples of the systems that paddock unites, through the SDK from npm.
func TestTheOfficialTypeScriptClientOverStdio(t *testing.T) {
	node, err := exec.LookPath("node")
	sandboxtest.Require(t, "node", err == nil, "there is no node on this machine")
	install, err := exec.CommandContext(t.Context(), "bash", "install.sh").Output()
	sandboxtest.Require(t, "node", err == nil, "the clients from npm cannot be installed here (make clients)")

	state := t.TempDir()
	cmd := exec.CommandContext(t.Context(), node, "stdio.mjs", sandboxtest.Binary(t), state, strings.TrimSpace(string(install)))
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}
