// Package principals proves with the built paddock that a principal learns and changes
// nothing of another one's over any path of HTTP, although it knows all ids of the other
// one's things: what is another's answers as what does not exist.
package principals

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/sandbox/sandboxtest"
	"paddock/tests/paddocktest"
)

// toolsRole is the variable that has this test binary be a server of tools instead.
const toolsRole = "PADDOCK_PRINCIPALS_TOOLS"

func TestMain(m *testing.M) {
	if os.Getenv(toolsRole) != "" {
		s := sdk.NewServer(&sdk.Implementation{Name: "acts", Version: "1"}, nil)
		s.AddTool(&sdk.Tool{Name: "act", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "done"}}}, nil
		})
		_ = s.Run(context.Background(), &sdk.StdioTransport{})
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// settings turn on all that paddock serves.
const settings = `
[tools]
enabled = ["core", "files", "code-mode", "skills", "history", "sandbox"]
[servers.acts]
command = %q
env = { ` + toolsRole + ` = "1" }
tools.ask = ["act"]
[approvals]
ask_client = true
[mcp]
call_interval_seconds = 0
`

// marker stands in everything that A keeps: nobody else may see it.
const marker = "Marker-of-A-7QX"

// The names that A chose.
const (
	skillName, boxName, boxSpace, checkpointName, boundName = "kept-by-a", "box-of-a", "space-of-a", "label-of-a", "party"
)

// server is a `paddock serve`, and what A has there.
type server struct {
	*paddocktest.Server
	t     *testing.T
	state string
	env   []string

	a, b, few, approver string // tokens
	ids                 map[string]string
	link                string // opens a file of A's once
	running             chan struct{}
}

// newServer starts one. A's things are there when it returns: an execution of A's runs on.
func newServer(t *testing.T) *server {
	t.Helper()
	paddocktest.Require(t, "linux")
	w := &server{t: t, state: sandboxtest.Memory(t), ids: map[string]string{}, running: make(chan struct{})}
	paddocktest.Admit(t, filepath.Dir(w.state), w.state)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "paddock.toml")
	if err := os.WriteFile(file, fmt.Appendf(nil, settings, exe), 0o600); err != nil {
		t.Fatal(err)
	}
	w.env = append(paddocktest.Environment(t, w.state), "PADDOCK_CONFIG="+file, "PADDOCK_MCP_ALLOWLIST=127.0.0.1:*!private")
	w.a, w.b = w.paddock("token", "create", "a"), w.paddock("token", "create", "b")
	w.few, w.approver = w.paddock("token", "create", "few", "--tools", "files"), w.paddock("token", "create", "approver", "--approve")
	w.Server = paddocktest.Serve(t, w.state, w.env)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("paddock's log:\n%.8000s", w.Log())
		}
	})
	w.makeSession()
	w.makeServed()
	w.makeWaiting()
	w.makeRunning()
	return w
}

func (w *server) paddock(args ...string) string {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), sandboxtest.Binary(w.t), args...)
	cmd.Env = w.env
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("paddock %s: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}

// must calls a tool as A, and reads its result.
func (w *server) must(tool string, arguments map[string]any) map[string]any {
	w.t.Helper()
	text, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": tool, "arguments": arguments}})
	if err != nil {
		w.t.Fatal(err)
	}
	got := w.send(w.a, request{line: "POST /mcp", body: string(text)}, nil)
	var answer struct {
		Result struct {
			IsError           bool
			StructuredContent map[string]any
		}
	}
	switch err := json.Unmarshal([]byte(got.body), &answer); {
	case err != nil:
		w.t.Fatalf("%s: %d %s: %v", tool, got.status, got.body, err)
	case answer.Result.IsError:
		w.t.Fatalf("%s: %d %s: answer.Result.IsError = true, want false", tool, got.status, got.body)
	case answer.Result.StructuredContent == nil:
		w.t.Fatalf("%s: %d %s: answer.Result.StructuredContent is nil, want a value",
			tool, got.status, got.body)
	}
	return answer.Result.StructuredContent
}

// id keeps what an answer has under a name.
func (w *server) id(name string, from map[string]any, key string) {
	w.t.Helper()
	text, _ := from[key].(string)
	if text == "" {
		w.t.Fatalf("there is no %s in %v", key, from)
	}
	w.ids[name] = text
}

// makeSession makes a session with files, variables, a checkpoint, an execution, a bound
// server, links and a skill.
func (w *server) makeSession() {
	w.t.Helper()
	w.id("session", w.must("create_session", map[string]any{"name": marker, "language": "python", "isolation": "wasm"}), "session_id")
	session := w.ids["session"]
	w.id("execution", w.must("execute_code", map[string]any{"session_id": session, "code": "x = '" + marker + "'; print(x)"}), "execution_id")
	w.must("write_file", map[string]any{"session_id": session, "path": "secret.txt", "content": marker + "\n"})
	w.id("checkpoint", w.must("checkpoint_session", map[string]any{"session_id": session, "label": checkpointName}), "label")
	w.must("skill_save", map[string]any{"name": skillName, "code": "def f():\n    \"\"\"" + marker + "\"\"\"\n", "description": marker})
	w.must("mcp_bind_http", map[string]any{"session_id": session, "name": boundName, "url": w.party()})
	for name, method := range map[string]string{"download": "GET", "upload": "PUT"} {
		got := w.send(w.a, request{line: "POST /v1/sessions/{session}/links", body: fmt.Sprintf(`{"path": "secret.txt", "method": %q}`, method)}, w.ids)
		var link struct{ URL string }
		if err := json.Unmarshal([]byte(got.body), &link); err != nil || got.status != http.StatusCreated {
			w.t.Fatalf("a link: %d %s", got.status, got.body)
		}
		w.ids[name] = link.URL[strings.LastIndex(link.URL, "/")+1:]
	}
}

// party is a server of tools over HTTP.
func (w *server) party() string {
	s := sdk.NewServer(&sdk.Implementation{Name: "party", Version: "1"}, nil)
	s.AddTool(&sdk.Tool{Name: "dance", Description: marker, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{}, nil
	})
	h := paddocktestServer(w.t, sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &sdk.StreamableHTTPOptions{Stateless: true}))
	return h + "/mcp"
}

