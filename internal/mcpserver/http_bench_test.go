package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"paddock/internal/mcpserver/transport"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

// BenchmarkHTTP tells what a tool call over HTTP costs beyond net/http: a tool
// that does nothing against a handler that decodes the same request and encodes
// the same answer. Both take turns in one run; "p50-over-µs" is what ours takes
// longer, "of-floor" our throughput as a part of the floor's.
func BenchmarkHTTP(b *testing.B) {
	h := benchHandler(b)
	floor := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m map[string]any
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &m)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": m["id"], "result": map[string]any{
			"content": []any{map[string]any{"type": "text", "text": "{}"}}, "structuredContent": map[string]any{}}})
	})
	plain := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"noop","arguments":{"text":"hello"}}}`
	current := strings.TrimSuffix(plain, "}}") + fmt.Sprintf(modernMeta, "") + "}}"
	legacy := openBench(b, h)
	kinds := []struct {
		name, body string
		header     http.Header
	}{
		{"plain", plain, http.Header{}},
		{"legacy", plain, legacy},
		{"modern", current, http.Header{"Mcp-Protocol-Version": {modern}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"noop"}, "Accept": {"application/json, text/event-stream"}}},
	}
	for _, k := range kinds {
		b.Run(k.name+"/in-process", func(b *testing.B) {
			call := func(h http.Handler) func(int) {
				return func(n int) {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, benchRequest(k.body, "http://localhost/", k.header, n))
					if w.Code != http.StatusOK {
						b.Error(w.Body.String())
					}
				}
			}
			compare(b, 1, call(floor), call(h))
		})
		for _, c := range []int{1, 8, 32} {
			b.Run(fmt.Sprintf("%s/loopback-%d", k.name, c), func(b *testing.B) {
				compare(b, c, overLoopback(b, floor, c, k.body, k.header), overLoopback(b, h, c, k.body, k.header))
			})
		}
	}
}

func benchHandler(b *testing.B) *transport.Handler {
	backend := sandboxtest.NewFake(sandboxtest.FakeConfig{Name: "wasm"})
	m, err := session.New(session.Config{Dir: b.TempDir(), Backends: []sandbox.Backend{backend}})
	if err != nil {
		b.Fatal(err)
	}
	s, err := New(Config{Sessions: m, Binding: ownedByHeader})
	if err != nil {
		b.Fatal(err)
	}
	type in struct{ text string }
	t := define("noop", "Nothing", "Does nothing.", hints{readOnly: true},
		func(i *in) []param { return []param{text("text", &i.text, 0, 100, "Text")} },
		func(context.Context, *call, in) (struct{}, answer, error) { return struct{}{}, answer{}, nil })
	s.tools["noop"], s.sets["core"] = t, append(s.sets["core"], "noop")
	h, err := s.Handler(transport.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { h.Close(); m.Close(); backend.Close() })
	return h
}

func benchRequest(body, url string, header http.Header, n int) *http.Request {
	r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(strings.Replace(body, `"id":1`, fmt.Sprintf(`"id":%d`, n), 1)))
	if err != nil {
		panic(err)
	}
	for k, v := range header {
		r.Header[k] = v
	}
	r.Header.Set("Content-Type", "application/json")
	return r
}

// openBench opens a legacy session and gives the headers that go with it.
func openBench(b *testing.B, h *transport.Handler) http.Header {
	w := httptest.NewRecorder()
	r := benchRequest(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"b","version":"1"}}}`, "http://localhost/", nil, 1)
	h.ServeHTTP(w, r)
	id := w.Header().Get(headerSession)
	if id == "" {
		b.Fatal(w.Body.String())
	}
	return http.Header{headerSession: {id}, headerVersion: {"2025-11-25"}, "Accept": {"application/json, text/event-stream"}}
}

func overLoopback(b *testing.B, h http.Handler, clients int, body string, header http.Header) func(int) {
	web := httptest.NewServer(h)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	b.Cleanup(func() { client.CloseIdleConnections(); web.Close() })
	return func(n int) {
		resp, err := client.Do(benchRequest(body, web.URL, header, n))
		if err != nil {
			b.Error(err)
			return
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			b.Error(err)
		} else if resp.StatusCode != http.StatusOK {
			b.Errorf("resp.StatusCode: got %v, want %v", resp.StatusCode, http.StatusOK)
		}
		resp.Body.Close()
	}
}

// compare measures both in turns.
func compare(b *testing.B, clients int, floor, ours func(int)) {
	const turns = 4
	var took [2][]time.Duration
	var all [2]time.Duration
	for range turns {
		for k, call := range []func(int){floor, ours} {
			each, whole := load(max(b.N/turns, clients), clients, call)
			took[k], all[k] = append(took[k], each...), all[k]+whole
		}
	}
	p50 := func(d []time.Duration) time.Duration { slices.Sort(d); return d[len(d)/2] }
	rate := func(k int) float64 { return float64(len(took[k])) / all[k].Seconds() }
	b.ReportMetric(float64(p50(took[0]).Nanoseconds())/1e3, "floor-p50-µs")
	b.ReportMetric(float64((p50(took[1])-p50(took[0])).Nanoseconds())/1e3, "p50-over-µs")
	b.ReportMetric(rate(0), "floor/s")
	b.ReportMetric(rate(1)/rate(0), "of-floor")
}

func load(calls, clients int, call func(int)) (each []time.Duration, whole time.Duration) {
	each = make([]time.Duration, calls)
	var next atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for range clients {
		wg.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= calls {
					return
				}
				at := time.Now()
				call(n)
				each[n] = time.Since(at)
			}
		})
	}
	wg.Wait()
	return each, time.Since(began)
}
