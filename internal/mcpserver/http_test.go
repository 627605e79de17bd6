package mcpserver

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/expect"
	"paddock/internal/fault"
	"paddock/internal/mcpserver/transport"
	"paddock/internal/membudget"
	"paddock/internal/session"
)

type testOwner struct{}

// overHTTP serves a server's Handler. The header Owner says whose a request is.
func overHTTP(t *testing.T, s *Server, c transport.Config) (*transport.Handler, string) {
	t.Helper()
	h, err := s.Handler(c)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), testOwner{}, r.Header.Get("Owner"))))
	}))
	t.Cleanup(func() { h.Close(); web.Close() })
	return h, web.URL
}

// ownedByHeader is a Binding for overHTTP; without an owner there are no sessions.
func ownedByHeader(ctx context.Context, c transport.Caller) (Bound, error) {
	owner, _ := ctx.Value(testOwner{}).(string)
	if owner == "nobody" {
		return Bound{}, fault.New(fault.Denied, "nobody may do nothing")
	}
	return Bound{Owner: session.Owner(owner), Default: c.SessionID}, nil
}

func newHTTP(t *testing.T, c transport.Config) (*Server, *transport.Handler, string) {
	t.Helper()
	s := newServer(t, Config{Binding: ownedByHeader}, session.Config{})
	h, url := overHTTP(t, s, c)
	return s, h, url
}

// post sends one request with these headers, as "Name: value".
func post(t *testing.T, url, body string, headers ...string) *http.Response {
	t.Helper()
	return send(t, http.MethodPost, url, body, append([]string{"Content-Type: application/json"}, headers...)...)
}

