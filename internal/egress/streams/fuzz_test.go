package streams

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"paddock/internal/egress/proxy"
)

// Whatever messages a guest sends, each is answered with a value or an error, and no host
// is asked but the one that is allowed.
func FuzzMessage(f *testing.F) {
	var mu sync.Mutex
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.Host)
	}))
	f.Cleanup(s.Close)
	closed := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, "the closed one")
	}))
	f.Cleanup(closed.Close)
	at, not := s.Listener.Addr().String(), closed.Listener.Addr().String()
	_, port, _ := net.SplitHostPort(at)
	_, notPort, _ := net.SplitHostPort(not)
	table := tableOf(f, Config{Idle: 50 * time.Millisecond}, proxy.Config{Budgets: proxy.Budgets{Requests: -1, Sent: -1, Received: -1}}, at+"!private")
	for _, text := range []string{
		`{"op":"net.resolve","host":"local.test"}`, `{"op":"net.open","host":"127.0.0.1","port":PORT}|{"op":"net.write","stream":1,"at":0}` + "\nGET / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n|" + `{"op":"net.read","stream":1,"at":0,"max":10}|{"op":"net.close","stream":1}`,
		`{"op":"net.open","host":"127.0.0.1","port":NOT}`, `{"op":"net.open","host":"127.0.0.1","port":PORT,"tls":true}|{"op":"net.tls","stream":1,"host":"evil.example"}`,
		`{"op":"net.fetch","method":"GET","url":"http://127.0.0.1:PORT/","headers":[["a","b"],["Host","127.0.0.1:NOT"]],"redirect":"follow"}|{"op":"net.head","stream":1}|{"op":"net.shut","stream":1}`,
		`{"op":"net.fetch","method":"P\r\nX","url":"http://127.0.0.1:NOT@127.0.0.1:PORT/","more":true,"length":-5}|{"op":"net.write","stream":1,"at":-1}`, `{"op":"net.poll","streams":[1,2,-3],"timeout":1e300}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		script = bytes.ReplaceAll(bytes.ReplaceAll(script, []byte("PORT"), []byte(port)), []byte("NOT"), []byte(notPort))
		table.mu.Lock()
		table.last = 0 // so that scripts can name streams
		for _, s := range table.streams {
			defer s.close()
		}
		clear(table.streams)
		table.mu.Unlock()
		for one := range bytes.SplitSeq(script, []byte("|")) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			answer, _, _ := bytes.Cut(table.Answer(ctx, one), []byte("\n"))
			cancel()
			var out map[string]json.RawMessage
			switch err := json.Unmarshal(answer, &out); {
			case err != nil:
				t.Errorf("%q is answered %q: %v", one, answer, err)
			case len(out) != 1:
				t.Errorf("%q is answered %q: len(out) = %d, want 1: %+v", one, answer, len(out), out)
			case out["value"] == nil && out["error"] == nil:
				t.Errorf("%q is answered %q, want a value or an error in it", one, answer)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		for _, host := range asked {
			if host != "127.0.0.1:"+port {
				t.Errorf("%s was asked after %q", host, script)
			}
		}
		asked = nil
	})
}
