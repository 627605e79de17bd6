package web

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"paddock/internal/auth"
	"paddock/internal/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "a-token-of-the-tests"

// complete gives a Config of the tests what it needs to answer.
func complete(c Config) Config {
	if c.Verifier == nil && !c.Dev {
		c.Verifier = auth.Static(token, &auth.Principal{ID: "token:1", Name: "ann"})
	}
	if c.MCP == nil {
		c.MCP = http.HandlerFunc(echo)
	}
	if c.Files == nil {
		c.Files = http.HandlerFunc(echo)
	}
	return c
}

// echo answers with whose request it is and with its body.
func echo(w http.ResponseWriter, r *http.Request) {
	content, err := io.ReadAll(r.Body)
	var own refusal
	if errors.As(err, &own) {
		http.Error(w, err.Error(), own.status)
		return
	}
	who := "anonymous"
	if p := auth.From(r.Context()); p != nil {
		who = p.Name
	}
	fmt.Fprintf(w, "%s: %s", who, content)
}

func create(t *testing.T, c Config) *Server {
	t.Helper()
	s, err := New(complete(c))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// server is one that runs on loopback.
type server struct {
	own  *Server
	url  string // without a path
	at   string // host:port
	stop func() error
}

// start runs a server on a free port until the test ends.
func start(t *testing.T, c Config) *server {
	t.Helper()
	s := &server{own: create(t, c)}
	l, err := s.own.listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().(*net.TCPAddr)
	s.at, s.url = at.String(), strings.TrimSuffix(s.own.url(at.Port), s.own.config.Path)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.own.serve(ctx, l) }()
	s.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := s.stop(); err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
	return s
}

// reply is a whole answer.
type reply struct {
	status int
	header http.Header
	body   string
}

