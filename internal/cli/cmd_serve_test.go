//go:build unix

package cli

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"paddock/internal/auth"
	"paddock/internal/sandbox/sandboxtest"
)

// service is a paddock serve in a process of its own, with the fake.
type service struct {
	t      *testing.T
	cmd    *exec.Cmd
	stderr *bufio.Reader
	before string // what it said before the URL
	url    string
	token  string // the one that it made; empty: none
}

func startServe(t *testing.T, args ...string) *service {
	t.Helper()
	s := &service{t: t, cmd: paddock(t, true, append([]string{"serve", "--port", "0"}, args...)...)}
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.stderr = bufio.NewReader(stderr)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	for s.url == "" {
		line, err := s.stderr.ReadString('\n')
		if err != nil {
			t.Fatalf("it said %s%s and then %v", s.before, line, err)
		}
		if url, ok := strings.CutPrefix(line, "paddock: MCP is served at "); ok {
			s.url = strings.TrimSpace(url)
			continue
		}
		s.before += line
	}
	// No terminal is told the token itself.
	if found := regexp.MustCompile(`user was made: (\S+)`).FindStringSubmatch(s.before); found != nil {
		token, err := os.ReadFile(found[1])
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(s.before, strings.TrimSpace(string(token))) {
			t.Fatalf("s.before: got %q, want no %q in it", s.before, strings.TrimSpace(string(token)))
		}
		s.token = strings.TrimSpace(string(token))
	}
	return s
}