func send(t *testing.T, method, url, body string, headers ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func bodyOf(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// called is a tools/call of execute_code.
func called(id int, code, more string) string {
	arguments, _ := json.Marshal(map[string]any{"language": "python", "code": code})
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"execute_code","arguments":%s%s}}`, id, arguments, more)
}

const modernMeta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{%s}}`

func modernHeaders(method, name string) []string {
	return []string{"MCP-Protocol-Version: 2026-07-28", "Mcp-Method: " + method, "Mcp-Name: " + name, "Accept: application/json, text/event-stream"}
}

// initialize opens a legacy session and gives the headers that go with it.
func initialize(t *testing.T, url string, headers ...string) []string {
	t.Helper()
	r := post(t, url, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`, headers...)
	if body := bodyOf(t, r); r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", r.Status, body)
	}
	headers = append([]string{"Mcp-Session-Id: " + r.Header.Get("Mcp-Session-Id"), "MCP-Protocol-Version: 2025-11-25", "Accept: application/json, text/event-stream"}, headers...)
	if r = post(t, url, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, headers...); r.StatusCode != http.StatusAccepted {
		t.Fatalf("%s: %s", r.Status, bodyOf(t, r))
	}
	return headers
}

func TestAPlainClientGetsItsAnswerAsJSON(t *testing.T) {
	_, _, url := newHTTP(t, transport.Config{})
	for name, headers := range map[string][]string{"nothing but a type": nil, "anything": {"Accept: */*"}, "a charset": {"Accept: application/json; charset=utf-8"}} {
		r := post(t, url, called(7, "print('hi')\nx = 5", ""), headers...)
		body := bodyOf(t, r)
		expect.Equal(t, name+": the status", r.StatusCode, http.StatusOK)
		expect.Equal(t, name+": the content type", r.Header.Get("Content-Type"), "application/json")
		expect.Part(t, name, body, `"stdout":"hi\n"`)
		if want := `{"jsonrpc":"2.0","id":7,"result":{`; !strings.HasPrefix(body, want) {
			t.Errorf("%s: got %s, want %s at its beginning", name, body, want)
		}
	}
	first := bodyOf(t, post(t, url, called(1, "y = 41", "")))
	var answer struct {
		Result struct {
			StructuredContent struct {
				SessionID string `json:"session_id"`
			}
		}
	}
	if err := json.Unmarshal([]byte(first), &answer); err != nil {
		t.Fatal(err)
	}
	again := fmt.Sprintf(`{"jsonrpc":"2.0","id":"b","method":"tools/call","params":{"name":"execute_code","arguments":{"code":"y","session_id":%q}}}`, answer.Result.StructuredContent.SessionID)
	if body := bodyOf(t, post(t, url, again)); !strings.Contains(body, `"result":"41"`) {
		t.Errorf("the session's handle does not work: %s", body)
	}
	if body := bodyOf(t, post(t, url, again, "Owner: else")); !strings.Contains(body, `"code":"not_found"`) {
		t.Errorf("somebody else's handle works: %s", body)
	}
	if body := bodyOf(t, post(t, url, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)); !strings.Contains(body, `"execute_code"`) {
		t.Errorf("tools/list: %s", body)
	}
}

func TestRequestsThatAreNone(t *testing.T) {
	_, _, url := newHTTP(t, transport.Config{MaxBody: 4096})
	for name, c := range map[string]struct {
		body   string
		status int
		says   string
	}{
		"nothing":          {"", 400, "parse error"},
		"no JSON":          {"{", 400, "parse error"},
		"not UTF-8":        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", 400, "parse error"},
		"a key twice":      {`{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, 400, "stands twice"},
		"too deep":         {`{"jsonrpc":"2.0","id":1,"method":"ping","params":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}`, 400, "nested more than"},
		"too large":        {`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"` + strings.Repeat("a", 5000) + `"}}`, 413, "more than 4096 bytes"},
		"an id with parts": {`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, 400, "an id is"},
		"a batch of 1000":  {"[" + strings.Repeat("{},", 999) + "{}]", 400, "1 to 100"},
		"an empty batch":   {"[]", 400, "1 to 100"},
		"no method":        {`{"jsonrpc":"2.0","id":1,"method":"nope"}`, 400, `"id":1,"error":{"code":-32601`},
		"upper case":       {`{"jsonrpc":"2.0","id":1,"Method":"tools/call","method":"nothing"}`, 400, ""},
	} {
		r := post(t, url, c.body)
		if body := bodyOf(t, r); r.StatusCode != c.status {
			t.Errorf("%s: r.StatusCode: got %v, want %v: %s", name, r.StatusCode, c.status, body)
		} else if !strings.Contains(body, c.says) {
			t.Errorf("%s: got %q, want %q in it", name, body, c.says)
		}
	}
	if r := send(t, http.MethodPost, url, called(1, "x = 1", ""), "Content-Type: text/plain"); r.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("text/plain: %s", r.Status)
	}
	if r := send(t, http.MethodPut, url, ""); r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("PUT: r.StatusCode: got %v, want %v", r.StatusCode, http.StatusMethodNotAllowed)
	} else if r.Header.Get("Allow") == "" {
		t.Error(`PUT: r.Header.Get("Allow"): got none, want one`)
	}
	if r := post(t, url, called(1, "x = 1", ""), "Owner: nobody"); r.StatusCode != http.StatusForbidden {
		t.Errorf("nobody: %s", r.Status)
	}
}

func TestALegacySession(t *testing.T) {
	s, _, url := newHTTP(t, transport.Config{})
	one, two := initialize(t, url, "Owner: one"), initialize(t, url, "Owner: two")
	bodyOf(t, post(t, url, called(1, "x = 5", ""), one...)) // a stream may begin before the call ends
	if body := bodyOf(t, post(t, url, called(2, "x", ""), one...)); !strings.Contains(body, `"result":"5"`) {
		t.Errorf("its calls share no workspace: %s", body)
	}
	if body := bodyOf(t, post(t, url, called(1, "x", ""), two...)); !strings.Contains(body, "NameError") {
		t.Errorf("two share a workspace: %s", body)
	}
	stolen := append([]string{one[0]}, two[1:]...)
	for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
		if r := send(t, method, url, called(3, "x", ""), append([]string{"Content-Type: application/json"}, stolen...)...); r.StatusCode != http.StatusNotFound {
			t.Errorf("%s in somebody else's session: %s", method, r.Status)
		}
	}
	if r := send(t, http.MethodDelete, url, "", one...); r.StatusCode != http.StatusNoContent {
		t.Errorf("DELETE: %s", r.Status)
	}
	if r := post(t, url, called(4, "x", ""), one...); r.StatusCode != http.StatusNotFound {
		t.Errorf("a call after the session's end: %s", r.Status)
	}
	if r := post(t, url, called(4, "x", ""), two...); r.StatusCode != http.StatusOK {
		t.Errorf("a call in the session that is left: got %s, want 200", r.Status)
	}
	if all, err := s.config.Sessions.List("one"); err != nil {
		t.Error(err)
	} else if len(all) != 1 {
		t.Errorf("len(all): got %d, want 1: %v", len(all), all)
	}
}

func TestTheLongestUnusedSessionMakesRoom(t *testing.T) {
	_, _, url := newHTTP(t, transport.Config{MaxSessions: 2})
	first := initialize(t, url)
	others := [][]string{initialize(t, url, "Owner: else"), initialize(t, url), initialize(t, url)}
	if r := post(t, url, called(1, "x = 1", ""), first...); r.StatusCode != http.StatusNotFound {
		t.Errorf("the first one: %s", r.Status)
	}
	for n, other := range others {
		if r := post(t, url, called(1, "x = 1", ""), other...); r.StatusCode != http.StatusOK {
			t.Errorf("session %d of those that stay: got %s, want 200", n+1, r.Status)
		}
	}
}

// events reads a stream, one event after the other; "" at its end.
type events struct {
	t *testing.T
	r *bufio.Reader
}

func (e events) next() (id, data string) {
	e.t.Helper()
	for {
		line, err := e.r.ReadString('\n')
		switch line = strings.TrimRight(line, "\n"); {
		case err != nil:
			return "", ""
		case strings.HasPrefix(line, "id: "):
			id = line[4:]
		case strings.HasPrefix(line, "data: "):
			data = line[6:]
		case line == "" && (id != "" || data != ""):
			return id, data
		}
	}
}

func TestACallThatTakesTimeIsAStream(t *testing.T) {
	_, _, url := newHTTP(t, transport.Config{})
	session := initialize(t, url)
	for name, c := range map[string]struct {
		body    string
		headers []string
		ids     bool
	}{
		"legacy": {called(1, "print('a')\nsleep(0.4)\nprint('b')", `,"_meta":{"progressToken":"p"}`), session, true},
		"modern": {called(1, "print('a')\nsleep(0.4)\nprint('b')", fmt.Sprintf(strings.Replace(modernMeta, "{", `{"progressToken":"p",`, 1), "")), modernHeaders("tools/call", "execute_code"), false},
	} {
		t.Run(name, func(t *testing.T) {
			r := post(t, url, c.body, c.headers...)
			if r.Header.Get("Content-Type") != "text/event-stream" {
				t.Fatalf(`r.Header.Get("Content-Type"): got %q, want %q`, r.Header.Get("Content-Type"), "text/event-stream")
			}
			if r.Header.Get("X-Accel-Buffering") != "no" {
				t.Fatalf(`r.Header.Get("X-Accel-Buffering"): got %q, want %q`, r.Header.Get("X-Accel-Buffering"), "no")
			}
			all := bodyOf(t, r)
			if got := strings.Count(all, `"progressToken":"p"`); got < 2 {
				t.Errorf("got %d notifications, want at least 2: %s", got, all)
			}
			expect.Part(t, "the notifications", all, `"message":"a"`)
			expect.Part(t, "the result", all, `"stdout":"a\nb\n"`)
			expect.Equal(t, "events have ids", strings.Contains(all, "id: "), c.ids)
		})
	}
}

func TestABrokenStreamIsResumed(t *testing.T) {
	_, _, url := newHTTP(t, transport.Config{})
	session := initialize(t, url)
	ctx, hangUp := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(called(1, "print('a')\nsleep(1)\nprint('b')", `,"_meta":{"progressToken":1}`)))
	r.Header.Set("Content-Type", "application/json")
	for _, h := range session {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	last, _ := events{t, bufio.NewReader(resp.Body)}.next() // the first has no data
	hangUp()
	resp.Body.Close()
	again := send(t, http.MethodGet, url, "", append([]string{"Last-Event-ID: " + last}, session...)...)
	stream := events{t, bufio.NewReader(again.Body)}
	_, progress := stream.next()
	var data string
	for next := progress; next != ""; _, next = stream.next() {
		data = next
	}
	if !strings.Contains(progress, `"message":"a"`) {
		t.Errorf("progress: got %q, want %q in it", progress, `"message":"a"`)
	}
	if !strings.Contains(data, `"stdout":"a\nb\n"`) {
		t.Errorf("data: got %q, want %q in it", data, `"stdout":"a\nb\n"`)
	}
	if all := bodyOf(t, send(t, http.MethodGet, url, "", append([]string{"Last-Event-ID: " + last}, session...)...)); !strings.Contains(all, `"stdout":"a\nb\n"`) {
		t.Errorf("afterwards it is %s", all)
	}
}

// waitFor waits until something has become true.
func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for late := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("in vain: " + what)
		}
	}
}

func TestWhatStopsACall(t *testing.T) {
	s, _, url := newHTTP(t, transport.Config{})
	running := func(owner session.Owner) func() bool {
		return func() bool {
			all, err := s.config.Sessions.List(owner)
			return err == nil && len(all) > 0 && all[0].State == session.Running
		}
	}
	still := func(owner session.Owner) func() bool { return func() bool { return !running(owner)() } }
	for name, c := range map[string]struct {
		legacy bool
		stop   func(headers []string, hangUp func())
		odd    string // what makes the call the SDK's
	}{
		"a plain client hangs up whose call is the SDK's": {false, func(_ []string, hangUp func()) { hangUp() }, `"taskId":5,`},
		"a plain client hangs up":                         {false, func(_ []string, hangUp func()) { hangUp() }, ""},
		"a client with a session ends it":                 {true, func(h []string, _ func()) { send(t, http.MethodDelete, url, "", h...) }, ""},
		"a client with a session cancels the call": {true, func(h []string, _ func()) {
			if r := post(t, url, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, h...); r.StatusCode != http.StatusAccepted {
				t.Errorf("cancelled: %s", r.Status)
			}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			owner := strings.NewReplacer(" ", "-", "'", "").Replace(name)
			headers := []string{"Owner: " + owner}
			if c.legacy {
				headers = initialize(t, url, headers...)
			}
			ctx, hangUp := context.WithCancel(t.Context())
			defer hangUp()
			r, _ := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(strings.Replace(called(1, "x = 1\nsleep(20)", ""), `"name"`, c.odd+`"name"`, 1)))
			r.Header.Set("Content-Type", "application/json")
			for _, h := range headers {
				name, value, _ := strings.Cut(h, ": ")
				r.Header.Set(name, value)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				if resp, err := http.DefaultClient.Do(r); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}()
			waitFor(t, "it runs", running(session.Owner(owner)))
			c.stop(headers, hangUp)
			<-done
			waitFor(t, "it stops", still(session.Owner(owner)))
		})
	}
}

func TestTwoCallsWithOneIDAreRefused(t *testing.T) {
	s, _, url := newHTTP(t, transport.Config{})
	session := initialize(t, url)
	go func() {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(called(1, "sleep(20)", "")))
		r.Header.Set("Content-Type", "application/json")
		for _, h := range session {
			name, value, _ := strings.Cut(h, ": ")
			r.Header.Set(name, value)
		}
		if resp, err := http.DefaultClient.Do(r); err == nil {
			resp.Body.Close()
		}
	}()
	waitFor(t, "it runs", func() bool { all, _ := s.config.Sessions.List(""); return len(all) == 1 && all[0].State != "idle" })
	if r := post(t, url, called(1, "x = 1", ""), session...); r.StatusCode != http.StatusBadRequest {
		t.Errorf("the second one: %s", r.Status)
	}
}

func TestModernRequests(t *testing.T) {
	_, _, url := newHTTP(t, transport.Config{})
	good := called(1, "x = 5", fmt.Sprintf(modernMeta, ""))
	r := post(t, url, good, modernHeaders("tools/call", "execute_code")...)
	body := bodyOf(t, r)
	expect.Equal(t, "the status", r.StatusCode, http.StatusOK)
	expect.Part(t, "the result", body, `"resultType":"complete"`)
	expect.Part(t, "the result", body, "io.modelcontextprotocol/serverInfo")
	expect.Equal(t, "the MCP session", r.Header.Get("Mcp-Session-Id"), "")
	for name, c := range map[string]struct {
		body    string
		headers []string
		status  int
		code    string
	}{
		"another method in the header":     {good, modernHeaders("tools/list", "execute_code"), 400, "-32020"},
		"another name in the header":       {good, modernHeaders("tools/call", "read_file"), 400, "-32020"},
		"no header":                        {good, []string{"Accept: application/json, text/event-stream"}, 400, "-32020"},
		"another version in the header":    {good, []string{"MCP-Protocol-Version: 2025-11-25"}, 400, "-3202"},
		"an unknown version":               {strings.ReplaceAll(good, "2026-07-28", "2030-01-01"), []string{"MCP-Protocol-Version: 2030-01-01", "Mcp-Method: tools/call", "Mcp-Name: execute_code"}, 400, "-32022"},
		"no capabilities":                  {called(1, "x", `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`), modernHeaders("tools/call", "execute_code"), 400, "-32602"},
		"an unknown method":                {`{"jsonrpc":"2.0","id":1,"method":"nothing/there","params":{"x":1` + fmt.Sprintf(modernMeta, "") + `}}`, modernHeaders("nothing/there", ""), 404, "-32601"},
		"an argument without its header":   {strings.Replace(good, `"language"`, `"session_id":"s","language"`, 1), modernHeaders("tools/call", "execute_code"), 400, "-32020"},
		"an argument and another's header": {strings.Replace(good, `"language"`, `"session_id":"s","language"`, 1), append(modernHeaders("tools/call", "execute_code"), "Mcp-Param-Session-Id: t"), 400, "-32020"},
	} {
		r := post(t, url, c.body, c.headers...)
		if body := bodyOf(t, r); r.StatusCode != c.status {
			t.Errorf("%s: r.StatusCode: got %v, want %v: %s", name, r.StatusCode, c.status, body)
		} else if !strings.Contains(body, c.code) {
			t.Errorf("%s: got %q, want %q in it", name, body, c.code)
		}
	}
	if r := post(t, url, good, append(modernHeaders("tools/call", "execute_code"), "Mcp-Name: read_file")...); r.StatusCode != 400 {
		t.Errorf("a name that stands twice: %s", r.Status)
	}
	named := append(modernHeaders("tools/call", "execute_code"), "Mcp-Param-Session-Id: s")
	if body := bodyOf(t, post(t, url, strings.Replace(good, `"language"`, `"session_id":"s","language"`, 1), named...)); !strings.Contains(body, `"session_id":"s"`) {
		t.Errorf("a header that repeats the argument: %s", body)
	}
	if r := send(t, http.MethodGet, url, "", "MCP-Protocol-Version: 2026-07-28"); r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: %s", r.Status)
	}
}

func TestTheSDKsClient(t *testing.T) {
	_, _, url := newHTTP(t, transport.Config{})
	for _, version := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			progress := make(chan string, 10)
			client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
				ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { progress <- r.Params.Message },
			})
			cs, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, &mcp.ClientSessionOptions{ProtocolVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			defer cs.Close()
			params := &mcp.CallToolParams{Name: "execute_code", Arguments: map[string]any{"language": "python", "code": "print('seen')\nsleep(0.3)\nx = 2"}}
			params.SetProgressToken("t")
			res, err := cs.CallTool(t.Context(), params)
			if err != nil {
				t.Fatal(err)
			}
			if res.IsError {
				t.Fatalf("res.IsError: got true, want false: %v", res)
			}
			if m := <-progress; m != "seen" {
				t.Errorf("the progress is %q", m)
			}
			if tools, err := cs.ListTools(t.Context(), nil); err != nil {
				t.Error(err)
			} else if len(tools.Tools) == 0 {
				t.Error("len(tools.Tools): got 0, want more")
			}
		})
	}
}

func TestScopesDecideWhichToolsThereAre(t *testing.T) {
	_, _, url := newHTTP(t, transport.Config{Tools: func(ctx context.Context) []string {
		if owner, _ := ctx.Value(testOwner{}).(string); owner == "files" {
			return []string{"files"}
		}
		return nil
	}})
	for _, headers := range [][]string{{"Owner: files"}, initialize(t, url, "Owner: files")} {
		if body := bodyOf(t, post(t, url, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, headers...)); strings.Contains(body, `"execute_code"`) {
			t.Errorf("body: got %q, want no %q in it", body, `"execute_code"`)
		} else if !strings.Contains(body, `"read_file"`) {
			t.Errorf("body: got %q, want %q in it", body, `"read_file"`)
		}
		if body := bodyOf(t, post(t, url, called(3, "x = 1", ""), headers...)); !strings.Contains(body, "unknown tool") {
			t.Errorf("it may call: %s", body)
		}
	}
}

func TestClosingCancelsWhatRuns(t *testing.T) {
	s, h, url := newHTTP(t, transport.Config{})
	answer := make(chan string, 1)
	go func() {
		resp, err := http.Post(url, "application/json", strings.NewReader(called(1, "x = 1\nsleep(20)", "")))
		if err != nil {
			answer <- err.Error()
			return
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		answer <- string(b)
	}()
	waitFor(t, "it runs", func() bool {
		all, _ := s.config.Sessions.List("")
		return len(all) == 1 && all[0].State == session.Running
	})
	h.Close()
	if a := <-answer; !strings.Contains(a, `"stopped_by":"cancelled"`) && !strings.Contains(a, `"code":"cancelled"`) {
		t.Errorf("the client hears %s", a)
	}
}

// What the SDK runs for a session ends with it too: the taskId is of another
// type than the short way takes.
func TestTheSDKsCallsEndWithTheSession(t *testing.T) {
	s, _, url := newHTTP(t, transport.Config{})
	headers := initialize(t, url)
	go func() {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(strings.Replace(called(1, "sleep(20)", ""), `"name"`, `"taskId":5,"name"`, 1)))
		r.Header.Set("Content-Type", "application/json")
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			r.Header.Set(name, value)
		}
		if resp, err := http.DefaultClient.Do(r); err == nil {
			resp.Body.Close()
		}
	}()
	waitFor(t, "it runs", func() bool {
		all, _ := s.config.Sessions.List("")
		return len(all) == 1 && all[0].State == session.Running
	})
	send(t, http.MethodDelete, url, "", headers...)
	waitFor(t, "it stops", func() bool {
		all, _ := s.config.Sessions.List("")
		return len(all) == 1 && all[0].State != session.Running
	})
}

func TestLargeBodiesTakeOfTheirOwnersMemory(t *testing.T) {
	memory := membudget.New(4<<20, 2<<20)
	s := newServer(t, Config{Binding: ownedByHeader, Memory: memory}, session.Config{})
	_, url := overHTTP(t, s, transport.Config{})
	for size, want := range map[int]int{32 << 10: http.StatusOK, 256 << 10: http.StatusOK, 1 << 20: http.StatusTooManyRequests} {
		resp := post(t, url, called(1, "# "+strings.Repeat("x", size), ""))
		if body := bodyOf(t, resp); resp.StatusCode != want {
			t.Errorf("a body of %d bytes: resp.StatusCode: got %v, want %v: %s", size, resp.StatusCode, want, body)
		} else if want != http.StatusOK && !strings.Contains(body, "memory") {
			t.Errorf("a body of %d bytes: %d %.300s", size, resp.StatusCode, body)
		}
	}
	waitFor(t, "nothing is held of requests that have ended", func() bool { return memory.Held() == 0 })
}

// A client that names no session on needs none of those that it got.
func TestPlainCallsNeverRunOutOfSessions(t *testing.T) {
	s := newServer(t, Config{Binding: ownedByHeader}, session.Config{MaxPerOwner: 2, MaxStored: 4})
	_, url := overHTTP(t, s, transport.Config{})
	kept := bodyOf(t, post(t, url, called(1, "x = 1", "")))
	_, rest, _ := strings.Cut(kept, `"session_id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	again := fmt.Sprintf(`{"jsonrpc":"2.0","id":"b","method":"tools/call","params":{"name":"execute_code","arguments":{"code":"x","session_id":%q}}}`, id)
	bodyOf(t, post(t, url, again))
	for n := range 20 {
		if body := bodyOf(t, post(t, url, called(n, "y = 1", ""))); !strings.Contains(body, `"success":true`) {
			t.Fatalf("call %d: %s", n, body)
		}
	}
	if body := bodyOf(t, post(t, url, again)); !strings.Contains(body, `"result":"1"`) {
		t.Errorf("a session that was named is gone: %s", body)
	}
}

func TestNoCallLosesItsSessionToAnother(t *testing.T) {
	s := newServer(t, Config{Binding: ownedByHeader}, session.Config{MaxPerOwner: 4, MaxStored: 8})
	_, url := overHTTP(t, s, transport.Config{})
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for range 30 {
				body := bodyOf(t, post(t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write_file","arguments":{"path":"a","content":"b"}}}`))
				if strings.Contains(body, `"isError":true`) {
					t.Error(body)
				}
			}
		})
	}
	all.Wait()
}

// A session that was read by its id, or named while it was an MCP session's, is
// in use.
func TestWhatIsNamedMakesNoRoom(t *testing.T) {
	s := newServer(t, Config{Binding: ownedByHeader}, session.Config{MaxPerOwner: 2, MaxStored: 3})
	_, url := overHTTP(t, s, transport.Config{})
	write := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write_file","arguments":{"path":"a","content":"b"%s}}}`
	idOfResult := func(body string) string {
		_, rest, _ := strings.Cut(body, `"session_id":"`)
		id, _, _ := strings.Cut(rest, `"`)
		return id
	}
	read := idOfResult(bodyOf(t, post(t, url, fmt.Sprintf(write, ""))))
	reading := `{"jsonrpc":"2.0","id":2,"method":"resources/read","params":{"uri":"paddock://sessions/` + read + `/files/a"}}`
	bodyOf(t, post(t, url, reading))
	legacy := initialize(t, url)
	named := idOfResult(bodyOf(t, post(t, url, fmt.Sprintf(write, ""), legacy...)))
	bodyOf(t, post(t, url, fmt.Sprintf(write, `,"session_id":"`+named+`"`), legacy...))
	send(t, http.MethodDelete, url, "", legacy...)
	for range 5 {
		bodyOf(t, post(t, url, fmt.Sprintf(write, "")))
	}
	if body := bodyOf(t, post(t, url, reading)); !strings.Contains(body, `"contents"`) {
		t.Errorf("what was read is gone: %s", body)
	}
	if body := bodyOf(t, post(t, url, fmt.Sprintf(write, `,"session_id":"`+named+`"`))); strings.Contains(body, `"isError":true`) {
		t.Errorf("what was named is gone: %s", body)
	}
}

func TestTheServersEndIsToldToClients(t *testing.T) {
	s := newServer(t, Config{Binding: ownedByHeader}, session.Config{})
	h, err := s.Handler(transport.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	ending, end := context.WithCancelCause(t.Context())
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(called(1, "sleep(20)", ""))).WithContext(ending)
	r.Header.Set("Content-Type", "application/json")
	done := make(chan struct{})
	go func() { h.ServeHTTP(w, r); close(done) }()
	waitFor(t, "it runs", func() bool {
		all, _ := s.config.Sessions.List("")
		return len(all) == 1 && all[0].State == session.Running
	})
	end(fault.New(fault.Unavailable, "the server is ending"))
	if <-done; !strings.Contains(w.Body.String(), `"id":1`) {
		t.Errorf("the client hears %q", w.Body)
	}
}
