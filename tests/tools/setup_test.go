// Package tools proves other MCP servers as functions: with the built paddock, over
// stdio and over HTTP, with the interpreters that programs really get, and servers that
// others wrote.
package tools

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/mcpserver"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/tests/paddocktest"
)

// setting is how a test uses paddock.
type setting struct {
	transport string // stdio or HTTP
	isolation string
}

func (s setting) String() string { return s.isolation + " over " + s.transport }

// everywhere is what the most important tests are run in.
var everywhere = []setting{{"stdio", "wasm"}, {"HTTP", "wasm"}, {"stdio", "linux"}}

// inEach runs a test in each setting; with gives what its paddock is made with.
func inEach(t *testing.T, settings []setting, with func(t *testing.T) options, f func(t *testing.T, m *model)) {
	for _, s := range settings {
		t.Run(s.String(), func(t *testing.T) {
			o := with(t)
			o.setting = s
			f(t, open(t, o))
		})
	}
}

// options are what a paddock is made with.
type options struct {
	setting
	config  string   // paddock.toml
	env     []string // variables
	allowed []string // the allow-list
}

// model is a model's end of a connection to a paddock.
type model struct {
	*sdk.ClientSession
	isolation string
	logged    func() string // what paddock has written to stderr
	session   string        // which the first result named
	dir       string        // of paddock's state and configuration
	pid       int           // over stdio
}

// open starts a paddock and connects to it. Both end with the test.
func open(t testing.TB, o options) *model {
	t.Helper()
	dir := sandboxtest.Memory(t)
	requireSetting(t, o.setting)
	paddocktest.Admit(t, filepath.Dir(dir), dir)
	file := filepath.Join(dir, "paddock.toml")
	if err := os.WriteFile(file, []byte(o.config), 0o600); err != nil {
		t.Fatal(err)
	}
	allowed := strings.Join(o.allowed, ",")
	if o.allowed == nil {
		allowed = "127.0.0.1:*!private"
	}
	env := append(paddocktest.Environment(t, filepath.Join(dir, "state")), "PADDOCK_CONFIG="+file, "PADDOCK_MCP_ALLOWLIST="+allowed, "PADDOCK_SANDBOX_ISOLATION="+o.isolation)
	m := &model{isolation: o.isolation, dir: dir}
	m.connect(t, o.transport, append(env, o.env...))
	return m
}

var linux struct {
	once   sync.Once
	reason string // why nothing runs in it; empty: it does
}

// requireSetting skips a test whose isolation there is not.
func requireSetting(t testing.TB, s setting) {
	t.Helper()
	if s.isolation != "linux" {
		return
	}
	linux.once.Do(func() {
		for _, language := range []string{"python", "javascript"} {
			cmd := exec.CommandContext(t.Context(), sandboxtest.Binary(t), "run", "--isolation", "linux", "-l", language, "-c", "1")
			cmd.Env = paddocktest.Environment(t, t.TempDir())
			if out, err := cmd.CombinedOutput(); err != nil {
				linux.reason = fmt.Sprintf("%s: %s", language, out)
			}
		}
	})
	sandboxtest.Require(t, "linux", linux.reason == "", linux.reason)
}

func (m *model) connect(t testing.TB, how string, env []string) {
	t.Helper()
	if how == "HTTP" {
		s := paddocktest.Serve(t, filepath.Join(m.dir, "state"), env, "--log-level", "debug")
		m.logged = s.Log
		m.ClientSession = paddocktest.Open(t, &sdk.StreamableClientTransport{Endpoint: s.URL, HTTPClient: &http.Client{Transport: s}})
	} else {
		log, err := os.Create(filepath.Join(m.dir, "log"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { log.Close() })
		m.logged = func() string {
			text, err := os.ReadFile(log.Name())
			if err != nil {
				t.Error(err)
			}
			return string(text)
		}
		c := paddocktest.Connect(t, env, log, "--log-level", "debug")
		m.ClientSession, m.pid = c.ClientSession, c.Cmd.Process.Pid
	}
	t.Cleanup(func() {
		if m.Close(); t.Failed() {
			t.Logf("paddock's log:\n%.20000s", m.logged())
		}
	})
}

// call calls one of paddock's tools, and reads what it answers into out (nil: nothing),
// unless it failed.
func (m *model) call(t *testing.T, tool string, args map[string]any, out any) *sdk.CallToolResult {
	t.Helper()
	if m.session != "" && args["session_id"] == nil && tool != "create_session" {
		args = maps.Clone(args)
		args["session_id"] = m.session
	}
	res, failed := paddocktest.Call(t, m.ClientSession, tool, args, out)
	if all, ok := res.StructuredContent.(map[string]any); ok && m.session == "" {
		m.session, _ = all["session_id"].(string)
	}
	if failed != nil && out != nil {
		t.Fatalf("%s: %s", tool, failed.Text)
	}
	return res
}

// bind binds a server to the connection's session.
func (m *model) bind(t *testing.T, name, url string) {
	t.Helper()
	var bound struct{ Package string }
	m.call(t, "mcp_bind_http", map[string]any{"name": name, "url": url}, &bound)
	if bound.Package != "servers."+strings.ReplaceAll(name, "-", "_") {
		t.Errorf("it is bound as %q", bound.Package)
	}
}

// waitFor waits until programs find the servers' files: a run does not wait for long for
// a server that has never been listed, and here all of them are started at once.
func (m *model) waitFor(t *testing.T, packages ...string) {
	t.Helper()
	// A server that is not known yet has a folder, too, that says so.
	code := fmt.Sprintf("import os\nprint(*(p for p in %q.split() if not os.path.exists(f'/servers/{p}/schemas.json')))", strings.Join(packages, " "))
	for until := time.Now().Add(paddocktest.Timeout); ; {
		missing := m.run(t, "python", code).Stdout
		if missing == "\n" {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("there are no files of %s", missing)
		}
	}
}

// run runs a program in the connection's session.
func (m *model) run(t *testing.T, language, code string) mcpserver.Execution {
	t.Helper()
	var e mcpserver.Execution
	m.call(t, "execute_code", map[string]any{"language": language, "code": code, "timeout": int(paddocktest.Timeout.Seconds())}, &e)
	if e.Isolation != m.isolation {
		t.Errorf("it ran in %q", e.Isolation)
	}
	return e
}

// prints runs a program that has to succeed and print that.
func (m *model) prints(t *testing.T, language, code, want string) mcpserver.Execution {
	t.Helper()
	e := m.run(t, language, code)
	if !e.Success || e.Stdout != want {
		t.Errorf("%s\nprints %q, want %q; stderr %s; error %+v", code, e.Stdout, want, e.Stderr, e.Error)
	}
	return e
}