// makeServed makes a machine with a preview, and a named sandbox.
func (w *server) makeServed() {
	w.t.Helper()
	w.id("machine", w.must("create_session", map[string]any{"isolation": "linux"}), "session_id")
	w.must("execute_code", map[string]any{"session_id": w.ids["machine"], "language": "bash", "code": `
mkdir -p site && echo '` + marker + `' > site/index.html
(cd site && exec python3 -m http.server 8000 --bind 127.0.0.1) > server.log 2>&1 &
until (exec 3<>/dev/tcp/127.0.0.1/8000) 2>/dev/null; do :; done`})
	got := w.send(w.a, request{line: "POST /api/v1/sessions/{machine}/previews", body: `{"port": 8000}`}, w.ids)
	var made map[string]any
	if err := json.Unmarshal([]byte(got.body), &made); err != nil || got.status != http.StatusCreated {
		w.t.Fatalf("a preview: %d %s", got.status, got.body)
	}
	w.id("preview", made, "preview_id")
	w.link = made["url"].(string)
	w.ids["signature"] = w.link[strings.LastIndex(w.link, "/")+1:]
	got = w.send(w.a, request{line: "POST /api/v1/rpc", body: `{"jsonrpc":"2.0","id":1,"method":"sandbox.start","params":{"sandbox":"` + boxName + `","namespace":"` + boxSpace + `"}}`}, nil)
	if !strings.Contains(got.body, "started") {
		w.t.Fatalf("a sandbox: %d %s", got.status, got.body)
	}
	w.makeE2B()
}

// makeE2B makes a sandbox as E2B's clients do, with a file, and a snapshot of it.
func (w *server) makeE2B() {
	w.t.Helper()
	for _, one := range []struct{ name, line, key string }{
		{"e2b", "POST /e2b/sandboxes", "sandboxID"}, {"snapshot", "POST /e2b/sandboxes/{e2b}/snapshots", "snapshotID"},
	} {
		got := w.send(w.a, request{line: one.line, body: `{"templateID": "base", "metadata": {"about": "` + marker + `"}}`}, w.ids)
		var made map[string]any
		if err := json.Unmarshal([]byte(got.body), &made); err != nil || got.status != http.StatusCreated {
			w.t.Fatalf("%s: %d %s", one.line, got.status, got.body)
		}
		w.id(one.name, made, one.key)
	}
}

// makeWaiting makes a task whose execution waits for an approval, and another execution
// that waits in rounds.
func (w *server) makeWaiting() {
	w.t.Helper()
	waits := func(name, capabilities string) map[string]any {
		w.id(name, w.must("create_session", map[string]any{"language": "python", "isolation": "wasm"}), "session_id")
		got := w.send(w.a, modernCall("execute_code", map[string]any{"session_id": w.ids[name], "code": "from servers.acts import act\nact()"}, capabilities), w.ids)
		var answer struct{ Result map[string]any }
		if err := json.Unmarshal([]byte(got.body), &answer); err != nil || answer.Result == nil {
			w.t.Fatalf("what waits: %d %s", got.status, got.body)
		}
		return answer.Result
	}
	w.id("task", waits("tasksession", `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`), "taskId")
	asked := waits("roundsession", `{"elicitation":{"form":{}}}`)
	w.id("state", asked, "requestState")
	for id := range asked["inputRequests"].(map[string]any) {
		w.ids["approval"] = id
	}
	w.ids["waiting"], _, _ = strings.Cut(w.ids["state"], " ")
}

