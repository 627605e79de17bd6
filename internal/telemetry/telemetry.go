// Package telemetry is what an operator sees of paddock while it works:
// traces and metrics over OpenTelemetry, the same metrics for Prometheus to
// scrape, and a log whose lines say which request they belong to.
//
// Every number is one OpenTelemetry instrument. Prometheus reads them through
// the SDK's exporter, so that /metrics and a collector never disagree.
//
// Attributes and labels are paddock's own words (a tool's name, a route's
// pattern, a kind of failure). Code, output, arguments and credentials are
// never among them, and what a client chose is at most in a span. No label has
// more values than a few dozen.
//
// The spans of one tool call:
//
//	tools/call execute_code   the call
//	  session.queue           waiting for the calls before it
//	  sandbox.start           starting an interpreter, where none lived
//	  sandbox.run             the program
//	  checkpoint              comparing the workspace, writing the session's record
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	nooptrace "go.opentelemetry.io/otel/trace/noop"

	"paddock/internal/fault"
)

// scope names this instrumentation.
const scope = "paddock"

const (
	// flushTime bounds how long Close waits for a collector.
	flushTime = 2 * time.Second
	// complainEvery is how often at most a collector's failure is logged.
	complainEvery = time.Minute
)

// Config sets telemetry up. The zero Config is off.
type Config struct {
	// Service and Version are what the process calls itself; empty: "paddock",
	// "dev".
	Service, Version string
	// Endpoint is the collector's base URL for OTLP over HTTP, such as
	// http://127.0.0.1:4318; /v1/traces and /v1/metrics are added. Empty: nothing
	// is sent but what the next two say.
	Endpoint string
	// TracesEndpoint and MetricsEndpoint are whole URLs in place of those that
	// Endpoint gives; empty: those.
	TracesEndpoint, MetricsEndpoint string
	// Disabled sends nothing whatever the endpoints say.
	Disabled bool
	// Scrape gives Handler something to show.
	Scrape bool
	// Log takes, once a minute at most, that a collector cannot be reached; nil:
	// nothing is logged.
	Log *slog.Logger
}

// Telemetry is the process's traces and metrics. All methods are safe for
// concurrent use, and a nil *Telemetry is one that is off.
type Telemetry struct {
	tracer   trace.Tracer
	registry *prometheus.Registry // nil: nothing is scraped
	metrics  *metrics             // nil: nothing is measured
	closers  []func(context.Context) error
	closing  sync.Once
	closed   error
}

var noTracer trace.Tracer = nooptrace.NewTracerProvider().Tracer(scope)

// Open begins to measure and to send. What cannot be sent is dropped: no call
// waits for a collector. Besides Config the exporters obey the variables
// OTEL_EXPORTER_OTLP_HEADERS, …_TIMEOUT, …_COMPRESSION, …_CERTIFICATE,
// OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER, OTEL_BSP_… and
// OTEL_METRIC_EXPORT_INTERVAL. It sets OpenTelemetry's error handler, which is
// the process's: it is called once.
func Open(ctx context.Context, c Config) (*Telemetry, error) {
	t := &Telemetry{tracer: noTracer}
	traces, measures, err := c.endpoints()
	if err != nil {
		return nil, err
	}
	if traces == "" && measures == "" && !c.Scrape {
		return t, nil
	}
	complainTo(c.Log)
	about := c.resource(ctx)
	if traces != "" {
		exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(traces))
		if err != nil {
			return nil, fmt.Errorf("making the exporter of traces: %w", err)
		}
		p := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
		t.tracer, t.closers = p.Tracer(scope), append(t.closers, p.Shutdown)
	}
	options := []sdkmetric.Option{sdkmetric.WithResource(about)}
	if measures != "" {
		exporter, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(measures))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("making the exporter of metrics: %w", err), t.Close())
		}
		options = append(options, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter)))
	}
	if c.Scrape {
		reader, registry, err := newRegistry()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("making the exporter for Prometheus: %w", err), t.Close())
		}
		t.registry, options = registry, append(options, sdkmetric.WithReader(reader))
	}
	if len(options) > 1 {
		p := sdkmetric.NewMeterProvider(options...)
		t.closers = append(t.closers, p.Shutdown)
		if t.metrics, err = newMetrics(p.Meter(scope), c.version()); err != nil {
			return nil, errors.Join(fmt.Errorf("making the metrics: %w", err), t.Close())
		}
	}
	return t, nil
}

// Close sends what is left, for two seconds at most. It works twice; a
// collector that cannot be reached is its error.
func (t *Telemetry) Close() error {
	if t == nil {
		return nil
	}
	t.closing.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), flushTime)
		defer cancel()
		errs := make([]error, len(t.closers))
		var all sync.WaitGroup
		for i, end := range t.closers {
			all.Go(func() { errs[i] = end(ctx) })
		}
		all.Wait()
		t.closed = errors.Join(errs...)
	})
	return t.closed
}

// Tracer gives the tracer for the parts below; never nil.
func (t *Telemetry) Tracer() trace.Tracer {
	if t == nil {
		return noTracer
	}
	return t.tracer
}

// Meter gives a meter for a part that has its own numbers. It measures nothing
// where telemetry is off.
func (t *Telemetry) Meter() metric.Meter {
	if t == nil || t.metrics == nil {
		return noopmetric.Meter{}
	}
	return t.metrics.meter
}

// endpoints gives the whole URLs to send to; empty: nowhere.
func (c *Config) endpoints() (traces, metrics string, err error) {
	if c.Disabled {
		return "", "", nil
	}
	traces, metrics = c.TracesEndpoint, c.MetricsEndpoint
	if c.Endpoint != "" {
		base := strings.TrimRight(c.Endpoint, "/")
		if traces == "" {
			traces = base + "/v1/traces"
		}
		if metrics == "" {
			metrics = base + "/v1/metrics"
		}
	}
	for _, e := range []string{traces, metrics} {
		if u, parsed := url.Parse(e); e != "" && (parsed != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil) {
			// The URL itself is left out: it may hold a password.
			return "", "", fault.New(fault.Invalid, "the endpoint for telemetry is not an http or https URL without a user").
				WithHint("write it like http://127.0.0.1:4318; credentials go into OTEL_EXPORTER_OTLP_HEADERS")
		}
	}
	return traces, metrics, nil
}

func (c *Config) version() string {
	if c.Version == "" {
		return "dev"
	}
	return c.Version
}

// resource says who sends. What the environment says of it counts unless
// Config says otherwise.
func (c *Config) resource(ctx context.Context) *resource.Resource {
	service := c.Service
	if service == "" {
		service = "paddock"
	}
	r, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithFromEnv(),
		resource.WithAttributes(attribute.String("service.name", service), attribute.String("service.version", c.version())))
	if err != nil {
		otel.Handle(err) // what was right of the environment is in r
	}
	return r
}

// complainTo has the SDK's failures logged, seldom.
func complainTo(log *slog.Logger) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	otel.SetLogger(logr.FromSlogHandler(log.Handler()))
	var mu sync.Mutex
	var last time.Time
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(last) < complainEvery {
			return
		}
		last = time.Now()
		log.Warn("telemetry could not be sent", "cause", err)
	}))
}
