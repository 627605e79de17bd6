// Package mcp has the MCP world's own programs use the built paddock: the
// official conformance suite, the inspector, and the clients of three SDKs.
package mcp

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"paddock/internal/auth"
	"paddock/internal/sandbox/sandboxtest"
)

// environment is what gives a paddock this state folder, and prepared guests.
func environment(t *testing.T, state string) []string {
	t.Helper()
	return []string{"PADDOCK_STATE_DIR=" + state, "PADDOCK_CACHE_DIR=" + sandboxtest.PreparedCache(t)}
}

// service is a running paddock serve.
type service struct {
	url   string
	token string // empty: it asks for none
}

// serve starts one, which has to end well when the test does.
func serve(t *testing.T, args ...string) (s service) {
	t.Helper()
	return serveIn(t, sandboxtest.Memory(t), args...)
}

// serveIn is serve with a state folder.
func serveIn(t *testing.T, state string, args ...string) (s service) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), sandboxtest.Binary(t), append([]string{"serve", "--port", "0"}, args...)...)
	cmd.Env = append(os.Environ(), environment(t, state)...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(stderr)
	for s.url == "" {
		line, err := said.ReadString('\n')
		if err != nil {
			t.Fatalf("paddock serve ended: %s", line)
		}
		if url, ok := strings.CutPrefix(line, "paddock: MCP is served at "); ok {
			s.url = strings.TrimSpace(url)
		}
	}
	rest := make(chan []byte, 1)
	go func() {
		all, _ := io.ReadAll(said) // to its end
		rest <- all
	}()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		said := <-rest
		if err := cmd.Wait(); err != nil {
			t.Errorf("paddock serve ended with %v: %s", err, said)
		}
	})
	if token, err := os.ReadFile(filepath.Join(state, auth.LocalTokenFile)); err == nil {
		s.token = strings.TrimSpace(string(token))
	}
	return s
}
