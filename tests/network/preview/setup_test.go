// Package preview proves previews with the built paddock: programs of real Linux
// sessions that serve, and clients that open what they serve as browsers do.
package preview

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"paddock/internal/sandbox/sandboxtest"
	"paddock/tests/paddocktest"
)

// server is one `paddock serve`.
type server struct {
	*paddocktest.Server
	t     *testing.T
	state string
	env   []string
	base  string // the API's
}

// start starts one with a state folder of its own.
func start(t *testing.T, env ...string) *server {
	t.Helper()
	paddocktest.Require(t, "linux")
	s := &server{t: t, state: t.TempDir(), env: env}
	paddocktest.Admit(t, filepath.Dir(s.state), s.state)
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *server) start() {
	s.t.Helper()
	s.Server = paddocktest.Serve(s.t, s.state, paddocktest.Environment(s.t, s.state, s.env...), "--isolation", "linux")
	s.base = s.Base()
}

// stop ends it gently.
func (s *server) stop() {
	if code := s.Stop(); code != 0 {
		s.t.Errorf("it ends with %d\n%s", code, s.Log())
	}
}

// paddock is a command of a person at this machine.
func (s *server) paddock(args ...string) (stdout string, err error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), paddocktest.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, sandboxtest.Binary(s.t), args...)
	cmd.Env = paddocktest.Environment(s.t, s.state, s.env...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil || said.Len() > 0 {
		s.t.Logf("paddock %s: %v\n%s", strings.Join(args, " "), err, &said)
	}
	return strings.TrimSpace(string(out)), err
}

// call calls one of paddock's tools, and reads its result into out.
func (s *server) call(tool string, args map[string]any, out any) {
	s.t.Helper()
	ask, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": tool, "arguments": args}})
	if err != nil {
		s.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(s.t.Context(), "POST", s.base+"/mcp", bytes.NewReader(ask))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.Token)
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	var got struct {
		Result struct {
			IsError bool            `json:"isError"`
			Content json.RawMessage `json:"structuredContent"`
		} `json:"result"`
	}
	if err := json.NewDecoder(res.Body).Decode(&got); err != nil {
		s.t.Fatalf("%s: got error %v, want none", tool, err)
	} else if got.Result.IsError {
		s.t.Fatalf("%s: got.Result.IsError = true, want false", tool)
	}
	if out == nil {
		return
	}
	if err := json.Unmarshal(got.Result.Content, out); err != nil {
		s.t.Fatalf("%s gives %s: %v", tool, got.Result.Content, err)
	}
}

// session makes one.
func (s *server) session() string {
	s.t.Helper()
	var made struct {
		ID string `json:"session_id"`
	}
	s.call("create_session", map[string]any{}, &made)
	return made.ID
}

// run runs a program in a session, and gives what it printed.
func (s *server) run(id, language, code string) string {
	s.t.Helper()
	var e struct {
		Success bool   `json:"success"`
		Stdout  string `json:"stdout"`
		Stderr  string `json:"stderr"`
	}
	s.call("execute_code", map[string]any{"session_id": id, "language": language, "code": code, "timeout": int(paddocktest.Timeout.Seconds())}, &e)
	if !e.Success {
		s.t.Fatalf("%s\nfails: %s%s", code, e.Stdout, e.Stderr)
	}
	return strings.TrimSpace(e.Stdout)
}

// browser has cookies, and takes all that is below localhost for this machine.
func browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(address)
		if err == nil && strings.HasSuffix(host, ".localhost") {
			address = net.JoinHostPort("127.0.0.1", port)
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Jar: jar, Transport: transport, Timeout: paddocktest.Timeout}
}

// get gives the status and the body of what lies at an address.
func get(t *testing.T, c *http.Client, at string, headers ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", at, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(all)
}

// origin is the address of a preview, of its link.
func origin(t *testing.T, link string) string {
	t.Helper()
	u, err := url.Parse(link)
	if err != nil {
		t.Fatalf("the link is %q: got error %v, want none", link, err)
	}
	if !strings.HasSuffix(u.Hostname(), ".localhost") {
		t.Fatalf(`the link is %q: u.Hostname() = %q, want it to end with ".localhost"`, link, u.Hostname())
	}
	return u.Scheme + "://" + u.Host
}
