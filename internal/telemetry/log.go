package telemetry

import (
	"bytes"
	"context"
	"io"
	"log/slog"

	"go.opentelemetry.io/otel/trace"

	"paddock/internal/auth"
	"paddock/internal/textsafe"
)

// ids are what a request is known by.
type ids struct{ request, client, session, execution string }

type idsKey struct{}

func idsOf(ctx context.Context) ids {
	all, _ := ctx.Value(idsKey{}).(ids)
	return all
}

func with(ctx context.Context, change func(*ids)) context.Context {
	all := idsOf(ctx)
	change(&all)
	return context.WithValue(ctx, idsKey{}, all)
}

// WithRequestID gives a context of the request id.
func WithRequestID(ctx context.Context, id string) context.Context {
	return with(ctx, func(all *ids) { all.request = id })
}

// RequestID gives the request's id; empty: it has none.
func RequestID(ctx context.Context) string { return idsOf(ctx).request }

// WithClient gives a context of a request of the client that calls itself name.
func WithClient(ctx context.Context, name string) context.Context {
	return with(ctx, func(all *ids) { all.client = name })
}

// Client gives what the request's client calls itself; empty: it did not say.
func Client(ctx context.Context) string { return idsOf(ctx).client }

// WithSession gives a context of a request about a session and, unless empty,
// one execution in it.
func WithSession(ctx context.Context, session, execution string) context.Context {
	return with(ctx, func(all *ids) { all.session, all.execution = session, execution })
}

// NewLogger makes the process's log: a line for each record on w, as JSON when
// structured, from level on. Lines that are logged with a context say which
// request, principal, session, execution and trace they belong to. Nothing in
// a line can end it or steer a terminal: what does not print is escaped.
func NewLogger(w io.Writer, level slog.Leveler, structured bool) *slog.Logger {
	options, lines := &slog.HandlerOptions{Level: level}, lineWriter{w}
	if structured {
		return slog.New(handler{Handler: slog.NewJSONHandler(lines, options)})
	}
	return slog.New(handler{Handler: slog.NewTextHandler(lines, options)})
}

// handler adds what the context knows to each record that does not say it
// itself.
type handler struct {
	slog.Handler
	set map[string]bool // what WithAttrs has said
}

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	all := idsOf(ctx)
	add := []struct{ key, value string }{{"request_id", all.request}, {"session", all.session}, {"execution", all.execution}}
	if p := auth.From(ctx); p != nil {
		add = append(add, struct{ key, value string }{"principal", p.ID})
	}
	if s := trace.SpanContextFromContext(ctx); s.IsValid() {
		add = append(add, struct{ key, value string }{"trace_id", s.TraceID().String()}, struct{ key, value string }{"span_id", s.SpanID().String()})
	}
	copied := false
	for _, a := range add {
		if a.value == "" || h.set[a.key] || says(r, a.key) {
			continue
		}
		if !copied {
			r, copied = r.Clone(), true
		}
		r.AddAttrs(slog.String(a.key, a.value))
	}
	return h.Handler.Handle(ctx, r)
}

func says(r slog.Record, key string) (found bool) {
	r.Attrs(func(a slog.Attr) bool {
		found = a.Key == key
		return !found
	})
	return found
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	set := make(map[string]bool, len(h.set)+len(attrs))
	for k := range h.set {
		set[k] = true
	}
	for _, a := range attrs {
		set[a.Key] = true
	}
	return handler{Handler: h.Handler.WithAttrs(attrs), set: set}
}

func (h handler) WithGroup(name string) slog.Handler {
	return handler{Handler: h.Handler.WithGroup(name), set: h.set}
}

// lineWriter passes lines on, each with its own Write.
type lineWriter struct{ to io.Writer }

func (w lineWriter) Write(line []byte) (int, error) {
	body, _ := bytes.CutSuffix(line, []byte("\n"))
	shown := textsafe.EscapeBytes(body)
	if len(shown) == len(body) {
		return w.to.Write(line)
	}
	if _, err := w.to.Write(append(shown, '\n')); err != nil {
		return 0, err
	}
	return len(line), nil
}
