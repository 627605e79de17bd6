package web

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"paddock/internal/fault"
)

// said is a log, as text.
type said struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestWhatIsAPreviewsAndWhatIsTheServers(t *testing.T) {
	log := &said{}
	s := start(t, Config{
		Log: slog.New(slog.NewTextHandler(log, nil)), MaxUploadBytes: 100, AllowedHosts: []string{"named.localhost"},
		Preview: func(w http.ResponseWriter, r *http.Request, id string) {
			body, err := io.ReadAll(r.Body)
			fmt.Fprintf(w, "preview %s %s %s %d %v", id, r.URL.Path, BaseURL(r.Context()), len(body), err != nil)
		},
	})
	for _, test := range []struct {
		name, request string
		status        int
		body          string
	}{
		{"a preview", "GET /secret-path HTTP/1.1\nHost: abc.localhost:PORT\n\n", 200, "preview abc /secret-path http://abc.localhost:"},
		{"the path of MCP at it", "POST /mcp HTTP/1.1\nHost: abc.localhost\nContent-Length: 2\n\n{}", 200, "preview abc /mcp"},
		{"a body as large as uploads are", "PUT /x HTTP/1.1\nHost: abc.localhost\nContent-Length: 100\n\n" + strings.Repeat("a", 100), 200, "100 false"},
		{"a larger one", "PUT /x HTTP/1.1\nHost: abc.localhost\nContent-Length: 101\n\n" + strings.Repeat("a", 101), 413, "larger than 100 bytes"},
		{"one without a size", "PUT /x HTTP/1.1\nHost: abc.localhost\nTransfer-Encoding: chunked\n\nc8\n" + strings.Repeat("a", 200) + "\n0\n\n", 200, "true"},
		{"a token in its URL, which is the program's", "GET /?token=x HTTP/1.1\nHost: abc.localhost\n\n", 200, "preview abc"},
		{"a host that the operator has named", "GET /healthz HTTP/1.1\nHost: named.localhost\n\n", 200, `{"status":"ok"}`},
		{"the server", "GET /healthz HTTP/1.1\nHost: localhost:PORT\n\n", 200, `{"status":"ok"}`},
		{"two labels", "GET / HTTP/1.1\nHost: a.b.localhost\n\n", 403, "is not called"},
		{"no label", "GET / HTTP/1.1\nHost: .localhost\n\n", 403, "is not called"},
		{"another host in a header", "GET /healthz HTTP/1.1\nHost: localhost:PORT\nX-Forwarded-Host: abc.localhost\n\n", 200, `{"status":"ok"}`},
		{"a preflight of another page", "OPTIONS / HTTP/1.1\nHost: abc.localhost\nOrigin: http://evil.example\nAccess-Control-Request-Method: PUT\n\n", 403, "may not use this preview"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := s.raw(t, test.request)
			if got.status != test.status {
				t.Errorf("got.status = %d, want %d: %s", got.status, test.status, got.body)
			} else if !strings.Contains(got.body, test.body) {
				t.Errorf("got.body = %q, want %q in it", got.body, test.body)
			}
			if got.header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("other pages may read it: %v", got.header)
			}
		})
	}
	if text := log.String(); strings.Contains(text, "secret-path") {
		t.Errorf(`the log: text = %q, want no "secret-path" in it`, text)
	} else if !strings.Contains(text, "path=/…") {
		t.Errorf(`the log: text = %q, want "path=/…" in it`, text)
	}
}

func TestWithoutPreviewsTheirHostsAreStrangers(t *testing.T) {
	s := start(t, Config{})
	if got := s.raw(t, "GET / HTTP/1.1\nHost: abc.localhost\n\n"); got.status != 403 {
		t.Errorf("got %d %s", got.status, got.body)
	}
}

func TestPreviewsAreNeverAtANameOfTheServers(t *testing.T) {
	for _, test := range []struct {
		host, domain string
		refused      bool
	}{
		{"preview.example.net", "preview.example.net", true},
		{"paddock.preview.example.net", "preview.example.net", true},
		{"Paddock.Preview.example.net.", "preview.example.NET", true},
		{"preview.example.net", "deep.preview.example.net", false},
		{"paddock.example.net", "preview.example.net", false},
		{"notpreview.example.net", "preview.example.net", false},
		{"0.0.0.0", "preview.example.net", false},
		{"::1", "preview.example.net", false},
		{"paddock.localhost", "", false},
	} {
		s := &Server{config: Config{Host: test.host, PreviewDomain: test.domain}, hosts: hosts{}}
		err := s.readPreviews()
		if (err != nil) != test.refused {
			t.Errorf("at %s with previews below %q: %v", test.host, test.domain, err)
		}
		if f := fault.Of(err); test.refused && (f.Kind != fault.Invalid || !strings.Contains(f.Hint, "transport_http.host") || !strings.Contains(f.Hint, "preview_domain")) {
			t.Errorf("at %s: %v, %s", test.host, err, f.Hint)
		}
	}
}
