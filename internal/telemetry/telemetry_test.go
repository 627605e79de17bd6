package telemetry_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.opentelemetry.io/otel/trace"

	"paddock/internal/fault"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
	"paddock/internal/session/sessiontest"
	"paddock/internal/telemetry"
)

const (
	traceA, spanA = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	traceB, spanB = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	parentA       = "00-" + traceA + "-" + spanA + "-01"
	parentB       = "00-" + traceB + "-" + spanB + "-01"
)

func open(t testing.TB, c telemetry.Config) *telemetry.Telemetry {
	t.Helper()
	tel, err := telemetry.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tel.Close() })
	return tel
}

func manager(t testing.TB, c session.Config) *session.Manager {
	t.Helper()
	return sessiontest.Open(t, c, sandboxtest.NewFake(sandboxtest.FakeConfig{}))
}

func TestTheSpansOfACallArriveBelowTheClientsOwn(t *testing.T) {
	to := newCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
	tel := open(t, telemetry.Config{Service: "mine", Version: "7", Endpoint: to.URL + "/"})
	m := manager(t, session.Config{Tracer: tel.Tracer()})
	ctx, call := tel.StartCall(t.Context(), "execute_code", http.Header{"Traceparent": {parentB}}, map[string]any{"traceparent": parentA})
	info, err := m.Create(ctx, "alice", "", session.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	secret := "print('a secret')"
	res, err := m.Execute(ctx, "alice", info.ID, session.Request{Code: secret})
	if err != nil {
		t.Fatal(err)
	}
	call.End(ctx, string(info.ID), res.Execution, nil)
	_, failed := tel.StartCall(t.Context(), "read_file", http.Header{"Traceparent": {parentB}}, nil)
	failed.End(t.Context(), "", "", fault.New(fault.NotFound, "no file a secret"))
	if err := tel.Close(); err != nil {
		t.Fatal(err)
	}
	tool := to.span(t, "tools/call execute_code")
	if hex.EncodeToString(tool.TraceId) != traceA || hex.EncodeToString(tool.ParentSpanId) != spanA {
		t.Errorf("the call belongs to %x below %x", tool.TraceId, tool.ParentSpanId)
	}
	switch a := attributes(tool); {
	case a["mcp.method.name"] != "tools/call":
		t.Errorf(`a["mcp.method.name"] = %q, want "tools/call"`, a["mcp.method.name"])
	case a["gen_ai.tool.name"] != "execute_code":
		t.Errorf(`a["gen_ai.tool.name"] = %q, want "execute_code"`, a["gen_ai.tool.name"])
	case a["paddock.session.id"] != string(info.ID):
		t.Errorf(`a["paddock.session.id"] = %q, want %q`, a["paddock.session.id"], string(info.ID))
	case a["paddock.outcome"] != "success":
		t.Errorf(`a["paddock.outcome"] = %q, want "success"`, a["paddock.outcome"])
	}
	for _, name := range []string{"session.queue", "sandbox.start", "sandbox.run", "checkpoint"} {
		if s := to.span(t, name); !bytes.Equal(s.ParentSpanId, tool.SpanId) {
			t.Errorf("%s stands below %x, want %x", name, s.ParentSpanId, tool.SpanId)
		}
	}
	lost := to.span(t, "tools/call read_file")
	switch a := attributes(lost); {
	case hex.EncodeToString(lost.TraceId) != traceB:
		t.Errorf("the failed call: hex.EncodeToString(lost.TraceId) = %v, want %v; the failed call says %v, %v in %x",
			hex.EncodeToString(lost.TraceId), traceB, a, lost.Status, lost.TraceId)
	case a["error.type"] != "not_found":
		t.Errorf(`the failed call: a["error.type"] = %q, want "not_found"`, a["error.type"])
	case lost.Status.Message != "not_found":
		t.Errorf(`the failed call: lost.Status.Message = %q, want "not_found"`, lost.Status.Message)
	}
	for _, s := range to.spans {
		if strings.Contains(s.String(), "secret") {
			t.Errorf("a span holds what it must not: %s", s)
		}
	}
	switch r := to.resource; {
	case r["service.name"] != "mine":
		t.Errorf(`the resource: r["service.name"] = %q, want "mine"`, r["service.name"])
	case r["service.version"] != "7":
		t.Errorf(`the resource: r["service.version"] = %q, want "7"`, r["service.version"])
	case r["deployment.environment"] != "test":
		t.Errorf(`the resource: r["deployment.environment"] = %q, want "test"`,
			r["deployment.environment"])
	}
	if got := to.headers.Get("Authorization"); got != "Bearer abc" {
		t.Errorf("the header of the environment came as %q", got)
	}
	if !to.metrics["mcp.server.operation.duration"] {
		t.Errorf("the metrics are %v", to.metrics)
	}
}

func TestAHostileTraceContextIsIgnored(t *testing.T) {
	long := strings.Repeat("a=b,", 10_000)
	for name, meta := range map[string]map[string]any{
		"nothing":           nil,
		"no text":           {"traceparent": 7, "baggage": []any{"a"}},
		"no parent":         {"traceparent": "00-zz-zz-01"},
		"zeros":             {"traceparent": "00-" + strings.Repeat("0", 32) + "-" + spanA + "-01"},
		"a future version":  {"traceparent": "ff-" + traceA + "-" + spanA + "-01"},
		"lines":             {"traceparent": parentA + "\r\nx: y"},
		"a mebibyte":        {"traceparent": strings.Repeat("0", 1<<20)},
		"only a long state": {"tracestate": long, "baggage": long},
	} {
		t.Run(name, func(t *testing.T) {
			if got := telemetry.TraceID(telemetry.FromMeta(t.Context(), meta)); got != "" {
				t.Errorf("it made the trace %s", got)
			}
			above := telemetry.FromHeader(t.Context(), http.Header{"Traceparent": {parentB}})
			if got := telemetry.TraceID(telemetry.FromMeta(above, meta)); got != traceB {
				t.Errorf("the header's trace became %q", got)
			}
		})
	}
	ctx := telemetry.FromMeta(t.Context(), map[string]any{"traceparent": parentA, "tracestate": long})
	if s := trace.SpanContextFromContext(ctx); s.TraceID().String() != traceA || s.TraceState().Len() != 0 {
		t.Errorf("with a long state the context is %v", s)
	}
}

func TestWithoutAnEndpointNothingIsMade(t *testing.T) {
	for name, c := range map[string]telemetry.Config{"zero": {}, "disabled": {Endpoint: "http://127.0.0.1:1", Disabled: true}} {
		tel := open(t, c)
		ctx, call := tel.StartCall(t.Context(), "execute_code", nil, nil)
		if trace.SpanFromContext(ctx).IsRecording() {
			t.Errorf("%s: a span is recorded", name)
		}
		call.End(ctx, "", "", nil)
		w := httptest.NewRecorder()
		if tel.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil)); w.Code != http.StatusNotFound {
			t.Errorf("%s: the metrics answer %d", name, w.Code)
		}
	}
	var none *telemetry.Telemetry
	none.Rejected(t.Context(), "x")
	none.Execution(t.Context(), telemetry.Execution{})
	if err := none.Close(); err != nil {
		t.Error(err)
	}
}

