package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/fault"
)

// transport is what the tests reach their servers through.
func transport(t testing.TB) http.RoundTripper {
	base := &http.Transport{MaxIdleConnsPerHost: 8}
	t.Cleanup(base.CloseIdleConnections)
	return base
}

// served has a handler at an address, as a definition.
func served(t testing.TB, h http.Handler) Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return Server{Name: "web", URL: s.URL + "/mcp", CallTimeout: timeout}
}

// eras are the Go SDK's ways to serve over HTTP.
func eras() map[Era]http.Handler {
	one := func(*http.Request) *mcp.Server { return sdkServer() }
	shared := sdkServer()
	return map[Era]http.Handler{
		Modern:    mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return shared }, &mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true}),
		Legacy:    mcp.NewStreamableHTTPHandler(one, nil),
		LegacySSE: mcp.NewSSEHandler(one, nil),
	}
}

func TestServersOfTheGoSDKAreReachedByEachTransport(t *testing.T) {
	for era, handler := range eras() {
		t.Run(string(era), func(t *testing.T) {
			c := dial(t, served(t, handler), Options{Transport: transport(t)})
			if info := c.Info(); info.Era != era {
				t.Fatalf("info.Era = %q, want %q: %+v", info.Era, era, info)
			} else if info.Name != "sdk" {
				t.Fatalf(`info.Name = %q, want "sdk": %+v`, info.Name, info)
			}
			if got := names(t, c); !slices.Equal(got, []string{"echo", "grow", "region", "slow"}) {
				t.Errorf("its tools are %q", got)
			}
			var all sync.WaitGroup
			for i := range 20 {
				all.Go(func() {
					arguments := fmt.Sprintf(`{"z":"%d"}`, i)
					if r := call(t, c, "echo", arguments); r.Content[0].Text != arguments {
						t.Errorf("the answer to %s is %s", arguments, r.Content[0].Text)
					}
				})
			}
			all.Wait()
			var steps atomic.Int32
			r, err := c.Call(t.Context(), "slow", nil, CallOptions{Meta: map[string]any{"key": "k"}, Progress: func(Progress) { steps.Add(1) }})
			switch {
			case err != nil:
				t.Errorf("slow: %v", err)
			case r.Content[0].Text != "k":
				t.Errorf(`slow: r.Content[0].Text = %q, want "k"`, r.Content[0].Text)
			case steps.Load() != 3:
				t.Errorf("slow: steps.Load() = %v, want 3: %+v", steps.Load(), r)
			}
			ctx, cancel := context.WithCancel(t.Context())
			_, err = c.Call(ctx, "slow", json.RawMessage(`{"wait":true}`), CallOptions{Progress: func(Progress) { cancel() }})
			if ReasonOf(err) != Cancelled {
				t.Errorf("the cancelled call ended with %v", err)
			}
			call(t, c, "grow", `{}`)
			eventually(t, "the new tool is listed", func() bool { return slices.Contains(names(t, c), "grown") })
		})
	}
}

func TestArgumentsGoIntoHeadersWhereTheSchemaSaysSo(t *testing.T) {
	c := dial(t, served(t, eras()[Modern]), Options{Transport: transport(t)})
	if r := call(t, c, "region", `{"where":"eu"}`); r.IsError {
		t.Error("the header: r.IsError = true, want false")
	} else if r.Content[0].Text != "eu" {
		t.Errorf(`the header: r.Content[0].Text = %q, want "eu"`, r.Content[0].Text)
	}
	if _, err := c.Call(t.Context(), "region", json.RawMessage(`{"where":"ü"}`), CallOptions{}); err != nil {
		t.Errorf("a value that is not plain: %v", err)
	}
}

