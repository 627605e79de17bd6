package preview_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/internal/auth"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
	"paddock/internal/web"
	"paddock/internal/web/preview"
)

// The tokens of two owners, and of one who may only move files.
const (
	annToken, bobToken, filesToken = "ann-token-0123456789", "bob-token-0123456789", "files-token-0123456789"
	ann, bob                       = session.Owner("ann"), session.Owner("bob")
)

// machines are sessions' machines, whose programs are servers on this host.
type machines struct {
	*sandboxtest.FakeKeeper

	mu       sync.Mutex
	programs map[uint16]string // addresses, by port; of every machine
	givenUp  chan error        // how a dial to a silent one ended
}

// Dial implements [sandbox.Dialer].
func (b *machines) Dial(ctx context.Context, owner, box string, port uint16) (sandbox.Stream, error) {
	if b.Memory(owner, box) == 0 {
		return nil, fault.New(fault.NotFound, "the machine %q is not running", box)
	}
	b.mu.Lock()
	at := b.programs[port]
	b.mu.Unlock()
	if at == "" {
		return nil, fault.New(fault.Unavailable, "no program in the sandbox listens at port %d", port).WithHint("start a program there")
	}
	if at == silent {
		<-ctx.Done()
		b.givenUp <- ctx.Err()
		return nil, ctx.Err()
	}
	c, err := new(net.Dialer).DialContext(ctx, "tcp", at)
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// silent is the address of a program of a machine that answers no dial.
const silent = "silent"

// serves has each machine's port lead to a server.
func (b *machines) serves(port uint16, at string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.programs[port] = at
}

// fixture is a server with previews, and sessions behind it.
type fixture struct {
	backend  *machines
	sessions *session.Manager
	store    *preview.Store
	server   *web.Server
	base     string // the API's
	port     string
	dir      string
	stop     func()

	mu     sync.Mutex
	alive  error
	events []string
}

// key signs the previews of tests.
var key = bytes.Repeat([]byte{7}, 32)

// open makes a fixture upon a folder that others may have had; change, where there is one,
// has a say in how it is.
func open(t *testing.T, dir string, change func(*web.Config, *preview.Config)) *fixture {
	t.Helper()
	h := &fixture{backend: &machines{FakeKeeper: sandboxtest.NewFakeKeeper(sandboxtest.FakeConfig{Name: "machines"}), programs: map[uint16]string{}, givenUp: make(chan error, 1)}, dir: dir}
	wasm := sandboxtest.NewFake(sandboxtest.FakeConfig{Name: "wasm"})
	h.store = preview.Open(dir+"/previews", func() ([]byte, error) { return key, nil })
	var err error
	h.sessions, err = session.New(session.Config{
		Dir: dir, Backends: []sandbox.Backend{h.backend, wasm},
		Observers: []session.Observer{session.RemovedFunc(func(o session.Owner, id session.ID) { _, _ = h.store.Revoke(o, id, nil) })},
	})
	if err != nil {
		t.Fatal(err)
	}
	config := web.Config{Port: 0, Verifier: auth.Any(
		auth.Static(annToken, &auth.Principal{ID: string(ann), Name: "ann"}), auth.Static(bobToken, &auth.Principal{ID: string(bob), Name: "bob"}),
		auth.Static(filesToken, &auth.Principal{ID: string(ann), Name: "files", Tools: []string{"files"}}),
	), MCP: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "MCP") })}
	previews := preview.Config{
		Sessions: h.sessions, Store: h.store, URL: func(id string) string { return h.server.PreviewURL(id) },
		Alive: func(session.Owner) error {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.alive
		},
		Told: func(_ context.Context, e preview.Event) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.events = append(h.events, fmt.Sprint(e.Action, " ", e.Preview.Owner, " ", e.Preview.Port, " ", fault.KindOf(e.Err)))
		},
	}
	if change != nil {
		change(&config, &previews)
	}
	handler, err := preview.New(previews)
	if err != nil {
		t.Fatal(err)
	}
	config.Preview, config.Previews = handler.ServePreview, handler
	if h.server, err = web.New(config); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	started, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- h.server.Run(ctx, func(url string) { started <- url }) }()
	select {
	case at := <-started:
		h.base = strings.TrimSuffix(at, "/mcp")
	case err := <-ended:
		t.Fatal(err)
	}
	u, _ := url.Parse(h.base)
	h.port = u.Port()
	h.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := h.sessions.Close(); err != nil {
			t.Error(err)
		}
		h.backend.Close()
		wasm.Close()
	})
	t.Cleanup(h.stop)
	return h
}

// session makes a session whose machine runs.
func (h *fixture) session(t *testing.T, owner session.Owner) session.ID {
	t.Helper()
	i, err := h.sessions.Create(t.Context(), owner, "", session.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.sessions.Boot(t.Context(), owner, i.ID); err != nil {
		t.Fatal(err)
	}
	return i.ID
}

// program is a server that every machine has at a port.
func (h *fixture) program(t *testing.T, port uint16, f http.HandlerFunc) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: f}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	h.backend.serves(port, l.Addr().String())
}

// says is a program that answers every connection with the same bytes.
func (h *fixture) says(t *testing.T, port uint16, answer string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = c.Read(make([]byte, 64<<10))
				_, _ = io.WriteString(c, answer)
			}()
		}
	}()
	h.backend.serves(port, l.Addr().String())
}

// browser has cookies, and finds all hosts here.
func (h *fixture) browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, "127.0.0.1:"+h.port)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Jar: jar, Transport: transport}
}

type reply struct {
	status int
	body   string
	header http.Header
}

// do sends a request. Headers are name and value by turns; Host is the request's.
func do(t *testing.T, c *http.Client, method, to, body string, headers ...string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, to, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Add(headers[i], headers[i+1])
	}
	res, err := c.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, to, err)
	}
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, to, err)
	}
	return reply{res.StatusCode, string(all), res.Header}
}

// make asks the API for a preview.
func (h *fixture) make(t *testing.T, token string, id session.ID, ask string) (preview.Shown, reply) {
	t.Helper()
	got := do(t, http.DefaultClient, "POST", h.base+"/api/v1/sessions/"+string(id)+"/previews", ask, "Authorization", "Bearer "+token, "Content-Type", "application/json")
	var made preview.Shown
	if got.status == http.StatusCreated {
		if err := json.Unmarshal([]byte(got.body), &made); err != nil {
			t.Fatal(err)
		}
	}
	return made, got
}

// enter makes a preview of a port of ann's, and a browser that has opened it; at is its
// address.
func (h *fixture) enter(t *testing.T, id session.ID, port uint16) (c *http.Client, made preview.Shown, at string) {
	t.Helper()
	made, got := h.make(t, annToken, id, fmt.Sprintf(`{"port": %d}`, port))
	if got.status != http.StatusCreated {
		t.Fatalf("it says %d %s", got.status, got.body)
	}
	c = h.browser(t)
	before := c.CheckRedirect
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if got := do(t, c, "GET", made.URL, ""); got.status != http.StatusSeeOther {
		t.Fatalf("the link gives %d %s", got.status, got.body)
	}
	c.CheckRedirect = before
	return c, made, strings.Split(made.URL, "/.paddock/")[0]
}

// raw sends bytes, and gives what comes back until the end.
func (h *fixture) raw(t *testing.T, request string) string {
	t.Helper()
	c, err := net.Dial("tcp", "127.0.0.1:"+h.port)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	all, _ := io.ReadAll(c) // it may be cut off
	return string(all)
}