func TestAnEndpointThatIsNoneIsAFaultThatRepeatsNoPassword(t *testing.T) {
	for _, e := range []string{"localhost:4318", "grpc://127.0.0.1", "http://user:hunter2@127.0.0.1", "http://", "http://[::1"} {
		_, err := telemetry.Open(t.Context(), telemetry.Config{Endpoint: e})
		switch f := fault.Of(err); {
		case err == nil:
			t.Errorf("%s: no error, want one", e)
		case f.Kind != fault.Invalid:
			t.Errorf("%s: f.Kind = %v, want %v", e, f.Kind, fault.Invalid)
		case f.Hint == "":
			t.Errorf("%s: f.Hint is empty, want a text", e)
		case strings.Contains(f.Message+f.Hint, "hunter2"):
			t.Errorf(`%s: f.Message + f.Hint = %q, want no "hunter2" in it`, e, f.Message+f.Hint)
		}
	}
}

// A collector that takes connections and answers nobody must not hold calls up.
func TestACollectorThatHangsCostsNoCallAnything(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tel := open(t, telemetry.Config{Endpoint: "http://" + l.Addr().String()})
	for range 10_000 { // more than the queue holds
		ctx, call := tel.StartCall(t.Context(), "execute_code", nil, nil)
		call.End(ctx, "", "", nil)
	}
	if err := tel.Close(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("closing says %v", err)
	}
}

func TestACollectorThatIsNotThereIsLoggedOnce(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	var log bytes.Buffer
	tel := open(t, telemetry.Config{Endpoint: gone.URL, Log: telemetry.NewLogger(&log, slog.LevelWarn, false)})
	_, call := tel.StartCall(t.Context(), "execute_code", nil, nil)
	call.End(t.Context(), "", "", nil)
	_ = tel.Close()
	if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "telemetry could not be sent") {
		t.Errorf("the log is\n%s", &log)
	}
}

