// Package joined proves the network of sessions with the built paddock, over MCP: what
// the operator allows, what a session is created with, what a program sees of it, and
// what is written down.
package joined

import (
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/audit"
	"paddock/internal/mcpserver"
	"paddock/tests/paddocktest"
)

// much is what a site answers with at /much.
var much = make([]byte, 4<<20)

// site is a server on this host, which answers with its name, the method and the path.
type site struct {
	*httptest.Server
	address string // host:port
}

func open(t testing.TB, name string, secure bool) site {
	t.Helper()
	s := paddocktest.Site(t, secure, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/much" {
			_, _ = w.Write(much)
			return
		}
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s%s", name, r.Method, r.URL.Path, body)
	}))
	return site{s, s.Listener.Addr().String()}
}

// rule allows it, although it is not a public host.
func (s site) rule() string { return s.address + "!private" }

// model is a model's end of a connection to a paddock.
type model struct {
	*sdk.ClientSession
	state string
}

// start starts a paddock that serves over stdio, and connects to it.
func start(t testing.TB, state, isolation string, allow []string, env ...string) *model {
	t.Helper()
	paddocktest.Admit(t, filepath.Dir(state), state)
	args := []string{"--isolation", isolation}
	for _, rule := range allow {
		args = append(args, "--net-allow", rule)
	}
	c := paddocktest.Connect(t, environment(t, state, env...), os.Stderr, args...)
	return &model{c.ClientSession, state}
}

func environment(t testing.TB, state string, more ...string) []string {
	return paddocktest.Environment(t, state, append([]string{"PADDOCK_SANDBOX_POOL=1"}, more...)...)
}

// call calls one of paddock's tools, and reads what it answers into out; the error is
// the tool's.
func (m *model) call(t testing.TB, tool string, args map[string]any, out any) (failed string) {
	t.Helper()
	if _, f := paddocktest.Call(t, m.ClientSession, tool, args, out); f != nil {
		return f.Text
	}
	return ""
}

// create makes a session; nil: without a network of its own.
func (m *model) create(t testing.TB, network []string) string {
	t.Helper()
	args := map[string]any{}
	if network != nil {
		args["network"] = network
	}
	var made struct {
		ID string `json:"session_id"`
	}
	if failed := m.call(t, "create_session", args, &made); failed != "" {
		t.Fatal(failed)
	}
	return made.ID
}

// prints runs a program in a session, which has to print that.
func (m *model) prints(t testing.TB, id, language, code, want string) mcpserver.Execution {
	t.Helper()
	var e mcpserver.Execution
	if failed := m.call(t, "execute_code", map[string]any{"session_id": id, "language": language, "code": code, "timeout": int(paddocktest.Timeout.Seconds())}, &e); failed != "" {
		t.Fatal(failed)
	}
	if !e.Success {
		t.Errorf("%s\nfails, want success: stdout %q; stderr %s; error %+v", code, e.Stdout, e.Stderr, e.Error)
	} else if got := strings.TrimSpace(e.Stdout); got != want {
		t.Errorf("%s\nprints %q, want %q; stderr %s", code, got, want, e.Stderr)
	}
	return e
}

// requests are the audit log's records of requests to a target, each as its verdict and
// the rule that allowed it.
func requests(t testing.TB, state, id, target string) (all []string) {
	t.Helper()
	for r, err := range audit.Read(filepath.Join(state, "audit"), audit.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Action == audit.Egress && r.Session == id && r.Target == target {
			all = append(all, strings.TrimSpace(r.Verdict+" "+r.Sent.Rule))
		}
	}
	return all
}

// believed is a file with the certificate of a server, which the paddock's process takes
// for those of the system.
func believed(t testing.TB, s site) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "roots.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.TLS.Certificates[0].Certificate[0]})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return "SSL_CERT_FILE=" + file
}
