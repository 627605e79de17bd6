package mcpserver

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/mcpserver/transport"
	"paddock/internal/microsandbox"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

// withMachines makes a client of a server that has both isolations.
func withMachines(t *testing.T, options *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	wasm := sandboxtest.NewFake(sandboxtest.FakeConfig{Name: "wasm"})
	linux := sandboxtest.NewFakeMachines(sandboxtest.FakeConfig{Name: microsandbox.Isolation, Runtimes: []sandbox.Runtime{
		{Name: "python", Languages: []string{"python"}, Version: "1", Description: "a tiny language"},
		{Name: "bash", Languages: []string{"bash"}, Version: "1", Description: "a tiny language"},
	}})
	m, err := session.New(session.Config{Dir: t.TempDir(), Backends: []sandbox.Backend{wasm, linux}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close(); wasm.Close(); linux.Close() })
	s, err := New(Config{Sessions: m, Sandboxes: microsandbox.New(microsandbox.Config{Sessions: m}), Tools: []string{"core", "sandbox"}, MemoryBytes: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return connect(t, s, "tests", options)
}

// useTool calls a tool, and gives its structured result and its blocks.
func useTool(t *testing.T, c *mcp.ClientSession, tool, args string) (out map[string]any, res *mcp.CallToolResult) {
	t.Helper()
	params := &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(args)}
	params.SetProgressToken("p")
	res, err := c.CallTool(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	out, _ = res.StructuredContent.(map[string]any)
	return out, res
}

func TestASandboxShowsPicturesAndPutsLargeOutputIntoAFile(t *testing.T) {
	said := make(chan string, 100)
	c := withMachines(t, &mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) { said <- req.Params.Message }})
	useTool(t, c, "sandbox_start", `{"sandbox":"box","namespace":"default"}`)
	run := func(code string) (map[string]any, *mcp.CallToolResult) {
		args, err := json.Marshal(map[string]string{"sandbox": "box", "namespace": "default", "language": "python", "code": code})
		if err != nil {
			t.Fatal(err)
		}
		return useTool(t, c, "sandbox_run_code", string(args))
	}
	out, _ := run("print('" + strings.Repeat("long ", 20_000) + "')")
	if text := transport.Encoded(out); len(text) > 2*maxOutput {
		t.Errorf("the result: len(text): got %v, want at most %v", len(text), 2*maxOutput)
	} else if !strings.Contains(string(text), "all of it is in .paddock/") && !strings.Contains(string(text), "all of it is in /workspace/.paddock/") {
		t.Errorf("the result: got the end %s, want the file's place in it", text[max(0, len(text)-300):])
	}
	run("print('told')")
	for message := ""; !strings.Contains(message, "told"); message = <-said {
	}
	if out, res := run("display('image/png', 'x')"); !strings.Contains(string(transport.Encoded(out)), "[not shown: ") {
		t.Errorf("of no picture: string(transport.Encoded(out)): got %q, want %q in it",
			string(transport.Encoded(out)), "[not shown: ")
	} else if !strings.Contains(string(transport.Encoded(res.Content)), "[not shown: ") {
		t.Errorf("of no picture: string(transport.Encoded(res.Content)): got %q, want %q in it",
			string(transport.Encoded(res.Content)), "[not shown: ")
	}
	if out, res := run("display('text/html', '" + strings.Repeat("long ", 20_000) + "')"); len(res.Content) != 2 {
		t.Errorf("of a long document: len(res.Content): got %d, want 2: %v", len(res.Content), res.Content)
	} else if !strings.Contains(string(transport.Encoded(out)), "[in a file: .paddock/") {
		t.Errorf("of a long document: string(transport.Encoded(out)): got %q, want %q in it",
			string(transport.Encoded(out)), "[in a file: .paddock/")
	}
}

func TestBashIsWhereASessionHasAMachine(t *testing.T) {
	c := withMachines(t, nil)
	_, res := useTool(t, c, "execute_code", `{"language":"bash","code":"1"}`)
	if text := string(transport.Encoded(res)); !res.IsError {
		t.Errorf("in wasm: res.IsError: got false, want true: %s", text)
	} else if !strings.Contains(text, `isolation \"linux\" does`) {
		t.Errorf("in wasm: got %q, want %q in it", text, `isolation \"linux\" does`)
	}
	made, _ := useTool(t, c, "create_session", `{"image":"some","language":"bash"}`)
	if made["isolation"] != "linux" {
		t.Fatalf("with an image it is %v", made)
	}
	id := made["session_id"].(string)
	useTool(t, c, "execute_code", `{"session_id":"`+id+`","code":"spawn server 8000"}`)
	info, _ := useTool(t, c, "get_workspace_info", `{"session_id":"`+id+`"}`)
	if text := string(transport.Encoded(info)); info["image"] != "some" {
		t.Errorf(`the session: info["image"]: got %q, want %q`, info["image"], "some")
	} else if !strings.Contains(text, `"command":"server 8000"`) {
		t.Errorf("the session: got %q, want %q in it", text, `"command":"server 8000"`)
	} else if !strings.Contains(text, "server 8000 has begun") {
		t.Errorf("the session: got %q, want %q in it", text, "server 8000 has begun")
	}
	_, res = useTool(t, c, "create_session", `{"image":"some","isolation":"wasm"}`)
	if !res.IsError {
		t.Error("there is an image in wasm")
	}
}