// call sends a tools/call as the plainest client does, and gives the answer.
func (s *service) call(token, code string) (status int, body string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), "POST", s.url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"execute_code","arguments":{"language":"python","code":"`+code+`"}}}`))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	content, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, string(content)
}

// ends tells it to end, and gives what it said at last.
func (s *service) ends() string {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	rest, err := io.ReadAll(s.stderr)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("it ended with %v and said\n%s", err, rest)
	}
	return string(rest)
}

func TestServeAsksForTheTokenThatItMade(t *testing.T) {
	s := startServe(t)
	if !strings.HasPrefix(s.url, "http://127.0.0.1:") {
		t.Fatalf("s.url: got %q, want it to begin with %q", s.url, "http://127.0.0.1:")
	}
	if s.token == "" {
		t.Fatal("s.token: got none, want one")
	}
	if status, body := s.call("", "print(1)"); status != 401 {
		t.Errorf("without it: status: got %v, want 401: %s", status, body)
	} else if !strings.Contains(body, `"denied"`) {
		t.Errorf("without it: body: got %q, want %q in it", body, `"denied"`)
	}
	if status, body := s.call("wrong", "print(1)"); status != 401 {
		t.Errorf("with another: %d %s", status, body)
	}
	if status, body := s.call(s.token, "print(1)"); status != 200 {
		t.Errorf("with it: status: got %v, want 200: %s", status, body)
	} else if !strings.Contains(body, `"stdout":"1\n"`) {
		t.Errorf("with it: body: got %q, want %q in it", body, `"stdout":"1\n"`)
	}
	if rest := s.ends(); rest != "" {
		t.Errorf("at last it said %q", rest)
	}
	again := paddock(t, true, "serve", "--port", "0")
	again.Env = s.cmd.Env
	stderr, err := again.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stderr)
	for _, want := range []string{"paddock: the token of this machine's user is in ", "paddock: MCP is served at "} {
		if line, err := lines.ReadString('\n'); !strings.HasPrefix(line, want) {
			t.Errorf("the second time it says %q, %v", line, err)
		}
	}
	if err := again.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := again.Wait(); err != nil {
		t.Errorf("the second time it ended with %v", err)
	}
}

func TestServeTakesTheTokenOfTheConfiguration(t *testing.T) {
	t.Setenv("PADDOCK_TRANSPORT_HTTP_AUTH_TOKEN", "configured-token-of-the-test")
	s := startServe(t, "--log-level", "debug")
	if s.token != "" {
		t.Errorf("it made another")
	}
	if status, body := s.call("configured-token-of-the-test", "print(1)"); status != 200 {
		t.Errorf("with it: %d %s", status, body)
	}
	if said := s.before + s.ends(); strings.Contains(said, "configured-token") {
		t.Errorf("s.before + s.ends(): got %q, want no %q in it", said, "configured-token")
	} else if !strings.Contains(said, "request_id=") {
		t.Errorf("s.before + s.ends(): got %q, want %q in it", said, "request_id=")
	}
}

func TestServeDevWarns(t *testing.T) {
	s := startServe(t, "--dev")
	if status, body := s.call("", "print(1)"); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	if rest := s.ends(); !strings.HasPrefix(rest, "paddock: warning: ") {
		t.Errorf("s.ends(): got %q, want it to begin with %q", rest, "paddock: warning: ")
	} else if s.token != "" {
		t.Errorf("s.token: got %q, want none", s.token)
	}
}

// TestServeEndsWhenItsCallsAreDone: a SIGTERM lets what runs come to its end,
// and is obeyed then.
func TestServeEndsWhenItsCallsAreDone(t *testing.T) {
	t.Setenv("PADDOCK_TRANSPORT_HTTP_SHUTDOWN_GRACE_SECONDS", "60")
	s := startServe(t, "--dev")
	r, err := http.NewRequestWithContext(t.Context(), "POST", s.url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"execute_code","arguments":{"language":"python","timeout":4,"code":"print(1)\nloop"},"_meta":{"progressToken":"p"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	stream := bufio.NewReader(res.Body)
	first, err := stream.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(stream)
	if text := first + string(rest); err != nil {
		t.Errorf("the call: got error %v, want none: %s", err, text)
	} else if !strings.Contains(text, `"stopped_by":"timeout"`) {
		t.Errorf("the call: got %q, want %q in it", text, `"stopped_by":"timeout"`)
	}
	said, err := io.ReadAll(s.stderr)
	if want := "paddock: ending; 1 call still runs (a second Ctrl-C ends at once)\n"; err != nil {
		t.Errorf("got error %v, want none: %s", err, said)
	} else if !strings.Contains(string(said), want) {
		t.Errorf("said: got %q, want %q in it", string(said), want)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// TestAStartThatFailsMakesNoToken: it would not be shown again.
func TestAStartThatFailsMakesNoToken(t *testing.T) {
	s := startServe(t, "--dev")
	port := s.url[strings.LastIndexByte(s.url, ':')+1 : strings.LastIndexByte(s.url, '/')]
	r := command(t, newFake, "serve", "--port", port)
	if r.code != exitFailed {
		t.Errorf("r.code: got %v, want %v: %s", r.code, exitFailed, r.stderr)
	}
	if !strings.HasPrefix(r.stderr, "paddock: error: something listens at ") {
		t.Errorf("r.stderr: got %q, want it to begin with %q", r.stderr, "paddock: error: something listens at ")
	}
	if _, err := os.Stat(filepath.Join(os.Getenv("PADDOCK_STATE_DIR"), auth.LocalTokenFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a token: %v", err)
	}
	s.ends()
}

func TestServeFailsWhereItsTokenCannotBeHad(t *testing.T) {
	state := t.TempDir()
	if err := os.WriteFile(filepath.Join(state, auth.LocalTokenFile), []byte("no token"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := command(t, newFake, "serve", "--port", "0", "--state-dir", state)
	if r.code != exitFailed {
		t.Errorf("r.code: got %v, want %v: %s", r.code, exitFailed, r.stderr)
	}
	if !strings.HasPrefix(r.stderr, "paddock: error: the file local-token in the state folder is damaged: it holds no token\n") {
		t.Errorf("r.stderr: got %q, want it to begin with %q",
			r.stderr, "paddock: error: the file local-token in the state folder is damaged: it holds no token\n")
	}
}

// TestSetupAsksTheServerThatRuns: one with another state folder refuses the
// token that the client would get.
func TestSetupAsksTheServerThatRuns(t *testing.T) {
	s := startServe(t)
	state := filepath.Dir(regexp.MustCompile(`user was made: (\S+)`).FindStringSubmatch(s.before)[1])
	home := t.TempDir()
	t.Setenv("HOME", home)
	if err := os.Mkdir(filepath.Join(home, ".cursor"), 0o700); err != nil {
		t.Fatal(err)
	}
	refused := "paddock: warning: the paddock that answers at " + s.url + "/s/cursor refuses this token\npaddock: hint: "
	if r := command(t, newFake, "setup", "cursor", "--http", s.url); r.code != 0 {
		t.Errorf("with another state folder: r.code: got %v, want 0: %s", r.code, r.stderr)
	} else if !strings.HasPrefix(r.stderr, refused) {
		t.Errorf("with another state folder: r.stderr: got %q, want it to begin with %q", r.stderr, refused)
	}
	if r := command(t, newFake, "setup", "cursor", "--http", s.url, "--state-dir", state); r.code != 0 {
		t.Errorf("with the server's: r.code: got %v, want 0: %s", r.code, r.stderr)
	} else if r.stderr != "" {
		t.Errorf("with the server's: r.stderr: got %q, want none", r.stderr)
	}
	s.ends()
	if r := command(t, newFake, "setup", "cursor", "--http", s.url); r.code != 0 {
		t.Errorf("when no server runs: r.code: got %v, want 0: %s", r.code, r.stderr)
	} else if r.stderr != "" {
		t.Errorf("when no server runs: r.stderr: got %q, want none", r.stderr)
	}
}

func TestServeRefusesWhatIsNotSafe(t *testing.T) {
	s := startServe(t, "--dev")
	port := s.url[strings.LastIndexByte(s.url, ':')+1 : strings.LastIndexByte(s.url, '/')]
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"a port in use", []string{"--port", port}, "paddock: error: something listens at 127.0.0.1:" + port + " already\npaddock: hint: "},
		{"everybody without TLS", []string{"--host", "0.0.0.0"}, "paddock: error: at 0.0.0.0 tokens and programs would cross the network unencrypted\npaddock: hint: "},
		{"everybody without a token", []string{"--host", "0.0.0.0", "--dev", "--insecure-http"}, "paddock: error: without a token 0.0.0.0 would let the whole network in\npaddock: hint: "},
		{"a host of nobody", []string{"--host", "a b"}, "paddock: error: \"a b\" with port 5555 is not an address to listen at\npaddock: hint: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("PADDOCK_TRANSPORT_HTTP_AUTH_TOKEN", "configured-token-of-the-test")
			r := command(t, newFake, append([]string{"serve"}, test.args...)...)
			if r.code != exitFailed {
				t.Errorf("r.code: got %v, want %v: %s", r.code, exitFailed, r.stderr)
			}
			if !strings.HasPrefix(r.stderr, test.want) {
				t.Errorf("r.stderr: got %q, want it to begin with %q", r.stderr, test.want)
			}
			if strings.Count(r.stderr, "\n") != 2 {
				t.Errorf(`strings.Count(r.stderr, "\n"): got %v, want 2`, strings.Count(r.stderr, "\n"))
			}
		})
	}
	s.ends()
}

func TestServeFromPython(t *testing.T) {
	there, reason := guests(t)
	sandboxtest.Require(t, "wasm", len(there) > 0, reason)
	cmd := paddock(t, false, "serve", "--port", "0", "--dev")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &service{t: t, cmd: cmd, stderr: bufio.NewReader(stderr)}
	line, err := s.stderr.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	s.url = strings.TrimSpace(strings.TrimPrefix(line, "paddock: MCP is served at "))
	if status, body := s.call("", "print(6*7)"); status != 200 {
		t.Errorf("status: got %v, want 200: %s", status, body)
	} else if !strings.Contains(body, `"stdout":"42\n"`) {
		t.Errorf("body: got %q, want %q in it", body, `"stdout":"42\n"`)
	}
	s.ends()
}
