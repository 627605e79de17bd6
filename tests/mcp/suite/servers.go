package suite

import (
	"bufio"
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// startTimeout is how long a server may take until it listens: node is slow on a machine
// that has other work.
const startTimeout = 2 * time.Minute

// Everything starts the reference server over HTTP, as "streamableHttp" (at /mcp) or
// "sse" (at /sse), and gives the URL of its host. It ends with the test.
func (p Packages) Everything(t testing.TB, how string) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	_, port, _ := net.SplitHostPort(address)
	ctx, cancel := context.WithCancel(context.Background())
	cmd := p.Program(ctx, "mcp-server-everything", how)
	cmd.Env = append(cmd.Env, "PORT="+port)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(startTimeout); time.Now().Before(until); <-tick.C {
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close()
			return "http://" + address
		}
	}
	t.Fatal("the reference server does not listen")
	return ""
}

// Modern starts a server of the TypeScript SDK over HTTP that speaks the era without
// sessions alone, and gives its URL. It ends with the test.
func (p Packages) Modern(t testing.TB) (url string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := p.Node(ctx, p.ModernScript(t), p.Dir, "http")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	if url, err = bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(url)
}

// ModernScript is that server's program, which takes Dir and "http" or "stdio".
func (p Packages) ModernScript(t testing.TB) string {
	t.Helper()
	return filepath.Join(folder(t), "modern.mjs")
}
