package docs

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestTheCallsOfThePageAboutTools makes the calls of docs/tools.md, with a server on
// this machine in the place of the one that it names.
func TestTheCallsOfThePageAboutTools(t *testing.T) {
	const page = "../../docs/tools.md"
	server := mcp.NewServer(&mcp.Implementation{Name: "wiki", Version: "1"}, nil)
	add := func(name, description, schema, answer string, names ...string) {
		server.AddTool(&mcp.Tool{Name: name, Description: description, InputSchema: json.RawMessage(schema)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var args map[string]string
			if err := json.Unmarshal(r.Params.Arguments, &args); err != nil {
				return nil, err
			}
			var values []any
			for _, name := range names {
				values = append(values, args[name])
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(answer, values...)}}}, nil
		})
	}
	add("ask_question", "Ask any question about a GitHub repository", `{"type":"object","properties":{"repoName":{"type":"string"},"question":{"type":"string"}},"required":["repoName","question"]}`, "About %s: %s Yes.", "repoName", "question")
	add("read_wiki_structure", "Get a list of documentation topics for a GitHub repository", `{"type":"object","properties":{"repoName":{"type":"string"}},"required":["repoName"]}`, "1 Overview\n2 Architecture of %s", "repoName")
	h := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	t.Setenv("PADDOCK_MCP_ALLOWLIST", strings.TrimPrefix(h.URL, "http://")+"!private")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	local := filepath.Join(t.TempDir(), "tools.md")
	if err := os.WriteFile(local, []byte(strings.ReplaceAll(string(text), "https://wiki.example.com", h.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	makeCalls(t, local, 7)
}