// script is a server whose answers to calls are a function's.
type script struct {
	call func(w http.ResponseWriter, r *http.Request, id int64)
	// session is handed out and wanted back, in the legacy era.
	session atomic.Pointer[string]
	seen    sync.Map // method → http.Header
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, _ := io.ReadAll(r.Body)
	m, err := decode(body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.seen.Store(m.Method, r.Header)
	if want := s.session.Load(); want != nil && m.Method != "initialize" && m.Method != "server/discover" && r.Header.Get("Mcp-Session-Id") != *want {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	result := ""
	switch m.Method {
	case "server/discover":
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, m.ID)
		return
	case "initialize":
		if id := s.session.Load(); id != nil {
			w.Header().Set("Mcp-Session-Id", *id)
		}
		result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"script","version":"1"}}`
	case "tools/list":
		result = `{"tools":[{"name":"do","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}`
	case "tools/call":
		s.call(w, r, m.number())
		return
	default:
		w.WriteHeader(http.StatusAccepted)
		return
	}
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

func answered(w io.Writer, id int64, text string) {
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":%q}]}}`, id, text)
}

func asStream(w http.ResponseWriter) { w.Header().Set("Content-Type", "text/event-stream") }

// A badAnswer is what a server sends to a call, and what the call ends with.
type badAnswer struct {
	answer func(w http.ResponseWriter, r *http.Request, id int64)
	reason Reason
	known  bool // its outcome
}

// Each of these is an attack (83): what it ends with is a typed error, and soon, and
// the connection lives on for what comes after.
func TestABadAnswerOverHTTPIsATypedErrorAndHarmsNothingElse(t *testing.T) {
	t.Parallel()
	for _, answers := range []map[string]badAnswer{endlessAnswers(), wrongAnswers()} {
		for name, c := range answers {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				endsTyped(t, c)
			})
		}
	}
}

// endsTyped checks that a call that gets a bad answer ends with its reason, in bounds, and
// that the next call on the connection works.
func endsTyped(t *testing.T, c badAnswer) {
	t.Helper()
	var bad atomic.Bool
	bad.Store(true)
	s := served(t, &script{call: func(w http.ResponseWriter, r *http.Request, id int64) {
		if bad.Swap(false) {
			c.answer(w, r, id)
		} else {
			answered(w, id, "fine")
		}
	}})
	s.ResponseCap = 1 << 20
	conn := dial(t, s, Options{Transport: transport(t), Eras: legacyOnly{}})
	before := heap()
	_, err := conn.Call(t.Context(), "do", nil, CallOptions{Timeout: map[bool]time.Duration{true: time.Second, false: timeout}[c.reason == TimedOut]})
	var e *Error
	switch {
	case !errors.As(err, &e):
		t.Fatalf("error %v, want a %T", err, e)
	case e.Reason != c.reason:
		t.Fatalf("e.Reason = %v, want %v: %+v", e.Reason, c.reason, e)
	case e.Unknown() == c.known:
		t.Fatalf("e.Unknown() = %v, want other than %v: %+v", e.Unknown(), c.known, e)
	}
	if strings.ContainsAny(err.Error(), "\n\x1b") {
		t.Errorf("its message is %q", err)
	}
	if grown := heap() - before; grown > 200<<20 {
		t.Errorf("it took %d MiB", grown>>20)
	}
	if r := call(t, conn, "do", `{}`); r.Content[0].Text != "fine" {
		t.Errorf("after it: %+v", r)
	}
}

// endlessAnswers have too much in them, or do not end.
func endlessAnswers() map[string]badAnswer {
	chunk := strings.Repeat("x", 1<<20)
	return map[string]badAnswer{
		"a body of a gigabyte": {func(w http.ResponseWriter, _ *http.Request, id int64) {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%d,"result":"`, id)
			for range 1 << 10 {
				if _, err := io.WriteString(w, chunk); err != nil {
					return
				}
			}
		}, TooLarge, false},
		"a body that never ends": {func(w http.ResponseWriter, r *http.Request, _ int64) {
			_, _ = io.WriteString(w, `{"jsonrpc"`)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, TimedOut, false},
		"an event of a gigabyte": {func(w http.ResponseWriter, _ *http.Request, _ int64) {
			asStream(w)
			_, _ = io.WriteString(w, "data: ")
			for range 1 << 10 {
				if _, err := io.WriteString(w, chunk); err != nil {
					return
				}
			}
		}, TooLarge, false},
		"a million notifications": {func(w http.ResponseWriter, _ *http.Request, _ int64) {
			asStream(w)
			for range 1_000_000 {
				if _, err := io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n\n"); err != nil {
					return
				}
			}
		}, Flooded, false},
		"comments without end": {func(w http.ResponseWriter, _ *http.Request, _ int64) {
			asStream(w)
			for {
				if _, err := io.WriteString(w, ": "+chunk[:1000]+"\n\n"); err != nil {
					return
				}
			}
		}, TooLarge, false},
	}
}

// wrongAnswers are not what the protocol has.
func wrongAnswers() map[string]badAnswer {
	return map[string]badAnswer{
		"what is not JSON": {func(w http.ResponseWriter, _ *http.Request, _ int64) {
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0",`)
		}, Malformed, false},
		"an event that is not JSON": {func(w http.ResponseWriter, _ *http.Request, _ int64) {
			asStream(w)
			_, _ = io.WriteString(w, "data: {\n\n")
		}, Malformed, false},
		"a page": {func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<script>")
		}, Malformed, false},
		"an answer to something else": {func(w http.ResponseWriter, _ *http.Request, id int64) { answered(w, id+7, "x") }, Malformed, false},
		"a stream without an answer": {func(w http.ResponseWriter, _ *http.Request, _ int64) {
			asStream(w)
			_, _ = io.WriteString(w, ": nothing\n\n")
		}, Closed, false},
		"a connection that breaks": {func(w http.ResponseWriter, _ *http.Request, _ int64) {
			_, _ = io.WriteString(w, `{"jsonrpc"`)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, Closed, false},
		"no answer at all": {func(http.ResponseWriter, *http.Request, int64) { panic(http.ErrAbortHandler) }, Unreachable, false},
		"nothing":          {func(w http.ResponseWriter, _ *http.Request, _ int64) { w.WriteHeader(http.StatusAccepted) }, Malformed, false},
		"an error of its own": {func(w http.ResponseWriter, _ *http.Request, id int64) {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%d,"error":{"code":-32602,"message":"no such\ntool\u001b[31m"}}`, id)
		}, Refused, true},
		"a gateway's error": {func(w http.ResponseWriter, _ *http.Request, _ int64) { w.WriteHeader(http.StatusBadGateway) }, Unreachable, false},
		"a refusal":         {func(w http.ResponseWriter, _ *http.Request, _ int64) { w.WriteHeader(http.StatusForbidden) }, Refused, true},
		"a bomb of deep JSON": {func(w http.ResponseWriter, _ *http.Request, id int64) {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":%s}}`, id, strings.Repeat("[", 500_000))
		}, Malformed, false},
	}
}

