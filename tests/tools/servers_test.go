package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// testServer is a server of the test's own, over Streamable HTTP, that does what those of
// others do not.
type testServer struct {
	url string
	*sdk.Server

	mu    sync.Mutex // guards what follows
	calls []called
	notes map[string]string
}

// called is a call as it arrived.
type called struct {
	tool, arguments, key string
	header               http.Header
}

func newTestServer(t testing.TB) *testServer {
	t.Helper()
	p := &testServer{Server: sdk.NewServer(&sdk.Implementation{Name: "party", Version: "1"}, nil), notes: map[string]string{}}
	h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return p.Server }, &sdk.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	p.url = h.URL + "/mcp"
	return p
}

// answer is what a tool gives: text is content, all else structured content.
func answer(v any) (*sdk.CallToolResult, error) {
	switch v := v.(type) {
	case string:
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: v}}}, nil
	case sdk.Content:
		return &sdk.CallToolResult{Content: []sdk.Content{v}}, nil
	}
	text, err := json.Marshal(v)
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: string(text)}}, StructuredContent: v}, err
}

// tool adds a tool: f is given the arguments.
func (p *testServer) tool(name, description, schema string, f func(ctx context.Context, args map[string]any) (any, error)) {
	p.AddTool(&sdk.Tool{Name: name, Description: description, InputSchema: json.RawMessage(schema)}, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		key, _ := r.Params.Meta["paddock/idempotencyKey"].(string)
		p.mu.Lock()
		p.calls = append(p.calls, called{name, string(r.Params.Arguments), key, r.Extra.Header})
		p.mu.Unlock()
		args := map[string]any{}
		if err := json.Unmarshal(r.Params.Arguments, &args); err != nil {
			return nil, err
		}
		v, err := f(ctx, args)
		if err != nil {
			return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: err.Error()}}}, nil
		}
		return answer(v)
	})
}

// seen are the calls that have arrived until now.
func (p *testServer) seen() []called {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]called{}, p.calls...)
}

// wiki has the tools of DeepWiki.
func (p *testServer) wiki() *testServer {
	repo := `{"type":"object","properties":{"repoName":{"type":"string","description":"GitHub repository: owner/repo"}},"required":["repoName"],"additionalProperties":false}`
	p.tool("read_wiki_structure", "Get a list of documentation topics for a GitHub repository", repo, func(_ context.Context, args map[string]any) (any, error) {
		return fmt.Sprintf("Available pages for %s:\n\n- 1 Overview\n- 2 Architecture", args["repoName"]), nil
	})
	p.tool("read_wiki_contents", "View documentation about a GitHub repository", repo, func(_ context.Context, args map[string]any) (any, error) {
		return strings.Repeat(fmt.Sprintf("# %s\nIt is a program. ", args["repoName"]), 1000), nil
	})
	p.tool("ask_question", "Ask any question about a GitHub repository", `{"type":"object","properties":{"repoName":{"type":"string"},"question":{"type":"string"}},"required":["repoName","question"]}`,
		func(_ context.Context, args map[string]any) (any, error) {
			return fmt.Sprintf("About %s: %s Yes.", args["repoName"], args["question"]), nil
		})
	return p
}

// drive has the tools of a file store.
func (p *testServer) drive() *testServer {
	id := func(name string) string {
		return fmt.Sprintf(`{"type":"object","properties":{%q:{"type":"string"}},"required":[%q]}`, name, name)
	}
	p.tool("getDocument", "Retrieves a document", id("documentId"), func(_ context.Context, args map[string]any) (any, error) {
		return map[string]any{"title": "Meeting", "content": "Discussed Q4 goals in " + args["documentId"].(string)}, nil
	})
	p.tool("getSheet", "Reads a sheet", id("sheetId"), func(context.Context, map[string]any) (any, error) {
		rows := []map[string]any{}
		for k := range 2000 {
			rows = append(rows, map[string]any{"id": k, "Status": []string{"pending", "done", "done", "done"}[k%4], "amount": k % 97})
		}
		return map[string]any{"rows": rows}, nil
	})
	return p
}

// sales has the tools of a customers' database, which keeps what it is given.
func (p *testServer) sales() *testServer {
	p.tool("updateRecord", "Updates a record", `{"type":"object","properties":{"objectType":{"type":"string","enum":["SalesMeeting","Lead"]},"recordId":{"type":"string"},"data":{"type":"object"}},"required":["objectType","recordId","data"],"additionalProperties":false}`,
		func(_ context.Context, args map[string]any) (any, error) {
			text, err := json.Marshal(args["data"])
			p.mu.Lock()
			defer p.mu.Unlock()
			p.notes[args["recordId"].(string)] = string(text)
			return map[string]any{"updated": true}, err
		})
	p.tool("query", "Queries records", `{"type":"object","properties":{"query":{"type":"string"},"limit":{"type":"integer","minimum":1}},"required":["query"]}`, func(context.Context, map[string]any) (any, error) {
		leads := []map[string]any{}
		for k := range 100 {
			leads = append(leads, map[string]any{"Id": fmt.Sprintf("L%03d", k), "Email": fmt.Sprintf("lead%d@example.com", k)})
		}
		return map[string]any{"records": leads}, nil
	})
	return p
}

// odd has tools that make it hard.
func (p *testServer) odd() *testServer {
	none := `{"type":"object"}`
	p.tool("large", "Gives a lot of text", `{"type":"object","properties":{"lines":{"type":"integer"}},"required":["lines"]}`, func(_ context.Context, args map[string]any) (any, error) {
		var b strings.Builder
		for k := range int(args["lines"].(float64)) {
			fmt.Fprintf(&b, "line %06d of what is large\n", k)
		}
		return b.String(), nil
	})
	p.tool("picture", "Paints", none, func(context.Context, map[string]any) (any, error) {
		var b bytes.Buffer
		err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 3, 2)))
		return &sdk.ImageContent{Data: b.Bytes(), MIMEType: "image/png"}, err
	})
	p.tool("broken", "Never works", none, func(context.Context, map[string]any) (any, error) {
		return nil, errors.New("it is closed on Sundays")
	})
	p.tool("secret-thing", "Must not be called", none, func(context.Context, map[string]any) (any, error) { return "it was called", nil })
	tries := 0
	p.tool("flaky", "Works the third time", none, func(context.Context, map[string]any) (any, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if tries++; tries%3 != 0 {
			return nil, fmt.Errorf("not yet, this was time %d", tries)
		}
		return fmt.Sprintf("done at time %d", tries), nil
	})
	p.tool("count", "Counts", `{"type":"object","properties":{"n":{"type":"integer"}}}`, func(_ context.Context, args map[string]any) (any, error) {
		return map[string]any{"n": args["n"]}, nil
	})
	return p
}

// gate has a tool that answers when so many calls of it are in, and not before.
func (p *testServer) gate() *testServer {
	var mu sync.Mutex
	inside, opened := 0, make(chan struct{})
	p.tool("gate", "Opens when enough wait", `{"type":"object","properties":{"who":{"type":"integer"},"needs":{"type":"integer"}},"required":["who","needs"]}`, func(ctx context.Context, args map[string]any) (any, error) {
		mu.Lock()
		mine := opened
		if inside++; inside == int(args["needs"].(float64)) {
			close(opened)
			inside, opened = 0, make(chan struct{})
		}
		mu.Unlock()
		select {
		case <-mine:
			return map[string]any{"who": args["who"]}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	return p
}
