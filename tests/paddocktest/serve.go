package paddocktest

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"paddock/internal/auth"
	"paddock/internal/sandbox/sandboxtest"
)

// Server is a `paddock serve`.
type Server struct {
	URL   string // of MCP
	Token string // the one that paddock makes for this machine's user
	Cmd   *exec.Cmd

	log   text
	ended chan struct{} // closed when it writes no more
	once  sync.Once
}

// Serve starts a `paddock serve` with arguments, which listens on loopback. It ends with
// the test, if it has not before.
func Serve(t testing.TB, state string, env []string, args ...string) *Server {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), sandboxtest.Binary(t), append([]string{"serve", "--port", "0"}, args...)...)
	cmd.Env = env
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &Server{Cmd: cmd, ended: make(chan struct{})}
	t.Cleanup(func() { s.Stop() })
	lines := bufio.NewReader(stderr)
	for s.URL == "" {
		line, err := lines.ReadString('\n')
		if _, _ = io.WriteString(&s.log, line); err != nil {
			close(s.ended)
			t.Fatalf("it does not serve: %v\n%s", err, s.Log())
		}
		if _, at, ok := strings.Cut(line, "MCP is served at "); ok {
			s.URL = strings.TrimSpace(at)
		}
	}
	go func() {
		defer close(s.ended)
		_, _ = io.Copy(&s.log, lines) // until it ends
	}()
	token, err := os.ReadFile(filepath.Join(state, auth.LocalTokenFile))
	if err != nil {
		t.Fatal(err)
	}
	s.Token = strings.TrimSpace(string(token))
	return s
}

// Base is the server's address without a path.
func (s *Server) Base() string { return strings.TrimSuffix(s.URL, "/mcp") }

// Log is what it has said until now.
func (s *Server) Log() string { return s.log.String() }

// Stop ends it gently, and gives its exit code. It works twice.
func (s *Server) Stop() int {
	s.once.Do(func() {
		_ = s.Cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		<-s.ended
		_ = s.Cmd.Wait() // the code tells
	})
	return s.Cmd.ProcessState.ExitCode()
}

// RoundTrip sends a request with the server's token.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+s.Token)
	return http.DefaultTransport.RoundTrip(r)
}

// text is what is read while it is written.
type text struct {
	mu sync.Mutex
	b  strings.Builder
}

// Write adds to it.
func (t *text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(p)
}

// String is what there is until now.
func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}
