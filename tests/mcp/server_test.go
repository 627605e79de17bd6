// Package mcp has the MCP world's own programs use the built paddock: the
// official conformance suite, the inspector, and the clients of three SDKs.
package mcp

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"paddock/internal/auth"
	"paddock/internal/sandbox/sandboxtest"
)

// service is a running paddock serve. It has a token unless it asks for none.
type service struct{ url, token string }

// serve starts one.
func serve(t *testing.T, args ...string) service {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), sandboxtest.Binary(t), append([]string{"serve", "--port", "0"}, args...)...)
	state := t.TempDir()
	cmd.Env = append(os.Environ(), "PADDOCK_STATE_DIR="+state)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(stderr)
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		rest, _ := io.ReadAll(said)
		if err := cmd.Wait(); err != nil {
			t.Errorf("paddock serve ended with %v: %s", err, rest)
		}
	})
	var s service
	for s.url == "" {
		line, err := said.ReadString('\n')
		if err != nil {
			t.Fatalf("paddock serve ended: %s", line)
		}
		if url, ok := strings.CutPrefix(line, "paddock: MCP is served at "); ok {
			s.url = strings.TrimSpace(url)
		}
	}
	if token, err := os.ReadFile(filepath.Join(state, auth.LocalTokenFile)); err == nil {
		s.token = strings.TrimSpace(string(token))
	}
	return s
}

// environment is one with a state of its own.
func environment(t *testing.T) []string {
	t.Helper()
	return append(os.Environ(), "PADDOCK_STATE_DIR="+t.TempDir())
}
