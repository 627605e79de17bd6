package upstream

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A call to the same server of the Go SDK, by this package and by the SDK's client.
func BenchmarkCall(b *testing.B) {
	h := eras()
	arguments := json.RawMessage(`{"z":"x"}`)
	for _, name := range []string{"stdio", "HTTP legacy", "HTTP modern"} {
		s := played(b, "good")
		if name != "stdio" {
			s = served(b, h[map[string]Era{"HTTP legacy": Legacy, "HTTP modern": Modern}[name]])
		}
		b.Run(name+"/ours", func(b *testing.B) {
			c := dial(b, s, Options{Transport: transport(b), Environ: os.Environ()})
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Call(b.Context(), "echo", arguments, CallOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/SDK", func(b *testing.B) {
			var t mcp.Transport = &mcp.StreamableClientTransport{Endpoint: s.URL, HTTPClient: &http.Client{Transport: transport(b)}}
			if s.Command != "" {
				cmd := exec.Command(s.Command)
				cmd.Env = append(os.Environ(), role+"=good")
				t = &mcp.CommandTransport{Command: cmd}
			}
			cs, err := mcp.NewClient(&mcp.Implementation{Name: "x", Version: "1"}, nil).Connect(context.Background(), t, nil)
			if err != nil {
				b.Fatal(err)
			}
			defer cs.Close()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := cs.CallTool(b.Context(), &mcp.CallToolParams{Name: "echo", Arguments: arguments}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
