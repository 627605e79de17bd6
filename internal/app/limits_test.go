package app

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/limit"
	"paddock/internal/telemetry"
)

func TestAnExecutionThatALimitKeepsOutIsCounted(t *testing.T) {
	metrics, err := telemetry.Open(t.Context(), telemetry.Config{Scrape: true})
	if err != nil {
		t.Fatal(err)
	}
	defer metrics.Close()
	gate, err := limit.New(limit.Config{Executions: 1, TotalExecutions: 4, Queue: 1, TotalQueue: 1})
	if err != nil {
		t.Fatal(err)
	}
	a := &base{telemetry: metrics, gate: gate}
	release, err := a.admitRun(t.Context(), "alice")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	waiting, cancel := context.WithCancel(t.Context())
	waited := make(chan error, 1)
	go func() {
		_, err := a.admitRun(waiting, "alice")
		waited <- err
	}()
	for gate.Load().Waiting == 0 {
		time.Sleep(time.Millisecond)
	}
	if _, err := a.admitRun(t.Context(), "alice"); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("one too many: %v, want %s", err, fault.Exhausted)
	}
	cancel() // a caller that goes away was not kept out
	if err := <-waited; fault.KindOf(err) == fault.Exhausted || err == nil {
		t.Errorf("one that was cancelled: %v, want its cancellation", err)
	}
	w := httptest.NewRecorder()
	metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if want := `paddock_rejections_total{limit="executions"} 1`; !strings.Contains(w.Body.String(), want) {
		t.Errorf("the metrics are\n%s\nwant %s among them", w.Body, want)
	}
}
