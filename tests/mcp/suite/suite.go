// Package suite has what npm offers for testing MCP, on the Node that it needs:
// the official conformance suite, the inspector and the clients of the SDKs, as
// tests/mcp/package-lock.json pins them.
package suite

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"paddock/internal/sandbox/sandboxtest"
)

// Packages are the installed packages.
type Packages struct {
	// Dir holds their node_modules.
	Dir string
}

// Install has the packages installed, unless they are. Where they cannot be,
// the test is skipped.
func Install(t testing.TB) Packages {
	t.Helper()
	return install(t)
}

// Clients installs the libraries for agents, whose lock is in tests/mcp/clients.
func Clients(t testing.TB) Packages {
	t.Helper()
	return install(t, "clients")
}

func install(t testing.TB, which ...string) Packages {
	t.Helper()
	sandboxtest.Require(t, "node", runtime.GOOS == "linux", "npm has a Node to test with for Linux only")
	script := filepath.Join(folder(t), "install.sh")
	cmd := exec.CommandContext(t.Context(), "bash", append([]string{script}, which...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	sandboxtest.Require(t, "node", err == nil, "the packages from npm cannot be installed here (make suites)")
	return Packages{Dir: strings.TrimSpace(string(out))}
}

// folder is tests/mcp.
func folder(t testing.TB) string {
	t.Helper()
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		t.Fatal("where this file is, is not known")
	}
	return filepath.Dir(filepath.Dir(file))
}

// Node runs a script. What V8 has compiled of the packages is kept beside them.
func (p Packages) Node(ctx context.Context, script string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.Bin("node"), append([]string{script}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+p.Bin("")+string(os.PathListSeparator)+os.Getenv("PATH"), "NODE_COMPILE_CACHE="+filepath.Join(p.Dir, "compiled"))
	return cmd
}

// Program runs a program of one of the packages.
func (p Packages) Program(ctx context.Context, name string, args ...string) *exec.Cmd {
	return p.Node(ctx, p.Bin(name), args...)
}

// Bin is where a program of one of the packages lies.
func (p Packages) Bin(name string) string {
	return filepath.Join(p.Dir, "node_modules", ".bin", name)
}
