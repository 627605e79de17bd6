// Package mcp has the MCP world's own programs use the built paddock: the
// official conformance suite, the inspector, and the clients of three SDKs.
package mcp

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"paddock/internal/sandbox/sandboxtest"
)

// service is a running paddock serve.
type service struct{ url, token string }

// serve starts one. With --dev there is no token.
func serve(t *testing.T, args ...string) service {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), sandboxtest.Binary(t), append([]string{"serve", "--port", "0"}, args...)...)
	cmd.Env = environment(t)
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
		if found := tokenShown.FindStringSubmatch(line); found != nil {
			s.token = found[1]
		}
		s.url, _ = strings.CutPrefix(strings.TrimSpace(line), "paddock: MCP is served at ")
		if !strings.HasPrefix(s.url, "http") {
			s.url = ""
		}
	}
	return s
}

var tokenShown = regexp.MustCompile(`shown this once: (\S+)`)

// environment is one with a state of its own.
func environment(t *testing.T) []string {
	t.Helper()
	return append(os.Environ(), "PADDOCK_STATE_DIR="+t.TempDir())
}
