package proxy

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// safe is a buffer that many may write to.
type safe struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safe) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safe) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Whatever a program writes to the proxy, or on a stream, the host is asked what is
// allowed and nothing else, and no mistake of ours is found.
func FuzzProgram(f *testing.F) {
	s := serves(f, false, nil)
	at := "127.0.0.1:" + s.port()
	port := s.Listener.Addr().(*net.TCPAddr).Port
	var log safe
	d, _ := opened(f, Config{
		Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError})), Budgets: Budgets{Requests: -1, Sent: -1, Received: -1},
	}, "GET "+at+"/open/*!private", "POST "+at+"/open/*!private")
	for _, text := range []string{
		"GET http://AT/open/1 HTTP/1.1\r\nHost: AT\r\n\r\n", "GET /open/1 HTTP/1.1\r\nHost: AT\r\n\r\n", "POST http://AT/open/1 HTTP/1.1\r\nHost: AT\r\nContent-Length: 3\r\n\r\nabc",
		"POST http://AT/open/1 HTTP/1.1\r\nHost: AT\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET http://AT/admin HTTP/1.1\r\nHost: AT\r\n\r\n",
		"CONNECT AT HTTP/1.1\r\nHost: AT\r\n\r\nGET /open/1 HTTP/1.1\r\nHost: AT\r\n\r\nDELETE /open/1 HTTP/1.1\r\nHost: AT\r\n\r\n", "CONNECT AT HTTP/1.1\r\n\r\n\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
		"GET http://AT/open/../admin HTTP/1.1\r\nHost: AT\r\n\r\n", "GET http://AT/open/%2e%2e/admin HTTP/1.1\r\nHost: x\r\nX-Original-Url: /admin\r\n\r\n", "HEAD //AT/open/1 HTTP/1.0\r\n\r\n",
		"GET http://AT/open/1 HTTP/1.1\r\nHost: AT\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: AT\r\n\r\n", "\x00\x01", "SSH-2.0-x\r\n",
	} {
		f.Add([]byte(text), false)
		f.Add([]byte(text), true)
	}
	f.Fuzz(func(t *testing.T, text []byte, stream bool) {
		a, b := net.Pipe()
		var all sync.WaitGroup
		all.Go(func() {
			if stream {
				d.ServeOrigin(context.Background(), b, "127.0.0.1", port, false)
			} else {
				d.ServeProxy(context.Background(), b)
			}
		})
		all.Go(func() {
			_, _ = a.Write(bytes.ReplaceAll(text, []byte("AT"), []byte(at)))
			_, _ = a.Write([]byte("\r\nGET /end HTTP/1.1\r\nConnection: close\r\n\r\n"))
		})
		_ = a.SetReadDeadline(time.Now().Add(100 * time.Millisecond)) // what waits for more is let go
		_, _ = io.Copy(io.Discard, a)
		a.Close()
		all.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, seen := range s.seen {
			method, rest, _ := strings.Cut(seen, " ")
			host, target, _ := strings.Cut(rest, " ")
			u, err := url.ParseRequestURI(target)
			switch {
			case err != nil:
				t.Errorf("the host was asked %q after %q: %v", seen, text, err)
			case host != at:
				t.Errorf("the host was asked %q after %q: host = %v, want %v", seen, text, host, at)
			case !strings.HasPrefix(u.Path, "/open/"):
				t.Errorf(`the host was asked %q after %q: u.Path = %q, want prefix "/open/"`, seen, text, u.Path)
			case strings.Contains(u.Path+"/", "/../"):
				t.Errorf(`the host was asked %q after %q: u.Path + "/" = %q, want no "/../" in it`,
					seen, text, u.Path+"/")
			case method != "GET" && method != "POST" && method != "HEAD":
				t.Errorf("the host was asked %q after %q: method = %q, want GET, POST or HEAD", seen, text, method)
			}
		}
		s.seen = nil
		if text := log.String(); text != "" {
			t.Error(text)
		}
	})
}