func TestACompressedBodyIsBoundedByWhatItBecomes(t *testing.T) {
	s := served(t, &script{call: func(w http.ResponseWriter, _ *http.Request, id int64) { zipped(w, id, 1<<28) }})
	s.ResponseCap = 1 << 20
	c := dial(t, s, Options{Transport: transport(t), Eras: legacyOnly{}})
	if _, err := c.Call(t.Context(), "do", nil, CallOptions{}); ReasonOf(err) != TooLarge {
		t.Errorf("it ended with %v", err)
	}
}

func TestAnswersComeAsJSONOrAsAStreamThatMayBeTakenUpAgain(t *testing.T) {
	var resumed atomic.Int32
	broken := &script{call: func(w http.ResponseWriter, _ *http.Request, _ int64) {
		asStream(w)
		_, _ = io.WriteString(w, "id: 1\nretry: 10\ndata:\n\n")
	}}
	s := served(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.Header.Get("Last-Event-Id") != "" {
			asStream(w)
			if resumed.Add(1) == 3 {
				_, _ = io.WriteString(w, "id: 9\r\ndata: {\"jsonrpc\":\"2.0\",\"id\":2,\r\ndata: \"result\":{\"content\":[]}}\r\n\r\n")
			}
			return
		}
		broken.ServeHTTP(w, r)
	}))
	c := dial(t, s, Options{Transport: transport(t), Eras: legacyOnly{}})
	if _, err := c.Call(t.Context(), "do", nil, CallOptions{}); err != nil {
		t.Errorf("got error %v, want none", err)
	} else if resumed.Load() != 3 {
		t.Errorf("resumed = %d, want 3", resumed.Load())
	}
}

