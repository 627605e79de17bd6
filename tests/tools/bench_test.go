package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/bindings/upstream"
)

// The benchmarks measure what a program waits for: within it, by its own clock, against a
// plain client in Go that calls the same tool of the same server in the same run.

// calls is how many calls are made for one figure, and together how many at a time.
const (
	calls    = 200
	together = 32
)

// plain gives a client in Go without anything around it.
func plain(b *testing.B, url string) *upstream.Conn {
	b.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: together}
	conn, err := upstream.Dial(b.Context(), upstream.Server{Name: "party", URL: url}, upstream.Options{Transport: transport})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close(); transport.CloseIdleConnections() })
	return conn
}

// inOrder gives milliseconds for a call, one after the other.
func inOrder(b *testing.B, conn *upstream.Conn) float64 {
	began := time.Now()
	for k := range calls {
		if _, err := conn.Call(b.Context(), "count", fmt.Appendf(nil, `{"n":%d}`, k), upstream.CallOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	return float64(time.Since(began).Microseconds()) / 1000 / calls
}

// atOnce gives milliseconds for so many calls at a time.
func atOnce(b *testing.B, conn *upstream.Conn) float64 {
	began := time.Now()
	var all sync.WaitGroup
	for k := range together {
		all.Go(func() {
			if _, err := conn.Call(b.Context(), "count", fmt.Appendf(nil, `{"n":%d}`, k), upstream.CallOptions{}); err != nil {
				b.Error(err)
			}
		})
	}
	all.Wait()
	return float64(time.Since(began).Microseconds()) / 1000
}

// told runs a program that prints milliseconds.
func told(b *testing.B, m *model, args map[string]any) float64 {
	b.Helper()
	var e struct {
		Stdout string
		Error  any
	}
	res, err := m.CallTool(b.Context(), &sdk.CallToolParams{Name: "execute_code", Arguments: args})
	if err != nil {
		b.Fatal(err)
	}
	text, err := json.Marshal(res.StructuredContent)
	if err == nil {
		err = json.Unmarshal(text, &e)
	}
	ms, err2 := strconv.ParseFloat(strings.TrimSpace(e.Stdout), 64)
	if err != nil || err2 != nil {
		b.Fatalf("it gives %s", text)
	}
	return ms
}

var inOrderIn = map[string]string{
	"python": fmt.Sprintf(`
import time
from servers.party import count
count(n=0)
began = time.perf_counter()
for k in range(%d): count(n=k)
print((time.perf_counter() - began) * 1000 / %d)`, calls, calls),
	"javascript": fmt.Sprintf(`
import { count } from "servers/party";
await count({ n: 0 });
const began = performance.now();
for (let k = 0; k < %d; k++) await count({ n: k });
console.log((performance.now() - began) / %d);`, calls, calls),
}

var atOnceIn = map[string]string{
	"python": fmt.Sprintf(`
import asyncio, time
from servers.party import count
count(n=0)
began = time.perf_counter()
await asyncio.gather(*(count.aio(n=k) for k in range(%d)))
print((time.perf_counter() - began) * 1000)`, together),
	"javascript": fmt.Sprintf(`
import { count } from "servers/party";
await count({ n: 0 });
const began = performance.now();
await Promise.all(Array.from({ length: %d }, (_, n) => count({ n })));
console.log(performance.now() - began);`, together),
}

// BenchmarkToolCall is a call from a program, one after the other and many at a time.
func BenchmarkToolCall(b *testing.B) {
	p := newTestServer(b)
	p.tool("count", "Counts", `{"type":"object","properties":{"n":{"type":"integer"}}}`, func(_ context.Context, args map[string]any) (any, error) {
		return map[string]any{"n": args["n"]}, nil
	})
	m := open(b, options{setting: everywhere[0], config: fmt.Sprintf("[servers.party]\nurl = %q\n", p.url)})
	conn := plain(b, p.url)
	for _, language := range []string{"python", "javascript"} {
		b.Run(language, func(b *testing.B) {
			var inside, outside, inside32, outside32 []float64
			for b.Loop() {
				outside = append(outside, inOrder(b, conn))
				inside = append(inside, told(b, m, map[string]any{"language": language, "code": inOrderIn[language]}))
				outside32 = append(outside32, atOnce(b, conn))
				inside32 = append(inside32, told(b, m, map[string]any{"language": language, "code": atOnceIn[language]}))
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(inside), "ms/call")
			b.ReportMetric(median(outside), "ms/call-plain")
			b.ReportMetric(median(inside)-median(outside), "ms-added")
			b.ReportMetric(median(inside32), "ms/32-at-once")
			b.ReportMetric(median(outside32), "ms/32-at-once-plain")
		})
	}
}

// BenchmarkToolImport is the import of a server with five hundred tools and of one of its
// functions, by a new interpreter.
func BenchmarkToolImport(b *testing.B) {
	p := newTestServer(b)
	for k := range 500 {
		p.tool(fmt.Sprintf("tool_%03d", k), fmt.Sprintf("Handles the matter of %d.", k), `{"type":"object","properties":{"value":{"type":"integer"},"name":{"type":"string"}},"required":["name"]}`, func(context.Context, map[string]any) (any, error) { return "done", nil })
	}
	m := open(b, options{setting: everywhere[0], config: fmt.Sprintf("[servers.many]\nurl = %q\n", p.url)})
	for language, code := range map[string]string{
		"python":     "import time\nbegan = time.perf_counter()\nfrom servers.many.tools import tool_417\nprint((time.perf_counter() - began) * 1000)",
		"javascript": "const began = performance.now();\nconst { tool_417 } = await import('servers/many');\nif (!tool_417) throw 1;\nconsole.log(performance.now() - began);",
	} {
		b.Run(language, func(b *testing.B) {
			var took []float64
			for b.Loop() {
				res, err := m.CallTool(b.Context(), &sdk.CallToolParams{Name: "create_session"})
				if err != nil {
					b.Fatal(err)
				}
				id := res.StructuredContent.(map[string]any)["session_id"]
				took = append(took, told(b, m, map[string]any{"language": language, "code": code, "session_id": id}))
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(took), "ms/import")
		})
	}
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}