// scrape gives what Prometheus reads.
func scrape(t *testing.T, tel *telemetry.Telemetry) string {
	t.Helper()
	w := httptest.NewRecorder()
	tel.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("scraping gives %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestMetricsAsPrometheusReadsThem(t *testing.T) {
	tel := open(t, telemetry.Config{Scrape: true, Version: "7"})
	if err := tel.Observe(func() telemetry.Live {
		return telemetry.Live{Sessions: 3, Interpreters: 2, Running: 1, Queued: 4, MemoryBytes: 5, DiskBytes: 6, Pooled: 7, PoolHits: 8, PoolMisses: 9}
	}); err != nil {
		t.Fatal(err)
	}
	tel.Execution(t.Context(), telemetry.Execution{
		Language: "python", Isolation: "wasm", Engine: "native", Outcome: "success",
		Queue: time.Millisecond, Start: time.Millisecond, Run: time.Second, CPU: time.Second, Fuel: 9,
	})
	tel.Execution(t.Context(), telemetry.Execution{Language: "python", Isolation: "wasm", Outcome: "error"})
	tel.Rejected(t.Context(), "requests")
	tel.AuditFailed(t.Context())
	ctx, call := tel.StartCall(t.Context(), "execute_code", nil, nil)
	call.End(ctx, "", "", fault.New(fault.Denied, "no"))
	tel.Request(t.Context(), "GET", "/v1/", 200, time.Second)
	tel.Request(t.Context(), "BREW", "other", 405, time.Second)
	text := scrape(t, tel)
	for _, want := range []string{
		`paddock_executions_total{engine="native",isolation="wasm",language="python",outcome="success"} 1`,
		`paddock_executions_total{engine="none",isolation="wasm",language="python",outcome="error"} 1`,
		`paddock_execution_run_duration_seconds_bucket{isolation="wasm",language="python",le="1"} 2`,
		`paddock_execution_start_duration_seconds_count{isolation="wasm",language="python"} 1`,
		`paddock_execution_queue_duration_seconds_count{isolation="wasm",language="python"} 2`,
		`paddock_cpu_time_seconds_total{isolation="wasm",language="python"} 1`,
		`paddock_fuel_total{isolation="wasm",language="python"} 9`,
		`paddock_sessions 3`, `paddock_interpreters 2`, `paddock_executions_running 1`, `paddock_executions_queued 4`,
		`paddock_pool_ready 7`, `paddock_pool_sessions_total{result="hit"} 8`, `paddock_pool_sessions_total{result="miss"} 9`,
		`paddock_interpreters_memory_bytes 5`, `paddock_sessions_disk_bytes 6`,
		`paddock_rejections_total{limit="requests"} 1`, `paddock_audit_failures_total 1`,
		`http_server_request_duration_seconds_count{http_request_method="GET",http_response_status_code="200",http_route="/v1/"} 1`,
		`http_request_method="_OTHER"`,
		`mcp_server_operation_duration_seconds_count{error_type="denied",gen_ai_tool_name="execute_code",mcp_method_name="tools/call"} 1`,
		`version="7"`, "go_goroutines ", "process_start_time_seconds ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in\n%s", want, text)
		}
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("the linter says %v, %v", problems, err)
	}
}

func TestALabelHasFewValues(t *testing.T) {
	tel := open(t, telemetry.Config{Scrape: true})
	for i := range 10_000 {
		tel.Rejected(t.Context(), strings.Repeat("x", i%200+1)+string(rune('a'+i%26)))
	}
	if n := strings.Count(scrape(t, tel), "paddock_rejections_total{"); n > 40 {
		t.Errorf("the label has %d values", n)
	}
}

func TestARequestBelongsToTheTraceOfItsHeaders(t *testing.T) {
	server := httptest.NewServer(telemetry.Joined(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trace", telemetry.TraceID(r.Context()))
	})))
	defer server.Close()
	req, _ := http.NewRequestWithContext(t.Context(), "GET", server.URL, nil)
	req.Header.Set("traceparent", parentA)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.Header.Get("Trace") != traceA {
		t.Errorf("it is in the trace %q", res.Header.Get("Trace"))
	}
}

// BenchmarkObservation tells what observing costs beside a run in the fake,
// the fastest there is: the time of a call's spans and metrics over that of the
// call, in one run.
func BenchmarkObservation(b *testing.B) {
	m := manager(b, session.Config{})
	if _, err := m.Create(b.Context(), "alice", "s", session.Settings{}); err != nil {
		b.Fatal(err)
	}
	for name, c := range map[string]telemetry.Config{"off": {}, "metrics": {Scrape: true}} {
		b.Run(name, func(b *testing.B) {
			tel := open(b, c)
			var bare, observing time.Duration
			for b.Loop() {
				began := time.Now()
				if _, err := m.Execute(b.Context(), "alice", "s", session.Request{Code: "1"}); err != nil {
					b.Fatal(err)
				}
				bare += time.Since(began)
				began = time.Now()
				ctx, call := tel.StartCall(b.Context(), "execute_code", nil, nil)
				for _, name := range []string{"session.queue", "sandbox.start", "sandbox.run", "checkpoint"} {
					_, span := tel.Tracer().Start(ctx, name)
					span.End()
				}
				tel.Execution(ctx, telemetry.Execution{Language: "python", Isolation: "wasm", Engine: "native", Outcome: "success", Run: bare})
				call.End(ctx, "s", "x", nil)
				observing += time.Since(began)
			}
			b.ReportMetric(float64(observing)/float64(bare), "observing/call")
			b.ReportMetric(float64(observing.Nanoseconds())/float64(b.N), "observing-ns/op")
		})
	}
}
