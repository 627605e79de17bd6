package mcpserver

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// A stream that was resumed when the timer fired is never given up afterwards.
func TestRev4Abandoned(t *testing.T) {
	s := newStream()
	gave := make(chan struct{})
	s.abandoned(100*time.Millisecond, func() { close(gave) })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		s.serve(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil).WithContext(ctx), 0)
		close(done)
	}()
	time.Sleep(150 * time.Millisecond)
	cancel()
	<-done
	select {
	case <-gave:
		t.Log("given up")
	case <-time.After(2 * time.Second):
		t.Error("REV4: nobody reads, and it is never given up")
	}
	s = newStream()
	at := make(chan time.Time, 1)
	s.abandoned(500*time.Millisecond, func() { at <- time.Now() })
	ctx, cancel = context.WithCancel(t.Context())
	done = make(chan struct{})
	go func() {
		s.serve(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil).WithContext(ctx), 0)
		close(done)
	}()
	time.Sleep(450 * time.Millisecond)
	cancel()
	<-done
	lost := time.Now()
	t.Logf("REV4: given up %v after the second loss, 500 ms are promised", (<-at).Sub(lost))
}

func TestRev4EarlyLegacyDisconnect(t *testing.T) {
	s, _, url := newHTTP(t, HTTPConfig{})
	headers := initialize(t, url)
	r := post(t, url, called(1, "x = 1", ""), headers...)
	bodyOf(t, r)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(called(2, "sleep(1.5)\nx = 2", "")))
	req.Header.Set("Content-Type", "application/json")
	for _, h := range headers {
		n, v, _ := strings.Cut(h, ": ")
		req.Header.Set(n, v)
	}
	if _, err := http.DefaultClient.Do(req); err == nil {
		t.Fatal("no disconnect")
	}
	time.Sleep(2500 * time.Millisecond)
	t.Log("REV4 x after a disconnect at 100 ms:", bodyOf(t, post(t, url, called(3, "x", ""), headers...))[:120])
	_ = s
}

// initialize, connection cut at once.
func TestRev4InitLeak(t *testing.T) {
	_, h, url := newHTTP(t, HTTPConfig{})
	host := strings.TrimPrefix(url, "http://")
	body := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`
	before := runtime.NumGoroutine()
	for range 1500 {
		c, err := net.Dial("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		c.(*net.TCPConn).SetLinger(0)
		if rand.Intn(2) == 0 {
			time.Sleep(time.Duration(rand.Intn(300)) * time.Microsecond)
		}
		c.Close()
	}
	time.Sleep(time.Second)
	n := len(h.sessions.all())
	t.Logf("REV4 ours: %d, goroutines %d -> %d", n, before, runtime.NumGoroutine())
	for _, m := range h.sessions.all() {
		h.end(m)
	}
	time.Sleep(time.Second)
	t.Logf("REV4 after all known ended: goroutines %d", runtime.NumGoroutine())
}

func TestRev4Stress(t *testing.T) {
	dir := t.TempDir()
	_, h, url := newHTTP(t, HTTPConfig{TasksDir: dir, Patience: 30 * time.Millisecond, MaxSessions: 5})
	old := http.DefaultClient
	http.DefaultClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 50}}
	defer func() { http.DefaultClient = old }()
	warm := initialize(t, url)
	bodyOf(t, post(t, url, called(1, "1", ""), warm...))
	before := runtime.NumGoroutine()
	fds := func() int { e, _ := os.ReadDir("/proc/self/fd"); return len(e) }
	f0 := fds()
	var wg sync.WaitGroup
	end := time.Now().Add(25 * time.Second)
	do := func(ctx context.Context, method, body string, headers ...string) {
		req, _ := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
		if method == "POST" {
			req.Header.Set("Content-Type", "application/json")
		}
		for _, x := range headers {
			n, v, _ := strings.Cut(x, ": ")
			req.Header.Add(n, v)
		}
		r, err := http.DefaultClient.Do(req)
		if err == nil {
			io.Copy(io.Discard, r.Body)
			r.Body.Close()
		}
	}
	for w := range 6 {
		wg.Go(func() {
			rnd := rand.New(rand.NewSource(int64(w)))
			for time.Now().Before(end) {
				req, _ := http.NewRequest("POST", url, strings.NewReader(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`))
				req.Header.Set("Content-Type", "application/json")
				r, err := http.DefaultClient.Do(req)
				if err != nil {
					continue
				}
				io.Copy(io.Discard, r.Body)
				r.Body.Close()
				hd := []string{"Mcp-Session-Id: " + r.Header.Get("Mcp-Session-Id"), "MCP-Protocol-Version: 2025-11-25", "Accept: application/json, text/event-stream"}
				for k := range 6 {
					d := time.Duration(rnd.Intn(600)) * time.Millisecond
					ctx, cancel := context.WithTimeout(context.Background(), d)
					id := k + 10
					tok := ""
					if rnd.Intn(2) == 0 {
						tok = `,"_meta":{"progressToken":"a"}`
					}
					go func() {
						time.Sleep(time.Duration(50+id*10) * time.Millisecond)
						do(context.Background(), "POST", fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id), hd...)
					}()
					switch rnd.Intn(5) {
					case 0:
						do(ctx, "POST", called(id, "print('a')\nsleep(0.15)\nprint('b')\nsleep(0.3)\nprint('c')", fmt.Sprintf(modernMeta, `"extensions":{"io.modelcontextprotocol/tasks":{}}`)), append(modernHeaders("tools/call", "execute_code"))...)
					case 1:
						do(ctx, "POST", called(id, "print('a')\nsleep(0.15)\nprint('b')\nsleep(0.3)\nprint('c')", ""))
					case 2:
						c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
						if err != nil {
							break
						}
						b := called(id, "print('a')\nsleep(0.3)\nprint('b')\nsleep(0.3)\nprint('c')", tok)
						fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n\r\n%s", len(b), strings.Join(hd, "\r\n"), b)
						c.SetReadDeadline(time.Now().Add(400 * time.Millisecond))
						br := bufio.NewReader(c)
						ev := ""
						for {
							l, err := br.ReadString('\n')
							if err != nil {
								break
							}
							if strings.HasPrefix(l, "id: ") {
								ev = strings.TrimSpace(l[4:])
								break
							}
						}
						if ev != "" && rnd.Intn(2) == 0 {
							do(ctx, "GET", "", append([]string{"Last-Event-ID: " + ev}, hd...)...)
						}
						c.Close()
						if ev != "" {
							do(ctx, "GET", "", append([]string{"Last-Event-ID: " + ev}, hd...)...)
						}
					default:
						do(ctx, "POST", called(id, "print('a')\nsleep(0.15)\nprint('b')\nsleep(0.3)\nprint('c')", tok), hd...)
					}
					cancel()
				}
				if rnd.Intn(2) == 0 {
					do(context.Background(), "DELETE", "", hd...)
				}
			}
		})
	}
	wg.Wait()
	for _, m := range h.sessions.all() {
		h.end(m)
	}
	time.Sleep(3 * time.Second)
	http.DefaultClient.CloseIdleConnections()
	time.Sleep(time.Second)
	h.server.defaults.mu.Lock()
	slots := len(h.server.defaults.slots)
	h.server.defaults.mu.Unlock()
	t.Logf("REV4 goroutines %d -> %d, fds %d -> %d, default slots left %d", before, runtime.NumGoroutine(), f0, fds(), slots)
	if runtime.NumGoroutine() > before+30 {
		b := make([]byte, 1<<20)
		t.Logf("%s", b[:runtime.Stack(b, true)])
	}
}
