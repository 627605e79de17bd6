package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"paddock/internal/app"
	"paddock/internal/sandbox/sandboxtest"
)

// paddock is the test binary as paddock.
func paddock(t *testing.T, fake bool, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Args = append([]string{"paddock"}, args...)
	cmd.Env = append(os.Environ(), "PADDOCK_STATE_DIR="+t.TempDir(), "PADDOCK_CACHE_DIR="+sandboxtest.PreparedCache(t), "GORACE="+promptly)
	if fake {
		cmd.Env = append(cmd.Env, fakeEnv+"=1")
	}
	return cmd
}

// client is the other end of paddock mcp.
type client struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	out    io.Closer // below stdout
	stdout *bufio.Reader
	hello  string // the answer to initialize
}

// startMCP starts paddock mcp with the fake and shakes hands.
func startMCP(t *testing.T, args ...string) *client {
	t.Helper()
	return startWith(t, paddock(t, true, append([]string{"mcp"}, args...)...))
}

// startWith starts an MCP server and shakes hands.
func startWith(t *testing.T, cmd *exec.Cmd) *client {
	t.Helper()
	c := &client{t: t, cmd: cmd}
	c.cmd.Stderr = os.Stderr
	var err error
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out, c.stdout = stdout, bufio.NewReader(stdout)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	c.hello = c.receive()
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return c
}

func (c *client) send(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.stdin, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

// receive gives the next line, which has to be of the protocol.
func (c *client) receive() string {
	c.t.Helper()
	line, err := c.stdout.ReadString('\n')
	if err != nil {
		c.t.Fatalf("got error %v, want none: %s", err, line)
	}
	if !json.Valid([]byte(line)) {
		c.t.Fatalf("it printed %q, want JSON", line)
	}
	return line
}

// ends checks that nothing more comes, and that all was well.
func (c *client) ends() {
	c.t.Helper()
	if rest, err := io.ReadAll(c.stdout); err != nil {
		c.t.Errorf("at the end: got error %v, want none: %s", err, rest)
	} else if len(rest) > 0 {
		c.t.Errorf("at the end: got %v, want none", rest)
	}
	if err := c.cmd.Wait(); err != nil {
		c.t.Errorf("it ended with %v", err)
	}
}

func TestMCPServesWhatTheConfigurationSays(t *testing.T) {
	t.Setenv("PADDOCK_SERVER_NAME", "mine")
	t.Setenv("PADDOCK_SERVER_VERSION", "7")
	t.Setenv("PADDOCK_SERVER_INSTRUCTIONS", "be brief")
	c := startMCP(t, "--tools", "files")
	for _, want := range []string{`"name":"mine"`, `"version":"7"`, `"instructions":"be brief"`} {
		if !strings.Contains(c.hello, want) {
			t.Errorf("%s is not in %s", want, c.hello)
		}
	}
	c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	if list := c.receive(); !strings.Contains(list, `"read_file"`) {
		t.Errorf("the tools: got %q, want %q in it", list, `"read_file"`)
	} else if strings.Contains(list, `"execute_code"`) {
		t.Errorf("the tools: got %q, want no %q in it", list, `"execute_code"`)
	}
	c.stdin.Close()
	c.ends()
}

// A client learns the version that paddock was linked with.
func TestMCPTellsItsOwnVersion(t *testing.T) {
	before := version
	t.Cleanup(func() { version = before })
	version = "7.8.9"
	t.Setenv("PADDOCK_STATE_DIR", t.TempDir())
	t.Setenv("PADDOCK_CACHE_DIR", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Chdir(t.TempDir())
	hello := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	var stdout, stderr bytes.Buffer
	p := &cli{stdin: strings.NewReader(hello + "\n"), stdout: &stdout, stderr: &stderr, Env: app.Env{NewBackends: newFake}}
	if code := p.main(t.Context(), []string{"mcp"}); code != 0 {
		t.Fatalf("paddock mcp ends with %d, want 0: %s", code, &stderr)
	}
	var answer struct {
		Result struct {
			ServerInfo struct{ Version string }
		}
	}
	if err := json.Unmarshal(stdout.Bytes(), &answer); err != nil {
		t.Fatalf("the answer to initialize is %q: %v", &stdout, err)
	}
	if got := answer.Result.ServerInfo.Version; got != version {
		t.Errorf("initialize gives the version %q, want %q", got, version)
	}
}

func TestMCPRunsCodeAndEndsWithItsInput(t *testing.T) {
	c := startMCP(t, "--log-level", "error")
	if !strings.Contains(c.hello, `"name":"paddock"`) {
		t.Errorf("it is %s", c.hello)
	}
	for _, call := range []struct{ code, want string }{
		{"x = 42", `"success":true`},
		{"print(x * 2)", `"stdout":"84\n"`},
	} {
		code, err := json.Marshal(call.code)
		if err != nil {
			t.Fatal(err)
		}
		c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"execute_code","arguments":{"language":"python","code":` + string(code) + `}}}`)
		if got := c.receive(); !strings.Contains(got, call.want) {
			t.Errorf("%s gives %s", call.code, got)
		}
	}
	c.stdin.Close()
	c.ends()
}