func TestHeadersGoToTheServersOriginOnly(t *testing.T) {
	var stolen atomic.Int32
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { stolen.Add(1) }))
	defer thief.Close()
	good := &script{call: func(w http.ResponseWriter, r *http.Request, id int64) { answered(w, id, r.Header.Get("X-Key")) }}
	s := served(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/mcp": // a slash is missing
			http.Redirect(w, r, "/mcp/", http.StatusTemporaryRedirect)
		case "/mcp/":
			good.ServeHTTP(w, r)
		case "/away":
			http.Redirect(w, r, thief.URL+"/mcp", http.StatusTemporaryRedirect)
		case "/get":
			http.Redirect(w, r, "/mcp/", http.StatusFound)
		case "/circle":
			http.Redirect(w, r, "/circle", http.StatusPermanentRedirect)
		case "/sse":
			asStream(w)
			fmt.Fprintf(w, "event: endpoint\ndata: %s/messages\n\n", thief.URL)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}))
	s.Headers = map[string]string{"x-key": "hunter2", "authorization": "Bearer mine"}
	c := dial(t, s, Options{Transport: transport(t)})
	if r := call(t, c, "do", `{}`); r.Content[0].Text != "hunter2" {
		t.Errorf("it got %+v", r)
	}
	for _, path := range []string{"/away", "/get", "/circle", "/sse"} {
		s := s
		s.URL = strings.TrimSuffix(s.URL, "/mcp") + path
		if path == "/sse" {
			s.Transport = TransportSSE
		}
		_, err := Dial(t.Context(), s, Options{Transport: transport(t)})
		if ReasonOf(err) != Unreachable {
			t.Errorf("%s: got an error of the reason %q, want %q: %v", path, ReasonOf(err), Unreachable, err)
		} else if strings.Contains(cause(err), "hunter2") {
			t.Errorf(`%s: cause(err) = %q, want no "hunter2" in it`, path, cause(err))
		}
	}
	if stolen.Load() != 0 {
		t.Error("somebody else was asked")
	}
	g := &guarded{base: transport(t), origin: "https://a.example:443", headers: s.Headers}
	for _, url := range []string{"http://a.example", "https://a.example:444", "https://a.example.evil.example", "https://evil.example/a.example"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := g.RoundTrip(r); fault.KindOf(err) != fault.Denied {
			t.Errorf("%s: %v, %v", url, resp, err)
		}
	}
}

// tokens is a source whose first token is stale.
type tokens struct {
	mu      sync.Mutex
	current string
	next    string
	asked   int
}

func (s *tokens) Token(context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current, nil
}

func (s *tokens) Refresh(_ context.Context, refused string, _ []string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if refused == s.current {
		s.current = s.next
	}
	return s.current, nil
}

func TestARefusedTokenIsRefreshedOnceAndNeverLogged(t *testing.T) {
	inner := &script{call: func(w http.ResponseWriter, _ *http.Request, id int64) { answered(w, id, "in") }}
	s := served(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Authorization") {
		case "Bearer good-token":
			inner.ServeHTTP(w, r)
		case "Bearer weak-token":
			w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="files:write"`)
			w.WriteHeader(http.StatusForbidden)
		default:
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="https://rs.example/.well-known/oauth-protected-resource", scope="files", error="invalid_token"`)
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	source := &tokens{current: "stale-token", next: "good-token"}
	c := dial(t, s, Options{Transport: transport(t), Tokens: source})
	if r := call(t, c, "do", `{}`); r.Content[0].Text != "in" {
		t.Errorf(`r.Content[0].Text = %q, want "in": %+v`, r.Content[0].Text, r)
	} else if source.asked != 1 {
		t.Errorf("source.asked = %d, want 1", source.asked)
	}
	for name, o := range map[string]struct {
		source TokenSource
		want   NeedsAuthorization
	}{
		"none":   {nil, NeedsAuthorization{Server: "web", URL: s.URL, Status: 401, ResourceMetadata: "https://rs.example/.well-known/oauth-protected-resource", Scope: "files", Code: "invalid_token"}},
		"stale":  {&tokens{current: "stale-token"}, NeedsAuthorization{Server: "web", URL: s.URL, Status: 401, ResourceMetadata: "https://rs.example/.well-known/oauth-protected-resource", Scope: "files", Code: "invalid_token"}},
		"weaker": {&tokens{current: "weak-token"}, NeedsAuthorization{Server: "web", URL: s.URL, Status: 403, Scope: "files:write", Code: "insufficient_scope"}},
	} {
		_, err := Dial(t.Context(), s, Options{Transport: transport(t), Tokens: o.source})
		var needs *NeedsAuthorization
		switch {
		case !errors.As(err, &needs):
			t.Errorf("%s: error %v, want a %T", name, err, needs)
		case *needs != o.want:
			t.Errorf("%s: *needs = %v, want %v: %+v", name, *needs, o.want, needs)
		case ReasonOf(err) != Unauthorized:
			t.Errorf("%s: ReasonOf(err) = %v, want %v: %+v", name, ReasonOf(err), Unauthorized, needs)
		case fault.KindOf(err) != fault.Denied:
			t.Errorf("%s: error %v, want kind %v", name, err, fault.Denied)
		}
		if strings.Contains(cause(err), "-token ") {
			t.Errorf("%s: the token is in %s", name, cause(err))
		}
	}
}