// makeRunning opens an MCP session as A does, with a call in it that runs until the test
// ends, and whose answer is a stream.
func (w *server) makeRunning() {
	w.t.Helper()
	got := w.send(w.a, request{line: "POST /mcp", body: `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}`}, nil)
	if w.ids["mcp"] = got.header.Get("Mcp-Session-Id"); w.ids["mcp"] == "" {
		w.t.Fatalf("no MCP session: %d %s", got.status, got.body)
	}
	w.send(w.a, inMCP("mcp", `{"jsonrpc":"2.0","method":"notifications/initialized"}`), w.ids)
	w.id("busy", w.must("create_session", map[string]any{"language": "python", "isolation": "wasm"}), "session_id")
	call := inMCP("mcp", `{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"execute_code","_meta":{"progressToken":"token-of-a"},"arguments":{"session_id":"{busy}","code":"import time\nprint('`+marker+`', flush=True)\ntime.sleep(3000)","timeout":3000}}}`)
	r := w.request(w.a, call, w.ids)
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	res, err := http.DefaultClient.Do(r.WithContext(ctx))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { cancel(); res.Body.Close() })
	lines := bufio.NewReader(res.Body)
	for w.ids["event"] == "" {
		line, err := lines.ReadString('\n')
		if err != nil {
			w.t.Fatalf("the stream ends: %v", err)
		}
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			w.ids["event"] = strings.TrimSpace(id)
		}
	}
	go func() {
		defer close(w.running)
		_, _ = io.Copy(io.Discard, lines)
	}()
}

// alive tells whether A's call runs on.
func (w *server) alive() bool {
	select {
	case <-w.running:
		return false
	default:
		return true
	}
}

// request is one as the tables write it: {name} stands for an id, in all parts. A body is
// JSON's, unless a header says otherwise.
type request struct {
	line    string // method and path
	headers []string
	body    string
}

// inMCP is a message in an MCP session.
func inMCP(session, body string) request {
	return request{line: "POST /mcp", headers: []string{"Mcp-Session-Id: {" + session + "}", "Mcp-Protocol-Version: 2025-11-25", "Accept: application/json, text/event-stream"}, body: body}
}

// modern is a message without a session, to what name says.
func modern(method, name, params, capabilities string) request {
	meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"},"io.modelcontextprotocol/clientCapabilities":` + capabilities + `}`
	if params = strings.TrimSpace(params); params != "" {
		meta += "," + params
	}
	r := request{line: "POST /mcp", headers: []string{"Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: " + method, "Accept: application/json, text/event-stream"},
		body: `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + meta + `}}`}
	if name != "" {
		r.headers = append(r.headers, "Mcp-Name: "+name)
	}
	return r
}

// modernCall is a tools/call of those clients.
func modernCall(tool string, arguments map[string]any, capabilities string) request {
	text, err := json.Marshal(arguments)
	if err != nil {
		panic(err) // of a table's own
	}
	r := modern("tools/call", tool, `"name":"`+tool+`","arguments":`+string(text), capabilities)
	if id, ok := arguments["session_id"].(string); ok {
		r.headers = append(r.headers, "Mcp-Param-Session-Id: "+id)
	}
	return r
}

// reply is what comes back.
type reply struct {
	status int
	header http.Header
	body   string
}

// fill puts ids in the places of their names.
func fill(text string, ids map[string]string) string {
	for name, id := range ids {
		text = strings.ReplaceAll(text, "{"+name+"}", id)
	}
	return text
}

func (w *server) request(token string, q request, ids map[string]string) *http.Request {
	w.t.Helper()
	method, path, _ := strings.Cut(q.line, " ")
	body := fill(q.body, ids)
	r, err := http.NewRequest(method, w.Base(), strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if path = fill(path, ids); strings.HasPrefix(path, "//") {
		r.URL.Path = path
	} else {
		r.URL.Opaque = path // as it is written
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range q.headers {
		name, value, _ := strings.Cut(fill(h, ids), ": ")
		switch {
		case name == "Host":
			r.Host = value + strings.TrimPrefix(w.Base(), "http://127.0.0.1")
		case name == "Content-Type":
			r.Header.Set(name, value)
		default:
			r.Header.Add(name, value)
		}
	}
	return r
}

// soon bounds a request whose answer may be a stream without an end: what has come by
// then is looked at.
const soon = 3 * time.Second

// send sends a request.
func (w *server) send(token string, q request, ids map[string]string) reply {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), paddocktest.Timeout)
	defer cancel()
	res, err := transport.RoundTrip(w.request(token, q, ids).WithContext(ctx))
	if err != nil {
		w.t.Fatalf("%s: %v", q.line, err)
	}
	defer res.Body.Close()
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		defer time.AfterFunc(soon, cancel).Stop()
	}
	text, err := io.ReadAll(res.Body)
	if err != nil && ctx.Err() == nil {
		w.t.Fatalf("%s: %v", q.line, err)
	}
	if last := bytes.LastIndex(text, []byte("\ndata: {")); last >= 0 { // the answer is its last event
		text = text[last+len("\ndata: "):]
	}
	return reply{res.StatusCode, res.Header, strings.TrimSpace(string(text))}
}

// transport follows nothing.
var transport = &http.Transport{}
