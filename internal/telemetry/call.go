package telemetry

import (
	"context"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"paddock/internal/fault"
)

// toolsCall is the method of a tool call, and methodName its attribute's name
// in OpenTelemetry's conventions for MCP.
const (
	toolsCall  = "tools/call"
	methodName = "mcp.method.name"
	toolName   = "gen_ai.tool.name"
	errorType  = "error.type"
)

// Call is a tool call under way.
type Call struct {
	t     *Telemetry
	tool  string
	span  trace.Span
	began time.Time
}

// StartCall begins the span of a call of one of paddock's tools. It becomes a
// part of the trace that the request's _meta names, else of ctx's, else of the
// one that the HTTP request's header names. The caller ends it.
func (t *Telemetry) StartCall(ctx context.Context, tool string, header http.Header, meta map[string]any) (context.Context, *Call) {
	if TraceID(ctx) == "" {
		ctx = FromHeader(ctx, header)
	}
	ctx = FromMeta(ctx, meta)
	c := &Call{t: t, tool: tool, began: time.Now()}
	ctx, c.span = t.Tracer().Start(ctx, toolsCall+" "+tool, trace.WithSpanKind(trace.SpanKindServer))
	if c.span.IsRecording() {
		c.span.SetAttributes(attribute.String(methodName, toolsCall), attribute.String(toolName, tool), attribute.String("gen_ai.operation.name", "execute_tool"))
	}
	return ctx, c
}

// End ends the call. session and execution are what it turned out to be about,
// if anything; err is what the caller got in place of a result.
func (c *Call) End(ctx context.Context, session, execution string, err error) {
	outcome := "success"
	if err != nil {
		outcome = string(fault.KindOf(err))
	}
	if c.span.IsRecording() {
		c.span.SetAttributes(attribute.String("paddock.outcome", outcome))
		if session != "" {
			c.span.SetAttributes(attribute.String("paddock.session.id", session))
		}
		if execution != "" {
			c.span.SetAttributes(attribute.String("paddock.execution.id", execution))
		}
		if err != nil {
			c.span.SetAttributes(attribute.String(errorType, outcome))
			c.span.SetStatus(codes.Error, outcome)
		}
	}
	c.span.End()
	if c.t == nil || c.t.metrics == nil {
		return
	}
	if err == nil {
		outcome = ""
	}
	c.t.metrics.calls.Record(ctx, time.Since(c.began).Seconds(), c.t.metrics.known(callLabels{c.tool, outcome}, func() []attribute.KeyValue {
		labels := []attribute.KeyValue{attribute.String(methodName, toolsCall), c.t.metrics.words.label(toolName, c.tool)}
		if outcome != "" {
			labels = append(labels, c.t.metrics.words.label(errorType, outcome))
		}
		return labels
	}))
}

// callLabels and requestLabels are what sets of labels are known by.
type (
	callLabels    struct{ tool, failed string }
	requestLabels struct {
		method, pattern string
		code            int
	}
)
