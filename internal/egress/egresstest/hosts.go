// Package egresstest is the hosts that programs should not trust, on this machine's
// loopback address: a name server whose names lead elsewhere the second time, and a server
// that redirects, echoes and never ends.
package egresstest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Host is a server, and what it was asked. It is for any number of goroutines.
type Host struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string
}

// Start starts a server for as long as the test runs. It answers at
//
//	/to?URL        a redirect to the URL, which is escaped as in a query; /to/307?URL keeps method and body
//	/loop          a redirect to itself
//	/echo          what it was asked, method, target, headers and body, in its answer's body
//	/endless       a body without an end
//	/header        a header without an end
//	/drip          a byte now and then, without an end
//
// and "hello from" and its host everywhere else.
func Start(t testing.TB) *Host {
	h := &Host{}
	h.Server = httptest.NewServer(http.HandlerFunc(h.serve))
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
	})
	return h
}

// Port is where it listens.
func (h *Host) Port() string { return h.URL[strings.LastIndexByte(h.URL, ':')+1:] }

// Asked are the method, host and target of each request that came.
func (h *Host) Asked() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.asked)
}

func (h *Host) serve(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.asked = append(h.asked, r.Method+" "+r.Host+" "+r.RequestURI)
	h.mu.Unlock()
	switch r.URL.Path {
	case "/to", "/to/307":
		status := http.StatusFound
		if r.URL.Path != "/to" {
			status = http.StatusTemporaryRedirect
		}
		to, _ := url.QueryUnescape(r.URL.RawQuery)
		w.Header().Set("Location", to)
		w.WriteHeader(status)
	case "/loop":
		http.Redirect(w, r, "/loop", http.StatusFound)
	case "/echo":
		fmt.Fprintf(w, "%s %s\r\nHost: %s\r\n", r.Method, r.RequestURI, r.Host)
		_ = r.Header.Write(w)
		fmt.Fprint(w, "\r\n")
		_, _ = io.Copy(w, r.Body)
	case "/endless":
		for piece := make([]byte, 64<<10); ; {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	case "/header":
		endlessHeader(w)
	case "/drip":
		for tick := time.NewTicker(50 * time.Millisecond); ; {
			select {
			case <-tick.C:
				fmt.Fprint(w, ".")
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				tick.Stop()
				return
			}
		}
	default:
		fmt.Fprint(w, "hello from ", r.Host)
	}
}

// endlessHeader writes header lines until nobody reads them.
func endlessHeader(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, err = fmt.Fprint(conn, "HTTP/1.1 200 OK\r\n")
	for line := []byte("X: " + strings.Repeat("a", 4000) + "\r\n"); err == nil; {
		_, err = conn.Write(line)
	}
}
