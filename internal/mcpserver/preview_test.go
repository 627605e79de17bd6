package mcpserver

import (
	"context"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/expect"
	"paddock/internal/session"
)

func TestWhatIsTheAddressOfAServerInASession(t *testing.T) {
	for address, want := range map[string]struct {
		port uint16
		path string
	}{
		"localhost:8000": {8000, ""}, "http://localhost:8000/": {8000, "/"}, "http://127.0.0.1:3000/a?b=c": {3000, "/a?b=c"}, "0.0.0.0:1": {1, ""},
		"localhost": {}, "localhost:0": {}, "localhost:65536": {}, "https://localhost:1": {}, "a.txt": {}, "localhost:80x": {}, "example.com:80": {}, "http://localhost:80@evil/": {}, "x/localhost:80": {}, "localhost:80/#a": {},
	} {
		if port, path, ok := previewed(address); port != want.port {
			t.Errorf("%s: port: got %v, want %v", address, port, want.port)
		} else if path != want.path {
			t.Errorf("%s: path: got %v, want %v", address, path, want.path)
		} else if ok != (want.port != 0) {
			t.Errorf("%s is an address: got %v, want %v", address, ok, want.port != 0)
		}
	}
}

func TestALinkToWhatASessionServes(t *testing.T) {
	s := newServer(t, Config{Link: func(context.Context, session.Owner, session.ID, string) (string, time.Time, error) {
		return "http://file", time.Time{}, nil
	}, Preview: func(_ context.Context, owner session.Owner, id session.ID, port uint16, path string) (string, time.Time, error) {
		expect.Equal(t, "port", port, 8000)
		expect.Equal(t, "path", path, "/a")
		if id == "" {
			t.Error("id: got none, want one")
		}
		return "http://preview/x", time.Unix(1e9, 0), nil
	}}, session.Config{})
	got, res := useTool(t, connect(t, s, "tests", nil), "read_file", `{"path":"localhost:8000/a","link":true}`)
	expect.Equal(t, `got["preview_url"]`, got["preview_url"], "http://preview/x")
	if got["session_id"] == "" {
		t.Error(`got["session_id"]: got none, want one`)
	}
	expect.Part(t, "res.Content[0].(*mcp.TextContent).Text",
		res.Content[0].(*mcp.TextContent).Text, "port 8000, until 2001-09-09T01:46:40Z: http://preview/x")
}
