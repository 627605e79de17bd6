package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/bindings/broker"
	"paddock/internal/bindings/upstream"
	"paddock/internal/expect"
	"paddock/internal/fault"
	"paddock/internal/mcpserver/transport"
	"paddock/internal/session"
)

// others is another MCP server on loopback, with so many tools, and the values of the
// header Authorization that it was sent.
type others struct {
	url string

	mu   sync.Mutex
	sent []string
}

func serveOthers(t *testing.T, tools int) *others {
	t.Helper()
	s := mcp.NewServer(&mcp.Implementation{Name: "others", Version: "1"}, nil)
	for k := range tools {
		s.AddTool(&mcp.Tool{Name: fmt.Sprintf("count-%d", k), Description: fmt.Sprintf("Counts the apples in the basket %d.", k), InputSchema: json.RawMessage(`{"type":"object","properties":{"ripe":{"type":"boolean"}}}`)},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "7"}}}, nil
			})
	}
	o := &others{}
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true})
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		o.sent = append(o.sent, r.Header.Get("Authorization"))
		o.mu.Unlock()
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	o.url = h.URL + "/mcp"
	return o
}

// withServers makes a broker to which sessions may bind what is on loopback.
func withServers(t *testing.T, common ...broker.Definition) *broker.Broker {
	t.Helper()
	allowed, err := broker.ParseAllowlist([]string{"127.0.0.1:*!private"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := broker.New(broker.Config{Instance: "here", Servers: common, Bindable: allowed, Dial: upstream.Options{Transport: http.DefaultTransport}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// textsOf gives a result's texts.
func textsOf(res *mcp.CallToolResult) string {
	var all []string
	for _, c := range res.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			all = append(all, text.Text)
		}
	}
	return strings.Join(all, "\n")
}

func TestServersAreBoundSearchedAndLetGoOf(t *testing.T) {
	o := serveOthers(t, 3)
	cs := connect(t, newServer(t, Config{Servers: withServers(t)}, session.Config{}), "test", nil)
	if text := textsOf(use(t, cs, "search_tools", map[string]any{"query": "apples"})); !strings.Contains(text, "mcp_bind_http") {
		t.Errorf("without servers it says %q", text)
	}
	res := use(t, cs, "mcp_bind_http", map[string]any{"name": "my-fruit", "url": o.url})
	for name, want := range map[string]any{"name": "my-fruit", "package": "servers.my_fruit", "path": "/servers/my_fruit"} {
		if got := field[string](t, res, name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	if got := field[[]any](t, res, "tools"); !reflect.DeepEqual(got, []any{"count-0", "count-1", "count-2"}) {
		t.Errorf("its tools are %v", got)
	}
	id := field[string](t, res, "session_id")
	info := use(t, cs, "get_workspace_info", nil)
	if got := field[[]any](t, info, "servers"); field[string](t, info, "session_id") != id {
		t.Errorf(`the session: field[string](t, info, "session_id"): got %v, want %v`,
			field[string](t, info, "session_id"), id)
	} else if !reflect.DeepEqual(got, []any{"my-fruit"}) {
		t.Errorf("the session: got %v, want %v", got, []any{"my-fruit"})
	}
	res = use(t, cs, "search_tools", map[string]any{"query": "count apples basket 1", "limit": 2})
	hits := field[[]any](t, res, "tools")
	best := hits[0].(map[string]any)
	expect.Equal(t, "len(hits)", len(hits), 2)
	expect.Equal(t, `best["server"]`, best["server"], "my-fruit")
	expect.Equal(t, `best["tool"]`, best["tool"], "count-1")
	expect.Equal(t, `best["import"]`, best["import"], "from servers.my_fruit.tools import count_1")
	if !strings.HasPrefix(best["signature"].(string), "count_1(") {
		t.Errorf(`best["signature"].(string): got %q, want it to begin with %q`,
			best["signature"].(string), "count_1(")
	}
	expect.Equal(t, `best["input_schema"]`, best["input_schema"], nil)
	if text := textsOf(res); !strings.HasPrefix(text, "from servers.my_fruit.tools import count_1\n  count_1(") {
		t.Errorf("textsOf(res): got %q, want it to begin with %q",
			text, "from servers.my_fruit.tools import count_1\n  count_1(")
	} else if !strings.Contains(text, "Counts the apples") {
		t.Errorf("textsOf(res): got %q, want %q in it", text, "Counts the apples")
	}
	if got := field[[]any](t, use(t, cs, "search_tools", map[string]any{"query": "apples", "detail_level": "full", "limit": 1}), "tools")[0].(map[string]any); got["input_schema"] == nil {
		t.Errorf("a full hit is %v", got)
	}
	if got := field[[]any](t, use(t, cs, "search_tools", map[string]any{"query": "", "detail_level": "name"}), "tools"); len(got) != 3 {
		t.Errorf("names: len(got): got %d, want 3: %v", len(got), got)
	} else if got[0].(map[string]any)["import"] != nil {
		t.Errorf(`names: got[0].(map[string]any)["import"]: got %+v, want nil`, got[0].(map[string]any)["import"])
	}
	if !field[bool](t, use(t, cs, "mcp_unbind", map[string]any{"name": "my-fruit"}), "unbound") {
		t.Error("it is still bound")
	}
	for name, args := range map[string]map[string]any{"mcp_unbind": {"name": "my-fruit"}, "mcp_bind_http": {"name": "a", "url": o.url, "session_id": "s-nobodys"}, "search_tools": {"query": "", "session_id": "s-nobodys"}} {
		if problem := field[map[string]any](t, use(t, cs, name, args), "error"); problem["code"] != "not_found" {
			t.Errorf("%s: %v", name, problem)
		}
	}
}

func TestWhatMayNotBeBoundIsSaid(t *testing.T) {
	cs := connect(t, newServer(t, Config{Servers: withServers(t)}, session.Config{}), "test", nil)
	for name, c := range map[string]struct {
		args        map[string]any
		code, hints string
	}{
		"a host that is not allowed":  {map[string]any{"name": "a", "url": "https://mcp.example.com/mcp"}, "denied", "PADDOCK_MCP_ALLOWLIST=mcp.example.com "},
		"an address in an odd form":   {map[string]any{"name": "a", "url": "http://2130706433/mcp"}, "invalid", ""},
		"a URL of another kind":       {map[string]any{"name": "a", "url": "file:///etc/passwd"}, "invalid", ""},
		"a password in the URL":       {map[string]any{"name": "a", "url": "http://u:hidden@127.0.0.1/mcp"}, "invalid", ""},
		"a name that is none":         {map[string]any{"name": "../a", "url": "http://127.0.0.1/mcp"}, "invalid", ""},
		"headers that are no texts":   {map[string]any{"name": "a", "url": "http://127.0.0.1/mcp", "headers": map[string]any{"X-Key": []string{"hidden"}}}, "invalid", ""},
		"headers in a list":           {map[string]any{"name": "a", "url": "http://127.0.0.1/mcp", "headers": []string{"hidden"}}, "invalid", ""},
		"headers twice":               {map[string]any{"name": "a", "url": "http://127.0.0.1/mcp", "headers": []string{"X-Key: hidden", "X-Key: hidden"}}, "invalid", ""},
		"a header of the protocol's":  {map[string]any{"name": "a", "url": "http://127.0.0.1/mcp", "headers": map[string]any{"Mcp-Session-Id": "hidden"}}, "invalid", ""},
		"a header with a line's end":  {map[string]any{"name": "a", "url": "http://127.0.0.1/mcp", "headers": map[string]any{"X-Key": "a\r\nhidden: 1"}}, "invalid", ""},
		"a server that is not there":  {map[string]any{"name": "a", "url": "http://127.0.0.1:1/mcp", "headers": map[string]any{"X-Key": "hidden"}}, "unavailable", ""},
		"an argument that is not one": {map[string]any{"name": "a", "url": "http://127.0.0.1/mcp", "command": "sh"}, "invalid", ""},
	} {
		t.Run(name, func(t *testing.T) {
			res := use(t, cs, "mcp_bind_http", c.args)
			problem := field[map[string]any](t, res, "error")
			if hint, _ := problem["hint"].(string); problem["code"] != c.code {
				t.Errorf(`problem["code"]: got %v, want %v`, problem["code"], c.code)
			} else if !strings.Contains(hint, c.hints) {
				t.Errorf(`problem["hint"].(string): got %q, want %q in it`, hint, c.hints)
			}
			if strings.Contains(string(transport.Encoded(res)), "hidden") {
				t.Errorf("it tells what is secret: %s", transport.Encoded(res))
			}
		})
	}
}

func TestASessionTakesOnlySomeToolsOfAServer(t *testing.T) {
	o := serveOthers(t, 4)
	cs := connect(t, newServer(t, Config{Servers: withServers(t)}, session.Config{}), "test", nil)
	for name, c := range map[string]struct {
		tools []string
		want  []any
	}{
		"by names":     {[]string{"count-1", "count-3", "get_*"}, []any{"count-1", "count-3"}},
		"but for one":  {[]string{"!count-2"}, []any{"count-0", "count-1", "count-3"}},
		"none":         {[]string{}, []any{}},
		"destructive":  {[]string{"!@destructive"}, []any{}},
		"all but some": {[]string{"count-*", "!*-0", "!*-1"}, []any{"count-2", "count-3"}},
	} {
		res := use(t, cs, "mcp_bind_http", map[string]any{"name": "fruit", "url": o.url, "tools": c.tools})
		if got := field[[]any](t, res, "tools"); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: it has %v", name, got)
		}
		if hits := field[[]any](t, use(t, cs, "search_tools", map[string]any{"query": "apples"}), "tools"); len(hits) != len(c.want) {
			t.Errorf("%s: it finds %v", name, hits)
		}
	}
	problem := field[map[string]any](t, use(t, cs, "mcp_bind_http", map[string]any{"name": "fruit", "url": o.url, "tools": []string{"@all"}}), "error")
	if problem["code"] != "invalid" {
		t.Errorf(`what is not a pattern: problem["code"]: got %q, want %q`, problem["code"], "invalid")
	}
	if !strings.Contains(problem["hint"].(string), "@read-only") {
		t.Errorf(`what is not a pattern: problem["hint"].(string): got %q, want %q in it`,
			problem["hint"].(string), "@read-only")
	}
}

func TestHeadersOfABoundServerAreToldToNobodyElse(t *testing.T) {
	const secret = "Bearer s3cr3t-0f-a-header"
	o := serveOthers(t, 1)
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s := newServer(t, Config{Servers: withServers(t), Log: logger}, session.Config{})
	cs := connect(t, s, "test", nil)
	var told []byte
	for _, c := range []struct {
		tool string
		args map[string]any
	}{
		{"mcp_bind_http", map[string]any{"name": "a", "url": o.url, "headers": map[string]any{"Authorization": secret}}},
		{"mcp_bind_http", map[string]any{"name": "b", "url": o.url, "headers": []string{"Authorization: " + secret}}},
		{"search_tools", map[string]any{"query": "", "detail_level": "full"}},
		{"get_workspace_info", nil},
		{"mcp_bind_http", map[string]any{"name": "a", "url": o.url + "/elsewhere", "headers": map[string]any{"Authorization": secret, "Bad Name": secret}}},
		{"mcp_unbind", map[string]any{"name": "a"}},
	} {
		told = append(told, transport.Encoded(use(t, cs, c.tool, c.args))...)
	}
	if o.mu.Lock(); len(o.sent) == 0 {
		t.Error("the server was sent: len(o.sent): got 0, want more")
	} else if slices.ContainsFunc(o.sent, func(v string) bool { return v != secret }) {
		t.Errorf("the server was sent: got %q, want the secret alone", o.sent)
	}
	o.mu.Unlock()
	if strings.Contains(string(told), "s3cr3t") {
		t.Errorf("told: got %q, want no %q in it", string(told), "s3cr3t")
	}
	if strings.Contains(log.String(), "s3cr3t") {
		t.Errorf("log.String(): got %q, want no %q in it", log.String(), "s3cr3t")
	}
}

func TestTheListOfToolsDoesNotGrowWithServers(t *testing.T) {
	o := serveOthers(t, 500)
	cs := connect(t, newServer(t, Config{Servers: withServers(t)}, session.Config{}), "test", nil)
	listed := func() string {
		all, err := cs.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(transport.Encoded(all.Tools))
	}
	before := listed()
	res := use(t, cs, "mcp_bind_http", map[string]any{"name": "many", "url": o.url})
	if got := field[[]any](t, res, "tools"); len(got) != maxNamed {
		t.Errorf("len(got): got %d, want %d: %v", len(got), maxNamed, got)
	} else if field[float64](t, res, "more") != 500-maxNamed {
		t.Errorf(`field[float64](t, res, "more"): got %v, want %v`, field[float64](t, res, "more"), 500-maxNamed)
	}
	if listed() != before {
		t.Error("the list of tools is another one")
	}
}

func TestASessionIsMadeWithSomeOfTheServers(t *testing.T) {
	o := serveOthers(t, 1)
	var m *session.Manager
	b, err := broker.New(broker.Config{
		Servers: []broker.Definition{{Server: upstream.Server{Name: "one", URL: o.url}}, {Server: upstream.Server{Name: "two", URL: o.url}}},
		Dial:    upstream.Options{Transport: http.DefaultTransport},
		Chosen: func(s broker.Session) (*[]string, error) {
			info, err := m.Info(session.Owner(s.Owner), session.ID(s.ID))
			return info.Settings.Servers, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	s := newServer(t, Config{Servers: b}, session.Config{})
	m = s.config.Sessions
	cs := connect(t, s, "test", nil)
	for name, c := range map[string]struct {
		args map[string]any
		want []any
	}{
		"nothing is said": {map[string]any{}, []any{"one", "two"}},
		"one is named":    {map[string]any{"servers": []string{"two"}}, []any{"two"}},
		"none is named":   {map[string]any{"servers": []string{}}, []any{}},
		"some tools are":  {map[string]any{"servers": []string{"one/count-0", "one/!get_*"}}, []any{"one"}},
	} {
		t.Run(name, func(t *testing.T) {
			id := field[string](t, use(t, cs, "create_session", c.args), "session_id")
			if got := field[[]any](t, use(t, cs, "get_workspace_info", map[string]any{"session_id": id}), "servers"); !reflect.DeepEqual(got, c.want) {
				t.Errorf("it has %v", got)
			}
			if hits := field[[]any](t, use(t, cs, "search_tools", map[string]any{"query": "apples", "session_id": id}), "tools"); len(hits) != len(c.want) {
				t.Errorf("it finds %v", hits)
			}
		})
	}
	if problem := field[map[string]any](t, use(t, cs, "create_session", map[string]any{"servers": []string{"three"}}), "error"); problem["code"] != "not_found" {
		t.Errorf(`a server that is not there: problem["code"]: got %q, want %q`, problem["code"], "not_found")
	} else if problem["hint"] != "there are one, two" {
		t.Errorf(`a server that is not there: problem["hint"]: got %q, want %q`,
			problem["hint"], "there are one, two")
	}
}

func TestWithoutServersThereIsNoCodeMode(t *testing.T) {
	s := newServer(t, Config{}, session.Config{})
	if _, there := s.tools["search_tools"]; there {
		t.Error(`s.tools["search_tools"]: got true, want false`)
	} else if strings.Contains(s.instructions, "search_tools") {
		t.Errorf("s.instructions: got %q, want no %q in it", s.instructions, "search_tools")
	}
	cs := connect(t, newServer(t, Config{Tools: []string{"code-mode"}}, session.Config{}), "test", nil)
	for _, args := range []map[string]any{{"name": "a", "url": "http://127.0.0.1/mcp"}} {
		if problem := field[map[string]any](t, use(t, cs, "mcp_bind_http", args), "error"); problem["code"] != string(fault.Unsupported) {
			t.Errorf("got %v", problem)
		}
	}
}

func TestAServerThatCallsBackIsRefused(t *testing.T) {
	s := newServer(t, Config{Servers: withServers(t)}, session.Config{})
	cs := connect(t, s, "test", nil)
	for name, c := range map[string]struct {
		meta mcp.Meta
		code string // empty: it is carried out
	}{
		"this paddock's own call":     {mcp.Meta{"paddock/chain": []string{"elsewhere", "here"}}, "denied"},
		"another paddock's":           {mcp.Meta{"paddock/chain": []string{"elsewhere"}, "paddock/callsLeft": 3}, ""},
		"too many paddocks in a row":  {mcp.Meta{"paddock/chain": []string{"a", "b", "c", "d"}}, "denied"},
		"what makes no sense":         {mcp.Meta{"paddock/chain": "here"}, "invalid"},
		"a model's, which says other": {mcp.Meta{"progressToken": "a"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Meta: c.meta, Name: "execute_code", Arguments: map[string]any{"language": "python", "code": "1"}})
			if err != nil {
				t.Fatal(err)
			}
			if c.code == "" {
				if res.IsError {
					t.Errorf("it gives %v", res.StructuredContent)
				}
			} else if problem := field[map[string]any](t, res, "error"); problem["code"] != c.code {
				t.Errorf("it gives %v", problem)
			}
		})
	}
}
