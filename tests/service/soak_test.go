package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"paddock/internal/sandbox/sandboxtest"
	"paddock/tests/paddocktest"
)

const soakConfig = `
[transport_http]
rate_limit_requests = 1000000
[limits]
max_requests = 1000000
[sessions]
max_sessions_per_client = 1000
[audit]
mode = "best_effort"
`

// soakSettings is a file with settings under which no limit is reached.
func soakSettings(t testing.TB) string {
	t.Helper()
	config := filepath.Join(t.TempDir(), "paddock.toml")
	if err := os.WriteFile(config, []byte(soakConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	return config
}

// usage is what a server holds.
type usage struct {
	goroutines, descriptors, memory float64
	processes                       int
	disk                            int64
}

func (s *server) usage() usage {
	return usage{s.metric("go_goroutines"), s.metric("process_open_fds"), s.metric("process_resident_memory_bytes"), s.processes(), s.disk()}
}

func (u usage) String() string {
	return fmt.Sprintf("%.0f goroutines, %.0f descriptors, %d processes, %.0f MB of memory, %d bytes on disk", u.goroutines, u.descriptors, u.processes, u.memory/1e6, u.disk)
}

// Ten thousand calls, of which some are cancelled, some lose their connection
// and some their server: in the end it holds what it held at first.
func TestASoakLeavesNothing(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("what a process holds is read from /proc")
	}
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	sandboxtest.Require(t, "wasm", true, "")
	s := start(t, "--config", soakSettings(t))
	s.soak(t, 300)
	s.settle(t)
	before := s.usage()
	for round := range 4 {
		s.soak(t, 2500)
		if round == 3 {
			break
		}
		if code := s.Stop(); code != 0 {
			t.Fatalf("it ended with %d\n%s", code, s.Log())
		}
		s.start()
	}
	s.settle(t)
	s.rests(before)
	after := s.usage()
	t.Logf("before: %v\nafter: %v", before, after)
	switch {
	case after.goroutines > before.goroutines+10:
		t.Errorf("after.goroutines = %v, want at most %v; before: %v\nafter: %v; its largest folders are %v",
			after.goroutines, before.goroutines+10, before, after, s.heavy())
	case after.descriptors > before.descriptors+10:
		t.Errorf("after.descriptors = %v, want at most %v; before: %v\nafter: %v; its largest folders are %v",
			after.descriptors, before.descriptors+10, before, after, s.heavy())
	case after.processes > before.processes:
		t.Errorf("after.processes = %v, want at most %v; before: %v\nafter: %v; its largest folders are %v",
			after.processes, before.processes, before, after, s.heavy())
	case after.memory > 1.5*before.memory+64e6:
		t.Errorf("after.memory = %v, want at most %v; before: %v\nafter: %v; its largest folders are %v",
			after.memory, 1.5*before.memory+64e6, before, after, s.heavy())
	case after.disk > before.disk+64<<10:
		t.Errorf("after.disk = %v, want at most %v; before: %v\nafter: %v; its largest folders are %v",
			after.disk, before.disk+64<<10, before, after, s.heavy())
	}
}

// settle destroys all sessions, collects what is left of them, and waits until
// nothing runs.
func (s *server) settle(t *testing.T) {
	t.Helper()
	s.destroyAll(t)
	s.paddock("session", "gc")
	for late := time.Now().Add(paddocktest.Timeout); s.metric("paddock_sessions") > 0 || s.processes() > 1; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("%.0f sessions and %d processes are left", s.metric("paddock_sessions"), s.processes())
		}
	}
	http.DefaultClient.CloseIdleConnections()
	time.Sleep(time.Second) // for what ends a moment after its last user
}

// rests waits for what ends a moment after its last user, which takes its time on a busy
// machine.
func (s *server) rests(before usage) {
	for late := time.Now().Add(paddocktest.Timeout); time.Now().Before(late); time.Sleep(time.Second) {
		if u := s.usage(); u.goroutines <= before.goroutines+10 && u.descriptors <= before.descriptors+10 && u.processes <= before.processes {
			return
		}
	}
}

