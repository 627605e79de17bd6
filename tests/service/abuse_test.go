package service

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"paddock/internal/sandbox/sandboxtest"
	"paddock/tests/paddocktest"
)

// paddock runs a command on the server's state folder.
func (s *server) paddock(args ...string) string {
	s.t.Helper()
	cmd := exec.Command(sandboxtest.Binary(s.t), args...)
	cmd.Env = paddocktest.Environment(s.t, s.state)
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("paddock %s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out))
}

// ask sends one request with a token ("": none), and these headers.
func (s *server) ask(method, path, token, body string, headers ...string) (int, http.Header, string) {
	s.t.Helper()
	r, err := http.NewRequest(method, s.Base()+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(text)
}

// execution is a tools/call of execute_code.
func execution(code, more string) string {
	text, _ := json.Marshal(code)
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"execute_code","arguments":{"language":"python","code":%s%s}}}`, text, more)
}

func sessionOf(t *testing.T, body string) string {
	t.Helper()
	_, rest, _ := strings.Cut(body, `"session_id":"`)
	id, _, ok := strings.Cut(rest, `"`)
	if !ok {
		t.Fatalf("there is no session in %s", body)
	}
	return id
}

// Attacks 68, 72, 75 and 92: who may not come in.
func TestTheEndpoint(t *testing.T) {
	s := start(t)
	run := execution("1", "")
	for name, c := range map[string]struct {
		method, path, token, body string
		headers                   []string
		status                    int
	}{
		"no token":                   {"POST", "/mcp", "", run, nil, 401},
		"another token":              {"POST", "/mcp", strings.Replace(s.Token, "a", "b", -1), run, nil, 401},
		"a token in the URL":         {"POST", "/mcp?access_token=" + s.Token, "", run, nil, 400},
		"metrics without a token":    {"GET", "/metrics", "", "", nil, 401},
		"files without a token":      {"GET", "/v1/sessions/s/files/", "", "", nil, 401},
		"a profiler":                 {"GET", "/debug/pprof/", s.Token, "", nil, 404},
		"a rebound name":             {"POST", "/mcp", s.Token, run, []string{"Host: attacker.example"}, 403},
		"a page elsewhere":           {"POST", "/mcp", s.Token, run, []string{"Origin: https://attacker.example"}, 403},
		"a page without an origin":   {"POST", "/mcp", s.Token, run, []string{"Origin: null"}, 403},
		"a page's form":              {"POST", "/mcp", s.Token, run, []string{"Content-Type: text/plain"}, 415},
		"a forged forwarded host":    {"POST", "/mcp", s.Token, run, []string{"Host: attacker.example", "X-Forwarded-Host: 127.0.0.1"}, 403},
		"what everybody may ask":     {"GET", "/healthz", "", "", nil, 200},
		"who has the token comes in": {"POST", "/mcp", s.Token, run, nil, 200},
	} {
		if status, _, body := s.ask(c.method, c.path, c.token, c.body, c.headers...); status != c.status {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	u, err := url.Parse(s.URL)
	if err != nil || u.Hostname() != "127.0.0.1" {
		t.Fatalf("it serves at %s, %v", s.URL, err)
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && n.IP.To4() != nil {
			if c, err := net.Dial("tcp", net.JoinHostPort(n.IP.String(), u.Port())); err == nil {
				c.Close()
				t.Errorf("it listens at %s", n.IP)
			}
		}
	}
}

// Attacks 27, 28, 61, 69 and 73: a handle is worth nothing to anybody else.
func TestOneTokensThingsAreNotAnothers(t *testing.T) {
	s := start(t)
	one, two := s.paddock("token", "create", "one"), s.paddock("token", "create", "two")
	_, _, body := s.ask("POST", "/mcp", one, execution("open('f','w').write('secret'); x = 1", ""))
	id := sessionOf(t, body)
	_, h, _ := s.ask("POST", "/mcp", one, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"one","version":"1"}}}`)
	mcp := "Mcp-Session-Id: " + h.Get("Mcp-Session-Id")
	arguments := `,"session_id":"` + id + `"`
	for name, c := range map[string]struct {
		method, path, body string
		headers            []string
		status             int
		says               string
	}{
		"its variables":        {"POST", "/mcp", execution("x", arguments), nil, 200, `"not_found"`},
		"its MCP session":      {"POST", "/mcp", execution("1", ""), []string{mcp}, 404, "initialize again"},
		"the end of that":      {"DELETE", "/mcp", "", []string{mcp}, 404, ""},
		"its notifications":    {"GET", "/mcp", "", []string{mcp, "Accept: text/event-stream"}, 404, ""},
		"its file":             {"GET", "/v1/sessions/" + id + "/files/f", "", nil, 404, ""},
		"its archive":          {"GET", "/v1/sessions/" + id + "/archive", "", nil, 404, ""},
		"a link to its file":   {"POST", "/v1/sessions/" + id + "/links", `{"path":"f","method":"GET"}`, nil, 404, ""},
		"an id that is a path": {"GET", "/v1/sessions/..%2f..%2fetc/files/passwd", "", nil, 400, ""},
	} {
		status, _, body := s.ask(c.method, c.path, two, c.body, c.headers...)
		switch {
		case status != c.status:
			t.Errorf("%s: status = %v, want %v: %s", name, status, c.status, body)
		case !strings.Contains(body, c.says):
			t.Errorf("%s: body = %q, want %q in it", name, body, c.says)
		case strings.Contains(body, "secret"):
			t.Errorf(`%s: body = %q, want no "secret" in it`, name, body)
		}
	}
	if status, _, body := s.ask("GET", "/v1/sessions/"+id+"/files/f", one, ""); status != 200 || body != "secret" {
		t.Errorf("its own: %d %s", status, body)
	}
	s.paddock("token", "revoke", "one")
	if status, _, _ := s.ask("POST", "/mcp", one, execution("1", "")); status != 401 {
		t.Errorf("after it was revoked: %d", status)
	}
}

// A tool's result can hand a file to the user: to whoever has the address, once.
func TestALinkInAResult(t *testing.T) {
	s := start(t)
	_, _, body := s.ask("POST", "/mcp", s.Token, execution("open('f.bin','wb').write(bytes(100000))", ""))
	call := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_file","arguments":{"path":"f.bin","link":true,"session_id":%q}}}`, sessionOf(t, body))
	_, _, body = s.ask("POST", "/mcp", s.Token, call)
	_, rest, _ := strings.Cut(body, `"download_url":"`)
	address, _, _ := strings.Cut(rest, `"`)
	path, ok := strings.CutPrefix(address, s.Base())
	if !ok {
		t.Fatalf("the result is %s", body)
	}
	switch status, h, content := s.ask("GET", path, "", ""); {
	case status != 200:
		t.Errorf("the first time: status = %v, want 200: %v", status, h)
	case len(content) != 100000:
		t.Errorf("the first time: len(content) = %d, want 100000", len(content))
	case !strings.HasPrefix(h.Get("Content-Disposition"), "attachment"):
		t.Errorf(`the first time: header Content-Disposition = %q, want prefix "attachment"`,
			h.Get("Content-Disposition"))
	}
	if status, _, _ := s.ask("GET", path, "", ""); status != 403 && status != 404 {
		t.Errorf("the second time: %d", status)
	}
}

