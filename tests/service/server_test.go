// Package service tests `paddock serve` as its users have it: the built binary,
// with real interpreters, over loopback.
package service

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"paddock/internal/sandbox/sandboxtest"
	"paddock/tests/paddocktest"
)

// server is one `paddock serve`.
type server struct {
	*paddocktest.Server
	t     testing.TB
	state string
	args  []string

	mu       sync.Mutex
	sessions map[string]bool // that calls have made
}

// made remembers the session that a result is of.
func (s *server) made(res map[string]any) string {
	id, _ := res["session_id"].(string)
	if id != "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sessions[id] = true
	}
	return id
}

func (s *server) destroy(client *http.Client, id string) error {
	s.mu.Lock()
	delete(s.sessions, id)
	s.mu.Unlock()
	_, err := s.call(client, "destroy_session", map[string]any{"session_id": id}, nil)
	return err
}

func (s *server) destroyAll(t testing.TB) {
	t.Helper()
	for len(s.sessions) > 0 {
		for id := range s.sessions {
			if err := s.destroy(http.DefaultClient, id); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// request is one for MCP.
func (s *server) request(method, body string) (*http.Request, error) {
	r, err := http.NewRequest(method, s.URL, strings.NewReader(body))
	if err == nil {
		r.Header.Set("Authorization", "Bearer "+s.Token)
		r.Header.Set("Content-Type", "application/json")
	}
	return r, err
}

// start starts one with a state folder of its own.
func start(t testing.TB, args ...string) *server {
	t.Helper()
	s := &server{t: t, state: sandboxtest.Memory(t), sessions: map[string]bool{}, args: args}
	s.start()
	return s
}

func (s *server) start() {
	s.t.Helper()
	s.Server = paddocktest.Serve(s.t, s.state, paddocktest.Environment(s.t, s.state), s.args...)
}

func (s *server) metric(name string) float64 {
	s.t.Helper()
	r, err := http.NewRequest(http.MethodGet, s.Base()+"/metrics", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.Token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				s.t.Fatal(err)
			}
			return n
		}
	}
	s.t.Fatalf("%s is not in /metrics (%s)", name, resp.Status)
	return 0
}

// processes is how many processes it has made that are still there.
func (s *server) processes() int {
	n := 0
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(s.Cmd.Process.Pid) {
			n++
		}
	}
	return n
}

// disk is what its state takes, in bytes, without the audit log, which is meant
// to grow, and the log of commits, which keeps room for those to come.
func (s *server) disk() (n int64) {
	s.t.Helper()
	err := filepath.WalkDir(s.state, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == "audit" || path == filepath.Join(s.state, "log")) {
			return filepath.SkipDir
		}
		if err == nil && strings.HasPrefix(d.Name(), "index.db") {
			return nil // its log grows to 4 MB before it is begun again
		}
		if err == nil && d.Type().IsRegular() {
			if info, e := d.Info(); e == nil {
				n += info.Size()
			}
		}
		return nil // what has gone meanwhile
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// heavy are the folders below its state in which most of its bytes lie, with how many.
func (s *server) heavy() map[string]int64 {
	all := map[string]int64{}
	_ = filepath.WalkDir(s.state, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, e := d.Info(); e == nil {
				parts := strings.Split(strings.TrimPrefix(path, s.state), "/")
				all[strings.Join(parts[:min(4, len(parts)-1)], "/")] += info.Size()
			}
		}
		return nil
	})
	maps.DeleteFunc(all, func(_ string, n int64) bool { return n < 64<<10 })
	return all
}

// call is one tools/call of a plain client.
func (s *server) call(client *http.Client, tool string, arguments map[string]any, change func(*http.Request)) (map[string]any, error) {
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": tool, "arguments": arguments}})
	if err != nil {
		return nil, err
	}
	r, err := s.request(http.MethodPost, string(body))
	if err != nil {
		return nil, err
	}
	if change != nil {
		change(r)
	}
	resp, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var answer struct {
		Result struct {
			StructuredContent map[string]any
		}
		Error map[string]any
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.Header.Get("Content-Type") == "text/event-stream" { // its last event is the answer
		_, last, _ := bytes.Cut(text[bytes.LastIndex(text, []byte("\ndata: "))+1:], []byte("data: "))
		text = last
	}
	if err := json.Unmarshal(text, &answer); err != nil || answer.Error != nil {
		return nil, fmt.Errorf("%s: %s", resp.Status, text)
	}
	return answer.Result.StructuredContent, nil
}