// raw sends a request as it is written, with PORT for the server's port, and
// gives the answer.
func (s *server) raw(t *testing.T, request string) reply {
	t.Helper()
	c, err := net.Dial("tcp", s.at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, port, _ := net.SplitHostPort(s.at)
	return exchange(t, c, strings.ReplaceAll(request, "PORT", port))
}

// exchange writes a request, with line ends as HTTP has them, and reads the
// answer.
func exchange(t *testing.T, c net.Conn, request string) reply {
	t.Helper()
	if _, err := io.WriteString(c, strings.ReplaceAll(request, "\n", "\r\n")); err != nil {
		t.Fatal(err)
	}
	return receive(t, bufio.NewReader(c))
}

func receive(t *testing.T, from *bufio.Reader) reply {
	t.Helper()
	res, err := http.ReadResponse(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	content, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{res.StatusCode, res.Header, string(content)}
}

// post is a call with a token; headers are further ones.
func post(headers, body string) string {
	return fmt.Sprintf("POST /mcp HTTP/1.1\nHost: 127.0.0.1:PORT\nAuthorization: Bearer %s\nContent-Type: application/json\nContent-Length: %d\n%s\n%s", token, len(body), headers, body)
}

// lines is a log that can be read while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func TestAnythingButALocalServerWithATokenHasToBeAskedFor(t *testing.T) {
	verifier := auth.Any()
	for _, test := range []struct {
		name    string
		config  Config
		message string // empty: it is accepted
	}{
		{"the defaults", Config{Verifier: verifier}, ""},
		{"nothing to say who comes in", Config{}, "an HTTP server needs to know who may come in"},
		{"no token on loopback", Config{Dev: true}, ""},
		{"no token on the IPv6 loopback", Config{Dev: true, Host: "[::1]"}, ""},
		{"no token for everybody", Config{Dev: true, Host: "0.0.0.0"}, "without a token 0.0.0.0 would let the whole network in"},
		{"no token for everybody, with plain HTTP allowed", Config{Dev: true, Host: "::", AllowPlain: true}, "without a token :: would let the whole network in"},
		{"no token behind a proxy", Config{Dev: true, TrustedProxies: []string{"127.0.0.1"}}, "a proxy's requests need a token"},
		{"no token for every page", Config{Dev: true, Origins: []string{"*"}}, "without a token every web page could run programs here"},
		{"plain HTTP for everybody", Config{Verifier: verifier, Host: "0.0.0.0"}, "at 0.0.0.0 tokens and programs would cross the network unencrypted"},
		{"plain HTTP for everybody, allowed", Config{Verifier: verifier, Host: "0.0.0.0", AllowPlain: true}, ""},
		{"plain HTTP for a proxy", Config{Verifier: verifier, Host: "0.0.0.0", TrustedProxies: []string{"10.0.0.0/8"}}, ""},
		{"an odd host", Config{Verifier: verifier, Host: "a b"}, `"a b" with port 0 is not an address to listen at`},
		{"a path that is taken", Config{Verifier: verifier, Path: "/healthz"}, "the MCP endpoint cannot be at /healthz"},
		{"a path below the files", Config{Verifier: verifier, Path: "/v1/mcp"}, "the MCP endpoint cannot be at /v1/mcp"},
		{"the path of the other calls", Config{Verifier: verifier, Path: "/api/v1/rpc"}, "the MCP endpoint cannot be at /api/v1/rpc"},
		{"a path that is none", Config{Verifier: verifier, Path: "mcp"}, `"mcp" is not a path for the MCP endpoint`},
		{"a proxy by its name", Config{Verifier: verifier, TrustedProxies: []string{"proxy"}}, `the trusted proxy "proxy" is neither an address nor a prefix`},
		{"a host with a path", Config{Verifier: verifier, AllowedHosts: []string{"a/b"}}, `the allowed host "a/b" is not a host`},
		{"an origin with a pattern", Config{Verifier: verifier, Origins: []string{"https://*.test"}}, `the origin "https://*.test" is not of the form scheme://host[:port]`},
		{"the origin of files", Config{Verifier: verifier, Origins: []string{"null"}}, `the origin "null" is not of the form scheme://host[:port]`},
		{"a public URL with a path", Config{Verifier: verifier, PublicURL: "https://a.test/b"}, `the public URL "https://a.test/b" is not of the form https://host[:port]`},
		{"a public URL with a user", Config{Verifier: verifier, PublicURL: "https://b@a.test"}, `the public URL "https://b@a.test" is not of the form https://host[:port]`},
		{"a certificate without a key", Config{Verifier: verifier, CertFile: "c.pem"}, "TLS needs a certificate and its key"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := New(test.config)
			if err == nil && test.message == "" {
				return
			}
			if err == nil {
				t.Error("got no error, want one")
			} else if fault.Of(err).Message != test.message {
				t.Errorf("fault.Of(err).Message = %q, want %q", fault.Of(err).Message, test.message)
			}
		})
	}
}

func TestAllMistakesAreFoundAtOnce(t *testing.T) {
	_, err := New(Config{Path: "x", TrustedProxies: []string{"a", "b"}, Origins: []string{"c"}, AllowedHosts: []string{"/"}, CertFile: "d"})
	for _, want := range []string{`"x"`, `"a"`, `"b"`, `"c"`, `"/"`, "certificate", "who may come in"} {
		if err == nil {
			t.Error("got no error, want one")
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("got error %q, want %q in it", err.Error(), want)
		}
	}
}

func TestAPortInUseIsSaidClearly(t *testing.T) {
	first := start(t, Config{})
	_, port, _ := net.SplitHostPort(first.at)
	var n int
	fmt.Sscan(port, &n)
	err := create(t, Config{Port: n}).Run(t.Context(), nil)
	switch f := fault.Of(err); {
	case f.Kind != fault.Conflict:
		t.Errorf("it says %v: f.Kind = %v, want %v", err, f.Kind, fault.Conflict)
	case f.Message != "something listens at "+first.at+" already":
		t.Errorf("it says %v: f.Message = %q, want %q",
			err, f.Message, "something listens at "+first.at+" already")
	case f.Hint == "":
		t.Errorf("it says %v: f.Hint is empty, want a text", err)
	}
	err = create(t, Config{Host: "192.0.2.1", AllowPlain: true}).Run(t.Context(), nil)
	if f := fault.Of(err); f.Message != "this machine has no address 192.0.2.1" {
		t.Errorf("it says %v", err)
	}
}
