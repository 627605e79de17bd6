// Package linux does real work in Linux sessions as a model does: with the built
// paddock, an image that has numpy, pandas, matplotlib, Node, git and a compiler,
// and MCP over stdio.
package linux

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/mcpserver"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/tests/image/imported"
)

// shared is what all tests use.
var shared struct {
	once   sync.Once
	dir    string
	reason string // why nothing runs here; empty: it does
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

// image is what the sessions of the tests run in: one of Debian's packages, which root
// alone can build, else this machine's own programs.
func image() string {
	if os.Geteuid() == 0 {
		return imported.Full
	}
	return "host"
}

// withPackages makes sure of the image that has numpy, pandas, git and a compiler.
func withPackages(t *testing.T) {
	t.Helper()
	sandboxtest.Require(t, "images", image() == "full", "only root can build the test images")
}

// prepare gives a folder with the binary and, in its state, the image.
func prepare(t *testing.T) string {
	t.Helper()
	shared.once.Do(func() {
		var err error
		if shared.dir, err = os.MkdirTemp("", "paddock-work-"); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(shared.dir, 0o755); err != nil { // for whom the sandboxes run as
			t.Fatal(err)
		}
		data, err := os.ReadFile(sandboxtest.Binary(t)) // a fresh one goes with its test
		if err == nil {
			err = os.WriteFile(filepath.Join(shared.dir, "paddock"), data, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		if image() == "full" {
			imported.Link(t, filepath.Join(shared.dir, "state"))
		}
		if out, err := paddock(t, "run", "--isolation", "linux", "-l", "bash", "-c", "true").CombinedOutput(); err != nil {
			shared.reason = string(out)
		}
	})
	sandboxtest.Require(t, "linux", shared.reason == "" && shared.dir != "", shared.reason)
	return shared.dir
}

// paddock is a command of the binary, with the image as its default.
func paddock(t *testing.T, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(shared.dir, "paddock"), args...)
	cmd.Env = append(os.Environ(), "PADDOCK_STATE_DIR="+filepath.Join(shared.dir, "state"), "PADDOCK_CACHE_DIR="+sandboxtest.PreparedCache(t),
		"PADDOCK_SANDBOX_IMAGE="+image(), "PADDOCK_PACKAGES_PUBLIC=false", "PADDOCK_SESSIONS_MAX_MEMORY_MB=1024", "PADDOCK_SANDBOX_MEMORY_MB=1024")
	return cmd
}

// client is a model's end of a connection.
type client struct {
	*sdk.ClientSession
	progress chan string
	server   *exec.Cmd
}

// connect starts a paddock of its own for a client whose sessions have that isolation.
func connect(t *testing.T, isolation string) *client {
	t.Helper()
	return connectFor(t, isolation, "core,files,sandbox")
}

// connectFor is connect with these tools.
func connectFor(t *testing.T, isolation, tools string) *client {
	t.Helper()
	prepare(t)
	c := &client{progress: make(chan string, 1000)}
	made := sdk.NewClient(&sdk.Implementation{Name: "paddock-tests", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, req *sdk.ProgressNotificationClientRequest) { c.progress <- req.Params.Message },
	})
	var err error
	cmd := paddock(t, "mcp", "--isolation", isolation, "--tools", tools)
	cmd.Stderr = os.Stderr
	c.server = cmd
	if c.ClientSession, err = made.Connect(t.Context(), &sdk.CommandTransport{Command: cmd, TerminateDuration: timeout}, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// timeout is how long a call may take here.
const timeout = 60 * time.Second

// call uses a tool.
func (c *client) call(t *testing.T, tool string, arguments map[string]any, into any) *sdk.CallToolResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	res, err := c.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		t.Fatalf("%s %v: %v", tool, arguments, err)
	}
	if res.IsError {
		t.Fatalf("%s %v: %v", tool, arguments, res.Content[0].(*sdk.TextContent).Text)
	}
	if into != nil {
		data, err := json.Marshal(res.StructuredContent)
		if err == nil {
			err = json.Unmarshal(data, into)
		}
		if err != nil {
			t.Fatalf("%s: %v", tool, err)
		}
	}
	return res
}

// ran is a run's result, with the kinds of its content blocks.
type ran struct {
	mcpserver.Execution
	blocks []string // "text", "image/png", "resource text/html"
}

func (c *client) run(t *testing.T, language, code string, more ...any) (r ran) {
	t.Helper()
	arguments := map[string]any{"language": language, "code": code}
	for k := 0; k+1 < len(more); k += 2 {
		arguments[more[k].(string)] = more[k+1]
	}
	res := c.call(t, "execute_code", arguments, &r.Execution)
	for _, block := range res.Content {
		switch b := block.(type) {
		case *sdk.TextContent:
			r.blocks = append(r.blocks, "text")
		case *sdk.ImageContent:
			r.blocks = append(r.blocks, b.MIMEType)
		case *sdk.EmbeddedResource:
			r.blocks = append(r.blocks, "resource "+b.Resource.MIMEType)
		}
	}
	return r
}

// program is something to run, and what has to come of it.
type program struct {
	name, code string
	stdout     string // "~" before it: only a part of it
	stderr     string // likewise; empty: not looked at
	result     string // likewise
	exit       int
	error      string // the error's type, or what is in "type: message (line n)"
	hint       string // a part of it
	blocks     string // the content blocks with something to see
	files      string // what changed, with spaces
}

// runAll runs programs one after the other in one session.
func runAll(t *testing.T, c *client, language string, programs []program) {
	t.Helper()
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) { p.check(t, c.run(t, language, p.code)) })
	}
}

