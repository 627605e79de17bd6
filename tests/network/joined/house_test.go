// Package joined proves the network of sessions with the built paddock, over MCP: what
// the operator allows, what a session is created with, what a program sees of it, and
// what is written down.
package joined

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/audit"
	"paddock/internal/mcpserver"
	"paddock/internal/sandbox/sandboxtest"
)

// patience bounds whatever a test waits for.
const patience = 2 * time.Minute

// much is what a site answers with at /much.
var much = make([]byte, 4<<20)

// site is a server on this host, which answers with its name, the method and the path.
type site struct {
	*httptest.Server
	address string // host:port
}

func open(t testing.TB, name string, secure bool) site {
	t.Helper()
	// Programs of machines have 127.0.0.1 for themselves; the rest of its net is this host's.
	at := "127.0.0.1"
	if runtime.GOOS == "linux" {
		at = "127.0.0.2"
	}
	l, err := net.Listen("tcp4", at+":0")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/much" {
			_, _ = w.Write(much)
			return
		}
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s%s", name, r.Method, r.URL.Path, body)
	}))
	s.Listener.Close()
	s.Listener, s.Config.ErrorLog = l, log.New(io.Discard, "", 0) // who only looks says nothing
	if secure {
		s.TLS = &tls.Config{Certificates: []tls.Certificate{selfSigned(t, at)}}
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return site{s, l.Addr().String()}
}

// selfSigned is a certificate for an address.
func selfSigned(t testing.TB, address string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.ParseIP(address)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// rule allows it, although it is no public host.
func (s site) rule() string { return s.address + "!private" }

// model is a model's end of a connection to a paddock.
type model struct {
	*sdk.ClientSession
	state string
}

// start starts a paddock that serves over stdio, and connects to it.
func start(t testing.TB, state, isolation string, allow []string, env ...string) *model {
	t.Helper()
	for _, dir := range []string{filepath.Dir(state), state} { // for whom guests run as
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"mcp", "--isolation", isolation}
	for _, rule := range allow {
		args = append(args, "--net-allow", rule)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), sandboxtest.Binary(t), args...)
	cmd.Env, cmd.Stderr = append(environment(t, state), env...), os.Stderr
	c, err := sdk.NewClient(&sdk.Implementation{Name: "tests-of-the-network", Version: "1"}, nil).
		Connect(t.Context(), &sdk.CommandTransport{Command: cmd, TerminateDuration: patience}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() }) // a test that ends one looks at its error
	if _, err := c.ListTools(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return &model{c, state}
}

func environment(t testing.TB, state string) []string {
	return append(os.Environ(), "PADDOCK_STATE_DIR="+state, "PADDOCK_CACHE_DIR="+sandboxtest.PreparedCache(t), "PADDOCK_SANDBOX_IMAGE=host", "PADDOCK_SANDBOX_POOL=1", "PADDOCK_PACKAGES_MACHINE=false", "PADDOCK_CONFIG=")
}

// require skips a test whose isolation there is not.
func require(t testing.TB, isolation string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), sandboxtest.Binary(t), "run", "--isolation", isolation, "-c", "1")
	cmd.Env = environment(t, t.TempDir())
	out, err := cmd.CombinedOutput()
	sandboxtest.Require(t, isolation, err == nil, string(out))
}

// call calls one of paddock's tools, and reads what it answers into out; the error is
// the tool's.
func (m *model) call(t testing.TB, tool string, args map[string]any, out any) (failed string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	res, err := m.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	text, err := json.Marshal(res.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	if res.IsError {
		return string(text)
	}
	if err := json.Unmarshal(text, out); err != nil {
		t.Fatalf("%s gives %s: %v", tool, text, err)
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
	if failed := m.call(t, "execute_code", map[string]any{"session_id": id, "language": language, "code": code, "timeout": int(patience.Seconds())}, &e); failed != "" {
		t.Fatal(failed)
	}
	if !e.Success || strings.TrimSpace(e.Stdout) != want {
		t.Errorf("%s\nprints %q, want %q; stderr %s; error %+v", code, e.Stdout, want, e.Stderr, e.Error)
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
