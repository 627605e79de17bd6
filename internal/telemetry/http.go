package telemetry

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
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

// Route is around the handler of one route: the request's context belongs to
// the trace that its headers name, and the request is counted. pattern is the
// route as it is registered, never a path that somebody asked for.
func (t *Telemetry) Route(pattern string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ctx := FromHeader(r.Context(), r.Header); ctx != r.Context() {
			r = r.WithContext(ctx)
		}
		if t == nil || t.metrics == nil {
			next.ServeHTTP(w, r)
			return
		}
		began := time.Now()
		s := &status{ResponseWriter: w}
		defer func() { t.Request(r.Context(), r.Method, pattern, cmp.Or(s.code, http.StatusOK), time.Since(began)) }() // after a panic too
		next.ServeHTTP(s, r)
	})
}

// Request counts an HTTP request that has been answered, for whom Route does
// not fit. pattern is the route's, never a path that somebody asked for.
func (t *Telemetry) Request(ctx context.Context, method, pattern string, code int, took time.Duration) {
	if t == nil || t.metrics == nil {
		return
	}
	if !slices.Contains(methods, method) {
		method = "_OTHER"
	}
	t.metrics.requests.Record(ctx, took.Seconds(), metric.WithAttributes(
		attribute.String("http.request.method", method), t.metrics.words.label("http.route", pattern), attribute.Int("http.response.status_code", code)))
}

// status remembers how a request was answered.
type status struct {
	http.ResponseWriter
	code int
}

// Unwrap is for http.ResponseController.
func (s *status) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *status) WriteHeader(code int) {
	if s.code == 0 && code >= http.StatusOK { // those below announce another
		s.code = code
	}
	s.ResponseWriter.WriteHeader(code)
}

func (s *status) Write(p []byte) (int, error) {
	s.answered()
	return s.ResponseWriter.Write(p)
}

// ReadFrom lets files take the short way into the connection.
func (s *status) ReadFrom(r io.Reader) (int64, error) {
	s.answered()
	return io.Copy(s.ResponseWriter, r)
}

// Flush is for those who do not use http.ResponseController.
func (s *status) Flush() {
	s.answered()
	_ = http.NewResponseController(s.ResponseWriter).Flush() // where it cannot be, nobody can be told
}

func (s *status) answered() {
	if s.code == 0 {
		s.code = http.StatusOK
	}
}