func (p program) check(t *testing.T, r ran) {
	t.Helper()
	failed := ""
	if e := r.Error; e != nil {
		failed = e.Type + ": " + e.Message
		if p.hint != "" && !strings.Contains(e.Hint, p.hint) || p.hint == "" && strings.Contains(e.Hint, "undefined") {
			t.Errorf("the hint is %q", e.Hint)
		}
	}
	if (p.error == "") != (failed == "") || !strings.Contains(failed, p.error) {
		t.Errorf("the error is %q", failed)
	}
	for _, w := range []struct{ what, got, want string }{{"stdout", r.Stdout, p.stdout}, {"result", r.Result, p.result}, {"stderr", r.Stderr, p.stderr}} {
		part, isPart := strings.CutPrefix(w.want, "~")
		if isPart && !strings.Contains(w.got, part) || !isPart && w.got != w.want && (w.what != "stderr" || w.want != "") {
			t.Errorf("%s is %.2000q", w.what, w.got)
		}
	}
	switch {
	case r.ExitCode != p.exit:
		t.Errorf("r.ExitCode = %v, want %v; exit code %d, success %v, stopped by %q, notice %q",
			r.ExitCode, p.exit, r.ExitCode, r.Success, r.StoppedBy, r.Notice)
	case r.Success != (p.exit == 0 && p.error == ""):
		t.Errorf("r.Success = %v, want %v; exit code %d, success %v, stopped by %q, notice %q",
			r.Success, p.exit == 0 && p.error == "", r.ExitCode, r.Success, r.StoppedBy, r.Notice)
	case r.StoppedBy != "":
		t.Errorf(`r.StoppedBy = %q, want ""`, r.StoppedBy)
	case r.Notice != "":
		t.Errorf(`r.Notice = %q, want ""`, r.Notice)
	case r.Isolation == "":
		t.Errorf("r.Isolation is empty, want a text; exit code %d, success %v, stopped by %q, notice %q",
			r.ExitCode, r.Success, r.StoppedBy, r.Notice)
	}
	seen := slices.DeleteFunc(slices.Clone(r.blocks), func(b string) bool { return b == "text" })
	if got := strings.Join(seen, ", "); got != p.blocks {
		t.Errorf("there is to see: %s", got)
	}
	var files []string
	for _, f := range r.FilesChanged {
		files = append(files, f.Path)
	}
	if got := strings.Join(files, " "); got != p.files {
		t.Errorf("changed are %s", got)
	}
	if t.Failed() {
		t.Logf("stderr: %.2000s", r.Stderr)
	}
}
