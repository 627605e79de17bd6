package telemetry

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// carried are the W3C names that tell of a trace that a request belongs to.
// MCP reserves them in a request's _meta.
var carried = [...]string{"traceparent", "tracestate", "baggage"}

// maxCarried bounds each; what is longer is ignored.
const maxCarried = 8 << 10

// w3c takes what is right of them. What is not leaves the context as it was.
var w3c = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})

// FromHeader gives a context that belongs to the trace that an HTTP request's
// headers name, if they do.
func FromHeader(ctx context.Context, h http.Header) context.Context {
	carrier := propagation.MapCarrier{}
	for _, name := range carried {
		for _, v := range h.Values(name) {
			if carrier[name] != "" {
				carrier[name] += ","
			}
			carrier[name] += v
		}
	}
	return extract(ctx, carrier)
}

// FromMeta gives a context that belongs to the trace that a request's _meta
// names; one that ctx belonged to counts no more.
func FromMeta(ctx context.Context, meta map[string]any) context.Context {
	carrier := propagation.MapCarrier{}
	for _, name := range carried {
		if s, ok := meta[name].(string); ok {
			carrier[name] = s
		}
	}
	return extract(ctx, carrier)
}

func extract(ctx context.Context, c propagation.MapCarrier) context.Context {
	for name, v := range c {
		if len(v) > maxCarried {
			delete(c, name)
		}
	}
	if len(c) == 0 {
		return ctx
	}
	return w3c.Extract(ctx, c)
}

// TraceID gives the id of the trace that ctx belongs to; empty: none.
func TraceID(ctx context.Context) string {
	if s := trace.SpanContextFromContext(ctx); s.HasTraceID() {
		return s.TraceID().String()
	}
	return ""
}
