package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"paddock/internal/audit"
)

func TestMCPRecordsAndTracesItsCalls(t *testing.T) {
	var mu sync.Mutex
	sent := map[string]string{}
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		sent[r.URL.Path] += string(body)
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	c := startMCP(t)
	const parent = "0af7651916cd43dd8448eb211c80319c"
	c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":"print('a secret')"},"_meta":{"traceparent":"00-` + parent + `-b7ad6b7169203331-01"}}}`)
	if answer := c.receive(); !strings.Contains(answer, "a secret") {
		t.Errorf("it answered %s", answer)
	}
	c.stdin.Close()
	c.ends()
	var all []audit.Record
	for r, err := range audit.Read(filepath.Join(stateOf(t, c), "audit"), audit.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	if len(all) != 3 {
		t.Fatalf("there are %d records, want 3: %+v", len(all), all)
	}
	if all[1].Phase != audit.Begin {
		t.Errorf("the second record's phase is %q, want %q", all[1].Phase, audit.Begin)
	}
	if all[2].Phase != audit.End {
		t.Errorf("the third record's phase is %q, want %q", all[2].Phase, audit.End)
	}
	if all[2].Usage == nil {
		t.Error("the third record says nothing of what the run used")
	}
	for _, r := range all {
		got := []string{r.Transport, r.Client, r.Principal, r.TraceID}
		if want := []string{"stdio", "t", "local", parent}; !slices.Equal(got, want) {
			t.Errorf("transport, client, principal and trace of a record are %q, want %q", got, want)
		}
		if r.Session == "" {
			t.Errorf("the record %+v has no session", r)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for path, wants := range map[string][]string{
		"/v1/traces":  {"tools/call execute_code", "session.queue", "sandbox.start", "sandbox.run", "checkpoint", all[1].Execution},
		"/v1/metrics": {"paddock.executions", "mcp.server.operation.duration", "paddock.sessions"},
	} {
		for _, want := range wants {
			if !strings.Contains(sent[path], want) {
				t.Errorf("%s is not in what was sent to %s", want, path)
			}
		}
		if strings.Contains(sent[path], "a secret") {
			t.Errorf("what was sent to %s holds code", path)
		}
	}
}

// stateOf is the state folder of a paddock of the tests.
func stateOf(t *testing.T, c *client) string {
	t.Helper()
	for _, e := range c.cmd.Env {
		if dir, ok := strings.CutPrefix(e, "PADDOCK_STATE_DIR="); ok {
			return dir
		}
	}
	t.Fatal("it has no state folder")
	return ""
}
