// Package paddocktest runs the built paddock, for tests that use it as its users do: over
// MCP by stdio and HTTP, and from a command line.
package paddocktest

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/sandbox/sandboxtest"
)

// Timeout bounds whatever a test waits for.
const Timeout = 4 * time.Minute

// Environment gives the variables of a paddock with that state folder and without
// settings of this machine. Those in more count, whatever is before.
func Environment(t testing.TB, state string, more ...string) []string {
	t.Helper()
	return append(append(os.Environ(), "PADDOCK_STATE_DIR="+state, "PADDOCK_CACHE_DIR="+sandboxtest.PreparedCache(t), "PADDOCK_CONFIG=",
		"PADDOCK_SANDBOX_IMAGE=host", "PADDOCK_SANDBOX_POOL=0", "PADDOCK_PACKAGES_MACHINE=false", "PADDOCK_VAULT_KEYRING=off"), more...)
}

// Require skips a test where programs do not run in an isolation, as
// [sandboxtest.Require] does. One program is run for all of a process's tests.
func Require(t testing.TB, isolation string) {
	t.Helper()
	tried.Lock()
	defer tried.Unlock()
	if tried.isolations[isolation] == nil {
		cmd := exec.CommandContext(t.Context(), sandboxtest.Binary(t), "run", "--isolation", isolation, "-c", "1")
		cmd.Env = Environment(t, t.TempDir())
		out, err := cmd.CombinedOutput()
		tried.isolations[isolation] = &trial{err == nil, string(out)}
	}
	got := tried.isolations[isolation]
	sandboxtest.Require(t, isolation, got.works, got.said)
}

// tried are the isolations in which a program was run.
var tried = struct {
	sync.Mutex
	isolations map[string]*trial
}{isolations: map[string]*trial{}}

// trial is what came of it.
type trial struct {
	works bool
	said  string
}

// Admit lets the users that guests run as into folders, which are made where there are
// none.
func Admit(t testing.TB, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		err := os.MkdirAll(dir, 0o755)
		if err == nil {
			err = os.Chmod(dir, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Client is a client's end of a connection to a paddock of its own.
type Client struct {
	*sdk.ClientSession
	Cmd *exec.Cmd
}

// Connect starts `paddock mcp` with arguments and connects to it. Both end with the test,
// if they have not before; what it writes on its standard error goes to log.
func Connect(t testing.TB, env []string, log io.Writer, args ...string) *Client {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), sandboxtest.Binary(t), append([]string{"mcp"}, args...)...)
	cmd.Env, cmd.Stderr = env, log
	c := Open(t, &sdk.CommandTransport{Command: cmd, TerminateDuration: Timeout})
	return &Client{c, cmd}
}

// Close hangs up and waits for the process. One that does not end is made to say on its
// log where it waits.
func (c *Client) Close() error {
	late := time.AfterFunc(Timeout/4, func() { _ = c.Cmd.Process.Signal(syscall.SIGQUIT) })
	defer late.Stop()
	return c.ClientSession.Close()
}

// Open connects to a paddock, until the test ends.
func Open(t testing.TB, over sdk.Transport) *sdk.ClientSession {
	t.Helper()
	c, err := sdk.NewClient(&sdk.Implementation{Name: t.Name(), Version: "1"}, nil).Connect(t.Context(), over, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() }) // a test that ends one looks at its error
	// So that it knows what is asked, too, and which arguments are to be headers.
	if _, err := c.ListTools(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return c
}

// Failure is why a tool failed.
type Failure struct {
	Code, Message, Hint string
	Text                string // the result as JSON
}

// Call calls one of paddock's tools, and reads what it answers into out (nil: nothing),
// unless it failed.
func Call(t testing.TB, c *sdk.ClientSession, tool string, args map[string]any, out any) (*sdk.CallToolResult, *Failure) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Timeout)
	defer cancel()
	res, err := c.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	text, err := json.Marshal(res.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	if res.IsError {
		var failed struct{ Error Failure }
		if err := json.Unmarshal(text, &failed); err != nil {
			t.Fatalf("%s gives %s: %v", tool, text, err)
		}
		failed.Error.Text = string(text)
		return res, &failed.Error
	}
	if out != nil {
		if err := json.Unmarshal(text, out); err != nil {
			t.Fatalf("%s gives %s: %v", tool, text, err)
		}
	}
	return res, nil
}