// soak makes calls of all kinds, eight at a time.
func (s *server) soak(t *testing.T, calls int) {
	var left atomic.Int64
	left.Store(int64(calls))
	var failed atomic.Int64
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			c := &soaker{server: s, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}}
			defer c.client.CloseIdleConnections()
			defer func() {
				if err := c.end(); err != nil {
					t.Error(err)
				}
			}()
			for left.Add(-1) >= 0 {
				if err := c.step(); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
					if failed.Add(1) < 5 {
						t.Error(err)
					}
				}
			}
		})
	}
	clients.Wait()
}

// soaker is one client.
type soaker struct {
	server *server
	client *http.Client
	handle string // of a session; empty: the next call gets one
	mcp    string // its Mcp-Session-Id; empty: none
	count  int
}

var soakPrograms = []struct{ language, code string }{
	{"python", "x = globals().get('x', 0) + 1; x"},
	{"python", "open('f.txt', 'w').write('a' * 1000); print('b' * 1000)"},
	{"python", "1 / 0"},
	{"javascript", "globalThis.n = (globalThis.n ?? 0) + 1; n"},
	{"python", "import time; time.sleep(0.002)"},
	{"python", "while True: pass"},
}

func (c *soaker) step() error {
	c.count++
	if c.count%60 == 0 {
		c.handle = ""
	}
	p := soakPrograms[rand.N(len(soakPrograms)-1)]
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	switch rand.N(20) {
	case 0: // it would run for ever: the connection goes
		p = soakPrograms[len(soakPrograms)-1]
		fallthrough
	case 1:
		time.AfterFunc(time.Duration(rand.N(5000))*time.Microsecond, cancel)
	case 2:
		return c.legacy(p.language, p.code)
	case 3:
		if c.handle != "" {
			err := c.server.destroy(c.client, c.handle)
			c.handle = ""
			return err
		}
	}
	if c.handle == "" { // never cancelled: its answer is needed
		res, err := c.server.call(c.client, "create_session", map[string]any{"language": "python"}, nil)
		if err != nil {
			return err
		}
		if c.handle = c.server.made(res); c.handle == "" {
			return problem(res)
		}
	}
	arguments := map[string]any{"language": p.language, "code": p.code, "timeout": 5, "session_id": c.handle}
	res, err := c.server.call(c.client, "execute_code", arguments, func(r *http.Request) { *r = *r.WithContext(ctx) })
	if err != nil {
		return err
	}
	return problem(res)
}

// legacy runs a program in the client's MCP session, which ends now and then.
func (c *soaker) legacy(language, code string) error {
	if c.mcp == "" {
		r, err := c.server.request(http.MethodPost, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"soak","version":"1"}}}`)
		if err != nil {
			return err
		}
		resp, err := c.client.Do(r)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		c.mcp = resp.Header.Get("Mcp-Session-Id")
	}
	inSession := func(r *http.Request) {
		r.Header.Set("Mcp-Session-Id", c.mcp)
		r.Header.Set("Accept", "application/json, text/event-stream")
	}
	res, err := c.server.call(c.client, "execute_code", map[string]any{"language": language, "code": code, "timeout": 5}, inSession)
	if err != nil {
		return err
	}
	c.server.made(res)
	if rand.N(4) == 0 {
		if err := c.end(); err != nil {
			return err
		}
	}
	return problem(res)
}

// end ends the client's MCP session.
func (c *soaker) end() error {
	if c.mcp == "" {
		return nil
	}
	r, err := c.server.request(http.MethodDelete, "")
	if err != nil {
		return err
	}
	r.Header.Set("Mcp-Session-Id", c.mcp)
	c.mcp = ""
	resp, err := c.client.Do(r)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// problem is paddock's own error in a result; a session that is gone is none.
func problem(res map[string]any) error {
	if _, ran := res["exit_code"]; ran {
		return nil
	}
	if e, ok := res["error"].(map[string]any); ok && e["code"] != "not_found" && e["code"] != "cancelled" {
		return fmt.Errorf("a call failed: %v", e)
	}
	return nil
}
