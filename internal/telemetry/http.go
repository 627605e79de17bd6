package telemetry

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
)

// scrapeTime and maxScrapes bound what scraping may cost.
const (
	scrapeTime = 10 * time.Second
	maxScrapes = 4
)

// Handler shows the metrics to Prometheus. Without Config.Scrape there are
// none. Whoever mounts it decides who may look.
func (t *Telemetry) Handler() http.Handler {
	if t == nil || t.registry == nil {
		return http.NotFoundHandler()
	}
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes, Timeout: scrapeTime})
}

// methods are those that have a label of their own.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}

// Joined is around a handler: a request belongs to the trace that its headers
// name.
func Joined(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ctx := FromHeader(r.Context(), r.Header); ctx != r.Context() {
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}

// Request counts an HTTP request that has been answered. pattern is the route's,
// never a path that somebody asked for.
func (t *Telemetry) Request(ctx context.Context, method, pattern string, code int, took time.Duration) {
	if t == nil || t.metrics == nil {
		return
	}
	if !slices.Contains(methods, method) {
		method = "_OTHER"
	}
	t.metrics.requests.Record(ctx, took.Seconds(), t.metrics.known(requestLabels{method, pattern, code}, func() []attribute.KeyValue {
		return []attribute.KeyValue{
			attribute.String("http.request.method", method), t.metrics.words.label("http.route", pattern), attribute.Int("http.response.status_code", code),
		}
	}))
}
