package upstream

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
)

// role is the variable that has this test binary be a server instead.
const role = "UPSTREAM_TEST_ROLE"

func TestMain(m *testing.M) {
	if play, ok := roles[os.Getenv(role)]; ok {
		play()
		os.Exit(0)
	}
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// roles are servers, most of them bad ones.
var roles = map[string]func(){
	"good":   func() { _ = sdkServer().Run(context.Background(), &mcp.StdioTransport{}) },
	"silent": func() { legacyServer(true, nil) },
	"old":    func() { legacyServer(false, nil) },
	"dead":   func() { fmt.Fprintln(os.Stderr, "no key was given"); os.Exit(3) },
	"exits":  func() { legacyServer(false, func(int64, string) { fmt.Fprintln(os.Stderr, "it hurts"); os.Exit(4) }) },
	"malformed": func() {
		legacyServer(false, func(id int64, _ string) { fmt.Printf("{\"jsonrpc\":\"2.0\",\"id\":%d,\n", id) })
	},
	"huge":     func() { legacyServer(false, func(id int64, _ string) { huge(id) }) },
	"flood":    func() { legacyServer(false, func(int64, string) { flood() }) },
	"never":    func() { legacyServer(false, func(int64, string) {}) },
	"shuts":    func() { legacyServer(false, func(int64, string) { os.Stdout.Close(); time.Sleep(time.Hour) }) },
	"stubborn": stubborn,
	"parent":   parent,
	"deaf":     func() { legacyServer(false, func(int64, string) { time.Sleep(time.Hour) }) },
	"stderr":   func() { legacyServer(false, shout) },
	"chatty":   func() { fmt.Println("Welcome!\n\nstarting"); legacyServer(false, nil) },
	"logs": func() {
		logs()
		legacyServer(false, func(id int64, _ string) { logs(); reply(id, `{"content":[],"structuredContent":{"answer":1}}`); logs() })
	},
	"crashes":    func() { count(); os.Exit(1) },
	"lies":       func() { legacyServer(false, lies) },
	"environ":    func() { legacyServer(false, environ) },
	"childless":  func() { time.Sleep(time.Hour) },
	"tells":      tells,
	"pings":      func() { legacyServer(false, pings) },
	"unreadable": func() { fmt.Println(`{"jsonrpc":`); time.Sleep(time.Hour) },
}

// logs prints what loggers and careless programs print.
func logs() {
	for _, line := range []string{
		`{"level":30,"time":1700000000000,"pid":5,"msg":"listening"}`, `{"severity":"INFO","id":1,"method":"GET","error":"none"}`,
		`{"level":"error","error":{"code":5},"message":"no"}`, `{"msg":"got","request":{"jsonrpc":"2.0","id":1,"method":"x"}}`,
		`{'python': 'dict'}`, `{`, `  "a": 1`, `}`, `[1,2]`, `"text"`, `null`, `{}`, `{"result":5}`, `{"id":"log-1","result":"done"}`,
	} {
		fmt.Println(line)
	}
}

// sdkServer is a server of the Go SDK.
func sdkServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, &mcp.ServerOptions{Instructions: "be kind"})
	schema := json.RawMessage(`{"type":"object","properties":{"z":{"type":"string"},"a":{"type":"integer"}},"required":["z"]}`)
	echo := &mcp.Tool{Name: "echo", Description: "gives it back", InputSchema: schema, Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}
	s.AddTool(echo, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}}, StructuredContent: r.Params.Arguments}, nil
	})
	object := json.RawMessage(`{"type":"object"}`)
	s.AddTool(&mcp.Tool{Name: "slow", InputSchema: object}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for i := range 3 {
			if token := r.Params.GetProgressToken(); token != nil {
				_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(i + 1), Total: 3, Message: "step"})
			}
		}
		if string(r.Params.Arguments) == `{"wait":true}` {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(r.Params.Meta["key"])}}}, nil
	})
	s.AddTool(&mcp.Tool{Name: "grow", InputSchema: object}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s.AddTool(&mcp.Tool{Name: "grown", InputSchema: object}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{}, nil
		})
		return &mcp.CallToolResult{Content: []mcp.Content{}}, nil
	})
	s.AddTool(&mcp.Tool{Name: "region", InputSchema: json.RawMessage(`{"type":"object","properties":{"where":{"type":"string","x-mcp-header":"Region"}}}`)},
		func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: r.Extra.Header.Get("Mcp-Param-Region")}}}, nil
		})
	return s
}

