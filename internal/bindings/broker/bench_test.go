package broker

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/bindings/journal"
	"paddock/internal/bindings/upstream"
	"paddock/internal/linkfarm"
	"paddock/internal/sandbox"
)

// toolsOf is a server with so many ordinary tools.
func toolsOf(t testing.TB, n int) *counterparty {
	c := empty(t)
	schema := `{"type":"object","properties":{"text":{"type":"string","description":"what is said"},"count":{"type":"integer"},"options":{"type":"object","properties":{"loud":{"type":"boolean"},"words":{"type":"array","items":{"type":"string"}}}}},"required":["text"]}`
	for i := range n {
		c.add(&mcp.Tool{Name: fmt.Sprintf("do-thing-%d", i), Description: "Does something useful with a text, and tells what came of it."}, schema, func(json.RawMessage) (*mcp.CallToolResult, error) {
			return text("done"), nil
		})
	}
	return c
}

// BenchmarkProvide measures what a run costs that calls nothing: "unchanged" where the
// session's folder is as it should be, "new session" where it is empty, "first" where
// no session has had the files before.
func BenchmarkProvide(b *testing.B) {
	for _, n := range []int{0, 10, 100, 500} {
		config := Config{Dir: b.TempDir()}
		if n > 0 {
			config.Servers = []Definition{toolsOf(b, n).definition("party")}
		}
		br := open(b, config)
		dir := filepath.Join(b.TempDir(), "servers")
		provide := func(b *testing.B, s Session, dir string) {
			if err := br.Provide(b.Context(), s, dir); err != nil {
				b.Fatal(err)
			}
		}
		provide(b, alice, dir)
		b.Run(fmt.Sprintf("%d tools/unchanged", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				provide(b, alice, dir)
			}
		})
		i := 0
		b.Run(fmt.Sprintf("%d tools/new session", n), func(b *testing.B) {
			root := b.TempDir()
			for b.Loop() {
				i++
				provide(b, Session{"alice", fmt.Sprint("new-", i)}, filepath.Join(root, fmt.Sprint(i)))
			}
		})
		b.Run(fmt.Sprintf("%d tools/first", n), func(b *testing.B) {
			if err := os.MkdirAll(dir+"-first", 0o755); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				b.StopTimer()
				i++
				trees := filepath.Join(config.Dir, "trees")
				if err := os.RemoveAll(trees); err != nil {
					b.Fatal(err)
				}
				br.stubs = linkfarm.NewStore(trees, os.Link)
				b.StartTimer()
				provide(b, Session{"alice", fmt.Sprint("first-", i)}, filepath.Join(dir+"-first", fmt.Sprint(i)))
			}
		})
	}
}

// BenchmarkCall measures what the broker adds to a call: the same server is called over
// a connection alone in the same run, and the ratio of the two is reported.
func BenchmarkCall(b *testing.B) {
	c := serve(b)
	d := c.definition("party")
	d.Policy = Policy{Ask: []string{"delete-all"}}
	kept, err := journal.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	br := open(b, Config{Servers: []Definition{d}, Dir: b.TempDir(), Journal: kept, CallsPerRun: 1 << 30})
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	conn, err := upstream.Dial(b.Context(), d.Server, upstream.Options{Transport: transport})
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	arguments := json.RawMessage(`{"text":"a"}`)
	body := []byte(`{"op":"call","server":"party","tool":"echo","arguments":{"text":"a"}}`)
	plain := func(b *testing.B) {
		for b.Loop() {
			if _, err := conn.Call(b.Context(), "echo", arguments, upstream.CallOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	}
	number := 0
	brokered := func(b *testing.B, r Run) {
		b.ReportAllocs()
		for b.Loop() {
			number++
			if got := br.Call(b.Context(), r, sandbox.Call{Number: number, Body: body}); string(got) != `{"value":"a"}` {
				b.Fatal(string(got))
			}
		}
	}
	b.Run("plain", plain)
	b.Run("broker", func(b *testing.B) { brokered(b, run()) })
	b.Run("broker, written down", func(b *testing.B) {
		r := Run{Session: alice, Execution: "kept"}
		if _, err := kept.Begin(b.Context(), journal.Call{Run: runOf(r), Number: 1 << 29, Digest: "x"}); err != nil {
			b.Fatal(err)
		}
		brokered(b, r)
	})
	b.Run("ratio", func(b *testing.B) { // one after the other, so that both meet the same machine
		var alone, through time.Duration
		for b.Loop() {
			began := time.Now()
			if _, err := conn.Call(b.Context(), "echo", arguments, upstream.CallOptions{}); err != nil {
				b.Fatal(err)
			}
			between := time.Now()
			number++
			if got := br.Call(b.Context(), run(), sandbox.Call{Number: number, Body: body}); string(got) != `{"value":"a"}` {
				b.Fatal(string(got))
			}
			alone, through = alone+between.Sub(began), through+time.Since(between)
		}
		b.ReportMetric(float64(through)/float64(alone), "brokered/plain")
		b.ReportMetric(float64(through-alone)/float64(b.N)/1000, "µs-added/call")
	})
}