// Attack 16 over HTTP: what is beyond a limit is told so, and the rest goes on.
func TestAFloodOnOneSessionIsBounded(t *testing.T) {
	s := start(t)
	_, _, body := s.ask("POST", "/mcp", s.Token, execution("x = 1", ""))
	id := sessionOf(t, body)
	var mu sync.Mutex
	ran, refused := 0, 0
	var all sync.WaitGroup
	for range 400 {
		all.Go(func() {
			status, h, body := s.ask("POST", "/mcp", s.Token, execution("x = x + 1", `,"session_id":"`+id+`"`))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case status == 200 && strings.Contains(body, `"success":true`):
				ran++
			case strings.Contains(body, `"exhausted"`) && strings.Contains(body, "hint") && (status == 200 || h.Get("Retry-After") != ""):
				refused++
			default:
				t.Errorf("%d %s", status, body)
			}
		})
	}
	all.Wait()
	if ran == 0 || refused == 0 {
		t.Errorf("%d ran, %d were refused", ran, refused)
	}
	if _, _, body := s.ask("POST", "/mcp", s.Token, execution("x", `,"session_id":"`+id+`"`)); !strings.Contains(body, fmt.Sprintf(`"result":"%d"`, ran+1)) {
		t.Errorf("%d ran, and then it is %s", ran, body)
	}
}

// Attack 74: what a program or a client says forges no line of a log.
func TestNothingForgesTheLog(t *testing.T) {
	s := start(t, "--log-level", "debug")
	evil := "\x1b[31m\nlevel=ERROR msg=forged\r\n{\"level\":\"ERROR\"}"
	s.ask("POST", "/mcp", s.Token, execution("print("+fmt.Sprintf("%q", evil)+")", ""), "X-Request-Id: a b", "User-Agent: x level=ERROR")
	s.ask("GET", "/nothing%0alevel=ERROR%20msg=forged%1b[31m", s.Token, "")
	s.Stop()
	for line := range strings.Lines(s.Log()) {
		switch {
		case strings.HasPrefix(line, "level=ERROR"):
			t.Errorf(`the log has the line: line = %q, want no prefix "level=ERROR"`, line)
		case strings.ContainsAny(line[:len(line)-1], "\x1b\r"):
			t.Errorf("the log has the line: line[:len(line)-1] = %q, want none of %q in it",
				line[:len(line)-1], "\x1b\r")
		case strings.Contains(line, s.Token):
			t.Errorf("the log has the line: line = %q, want no %q in it", line, s.Token)
		}
	}
	if _, after, _ := strings.Cut(s.Log(), s.URL+"\n"); after == "" {
		t.Error("nothing was logged")
	}
}

// What was acknowledged is there after the server has ended gently: files and
// the session that they are in.
func TestARestartKeepsSessions(t *testing.T) {
	s := start(t)
	_, _, body := s.ask("POST", "/mcp", s.Token, execution("open('kept.txt','w').write('yes')", ""))
	id := sessionOf(t, body)
	if code := s.Stop(); code != 0 {
		t.Fatalf("it ended with %d: %s", code, s.Log())
	}
	s.start()
	if _, _, body := s.ask("POST", "/mcp", s.Token, execution("open('kept.txt').read()", `,"session_id":"`+id+`"`)); !strings.Contains(body, "'yes'") {
		t.Errorf("afterwards: %s", body)
	}
}