// legacyServer knows only what was before 2026, and one tool, which onCall answers.
// One that is silent does not answer what it does not know.
func legacyServer(silent bool, onCall func(id int64, arguments string)) {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<24)
	for in.Scan() {
		var m message
		if json.Unmarshal(in.Bytes(), &m) != nil || m.ID == nil || m.Method == "" {
			continue
		}
		id := m.number()
		switch m.Method {
		case "initialize":
			reply(id, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"old","version":"1"}}`)
		case "tools/list":
			reply(id, `{"tools":[{"name":"do","inputSchema":{"type":"object"},"outputSchema":{"type":"object","required":["answer"]},"annotations":{"idempotentHint":true}}]}`)
		case "tools/call":
			if onCall == nil {
				reply(id, `{"content":[],"structuredContent":{"answer":42}}`)
			} else {
				onCall(id, string(m.Params))
			}
		default:
			if !silent {
				fmt.Printf(`{"jsonrpc":"2.0","id":%d,"error":{"code":-32601,"message":"unknown"}}`+"\n", id)
			}
		}
	}
}

func reply(id int64, result string) {
	fmt.Printf(`{"jsonrpc":"2.0","id":%d,"result":%s}`+"\n", id, result)
}

func huge(id int64) {
	fmt.Printf(`{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"`, id)
	chunk := strings.Repeat("x", 1<<20)
	for range 1 << 10 {
		if _, err := io.WriteString(os.Stdout, chunk); err != nil {
			return
		}
	}
}

func flood() {
	w := bufio.NewWriter(os.Stdout)
	for {
		if _, err := w.WriteString(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}` + "\n"); err != nil {
			return
		}
	}
}

// stubborn ends neither with its input nor when it is asked to.
func stubborn() {
	ignoreSignals()
	legacyServer(false, nil)
	time.Sleep(time.Hour)
}

// parent has a child, whose number it tells, and dies when it is called.
func parent() {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), role+"=childless")
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	if err := child.Start(); err != nil {
		panic(err)
	}
	_ = os.WriteFile(os.Getenv("CHILD"), fmt.Append(nil, child.Process.Pid), 0o600)
	legacyServer(false, func(int64, string) { os.Exit(0) })
	time.Sleep(time.Hour)
}

func shout(id int64, _ string) {
	line := strings.Repeat("noise ", 100) + "\n"
	for range 20_000 {
		_, _ = io.WriteString(os.Stderr, line)
	}
	fmt.Fprintln(os.Stderr, "the key is "+os.Getenv("API_KEY"))
	reply(id, `{"content":[],"structuredContent":{"answer":1}}`)
}

// count counts how often it was called.
func count() {
	f, err := os.OpenFile(os.Getenv("COUNT"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, _ = f.WriteString("x")
		_ = f.Close()
	}
}

func lies(id int64, arguments string) {
	switch {
	case strings.Contains(arguments, "nothing"):
		reply(id, `{"content":[{"type":"text","text":"fine"}]}`)
	case strings.Contains(arguments, "kind"):
		reply(id, `{"content":[],"structuredContent":[1]}`)
	case strings.Contains(arguments, "field"):
		reply(id, `{"content":[],"structuredContent":{"ans":1}}`)
	case strings.Contains(arguments, "image"):
		reply(id, `{"content":[{"type":"image","data":"%%%","mimeType":"image/png"}]}`)
	case strings.Contains(arguments, "block"):
		reply(id, `{"content":[{"type":"hologram"}]}`)
	case strings.Contains(arguments, "asks"):
		reply(id, `{"resultType":"input_required","inputRequests":{}}`)
	default:
		reply(id, `"fine"`)
	}
}

func environ(id int64, _ string) {
	dir, _ := os.Getwd()
	text, _ := json.Marshal(map[string]any{"answer": os.Environ(), "dir": dir})
	reply(id, `{"content":[],"structuredContent":`+string(text)+`}`)
}

// pings asks back, and answers when it was answered.
func pings(id int64, _ string) {
	fmt.Println(`{"jsonrpc":"2.0","id":"p","method":"ping"}`)
	fmt.Println(`{"jsonrpc":"2.0","id":"s","method":"sampling/createMessage","params":{}}`)
	in := bufio.NewReader(os.Stdin)
	var got []string
	for range 2 {
		line, _ := in.ReadString('\n')
		got = append(got, strings.TrimSpace(line))
	}
	text, _ := json.Marshal(map[string]any{"answer": got})
	reply(id, `{"content":[],"structuredContent":`+string(text)+`}`)
}

// timeout is how long a call may take here, on a machine that does much else.
const timeout = 2 * time.Minute

// played is this binary as a server.
func played(t testing.TB, part string, env ...string) Server {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := Server{Name: part, Command: path, Env: map[string]string{role: part}, CallTimeout: timeout}
	for _, pair := range env {
		name, value, _ := strings.Cut(pair, "=")
		s.Env[name] = value
	}
	return s
}

// dial connects to s, and closes at the end.
func dial(t testing.TB, s Server, o Options) *Conn {
	t.Helper()
	c, err := Dial(t.Context(), s, o)
	if err != nil {
		t.Fatalf("dialing %s: %v (%v)", s.Name, err, cause(err))
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return c
}

// cause is everything that an error knows.
func cause(err error) string {
	var all []string
	for err != nil {
		all = append(all, err.Error())
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			break
		}
		err = u.Unwrap()
	}
	return strings.Join(all, " < ")
}

func names(t testing.TB, c *Conn) (all []string) {
	t.Helper()
	tools, err := c.Tools(t.Context())
	if err != nil {
		t.Fatalf("the tools: %v (%s)", err, cause(err))
	}
	for _, tool := range tools {
		all = append(all, tool.Name)
	}
	return all
}

func call(t testing.TB, c *Conn, tool, arguments string) Result {
	t.Helper()
	r, err := c.Call(t.Context(), tool, json.RawMessage(arguments), CallOptions{})
	if err != nil {
		t.Fatalf("%s: %v (%s)", tool, err, cause(err))
	}
	return r
}

// eventually waits until something holds, which it does sooner or later.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for range 12000 {
		if holds() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("it never came that %s", what)
}

func logTo(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func temp(t testing.TB, name string) string { return filepath.Join(t.TempDir(), name) }

// zipped answers with a result of n bytes that are few on the wire.
func zipped(w http.ResponseWriter, id int64, n int) {
	w.Header().Set("Content-Encoding", "gzip")
	z := gzip.NewWriter(w)
	fmt.Fprintf(z, `{"jsonrpc":"2.0","id":%d,"result":"`, id)
	chunk := strings.Repeat("x", 1<<20)
	for range n >> 20 {
		if _, err := io.WriteString(z, chunk); err != nil {
			return
		}
	}
	_ = z.Close()
}