func TestAnErrorSaysWhetherTheServerMayHaveSeenTheCall(t *testing.T) {
	back := func(status int) *script {
		return &script{call: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
		}}
	}
	for status, want := range map[int]struct{ sent, unknown bool }{429: {false, false}, 503: {true, true}, 400: {true, false}} {
		c := dial(t, served(t, back(status)), Options{Transport: transport(t), Eras: legacyOnly{}})
		_, err := c.Call(t.Context(), "do", nil, CallOptions{})
		var e *Error
		switch {
		case !errors.As(err, &e):
			t.Errorf("%d: error %v, want a %T", status, err, e)
		case e.Sent != want.sent:
			t.Errorf("%d: e.Sent = %v, want %v: %+v", status, e.Sent, want.sent, e)
		case e.Unknown() != want.unknown:
			t.Errorf("%d: e.Unknown() = %v, want %v: %+v", status, e.Unknown(), want.unknown, e)
		}
		if f := fault.Of(err); status != 400 && f.RetryAfter != 7*time.Second {
			t.Errorf("%d: retry after %v", status, f.RetryAfter)
		}
	}
	h := httptest.NewServer(back(200))
	s := Server{Name: "web", URL: h.URL}
	base := transport(t)
	c := dial(t, s, Options{Transport: base, Eras: legacyOnly{}})
	h.CloseClientConnections()
	h.Close()
	base.(*http.Transport).CloseIdleConnections()
	if _, err := c.Call(t.Context(), "do", nil, CallOptions{}); Sent(err) {
		t.Errorf("a server that is gone: Sent(err) = true, want false: %v", err)
	} else if ReasonOf(err) != Unreachable {
		t.Errorf("a server that is gone: got an error of the reason %q, want %q: %v", ReasonOf(err), Unreachable, err)
	}
	if !Sent(errors.New("another's")) {
		t.Error("an error of another's may mean that it was sent: got false, want true")
	}
	if Sent(nil) {
		t.Error("no error means that it was sent: got true, want false")
	}
}

func TestAForgottenSessionIsNoticed(t *testing.T) {
	s := &script{call: func(w http.ResponseWriter, _ *http.Request, id int64) { answered(w, id, "x") }}
	first, second := "one", "two"
	s.session.Store(&first)
	c := dial(t, served(t, s), Options{Transport: transport(t)})
	call(t, c, "do", `{}`)
	s.session.Store(&second)
	_, err := c.Call(t.Context(), "do", nil, CallOptions{})
	if ReasonOf(err) != SessionGone {
		t.Errorf("got an error of the reason %q, want %q: %v", ReasonOf(err), SessionGone, err)
	} else if Sent(err) {
		t.Errorf("Sent(err) = true, want false: %v", err)
	}
	<-c.Done()
}

func TestWithoutATransportNothingIsReached(t *testing.T) {
	_, err := Dial(t.Context(), Server{Name: "web", URL: "http://127.0.0.1:1/mcp"}, Options{})
	if fault.KindOf(err) != fault.Denied {
		t.Errorf("got an error of the kind %q, want %q: %v", fault.KindOf(err), fault.Denied, err)
	} else if Sent(err) {
		t.Errorf("Sent(err) = true, want false: %v", err)
	}
}
