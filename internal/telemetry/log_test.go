package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"unicode"

	"paddock/internal/auth"
	"paddock/internal/telemetry"
	"paddock/internal/textsafe"
)

// hostile is what somebody may call a session, a tool, a file.
var hostile = map[string]string{
	"a line's end":            "x\nlevel=ERROR msg=forged",
	"a carriage return":       "x\rlevel=ERROR msg=forged",
	"a JSON record":           "x\"}\n{\"level\":\"ERROR\",\"msg\":\"forged\"}",
	"an escape sequence":      "\x1b[2J\x1b[31mforged",
	"C1 controls":             "\u009b2Jforged\u0085\u0090",
	"text that turns round":   "\u202eforged\u2066",
	"line separators":         "x\u2028forged\u2029",
	"backspaces and a delete": "x\b\b\x7fforged",
	"a NUL":                   "x\x00forged",
	"what is not UTF-8":       "x\xff\xfe\x9bforged",
	"a character beyond":      "x\U000e0001forged",
	"characters of no ink":    "x \u3164\u2800\ufe0f\u034fforged",
}

// valuer, an error and a text are other ways for the same.
type text string

func (s text) MarshalText() ([]byte, error) { return []byte(s), nil }

func TestNoValueForgesALine(t *testing.T) {
	for name, s := range hostile {
		for _, structured := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, structured %v", name, structured), func(t *testing.T) {
				var out bytes.Buffer
				log := telemetry.NewLogger(&out, slog.LevelDebug, structured)
				ctx := auth.With(telemetry.WithSession(telemetry.WithRequestID(t.Context(), s), s, s), &auth.Principal{ID: s})
				log.With(s, s).WithGroup("g").InfoContext(ctx, s, s, s, "error", errors.New(s), "text", text(s), "any", map[string]string{s: s}, "group", slog.GroupValue(slog.String(s, s)))
				line, ok := strings.CutSuffix(out.String(), "\n")
				if !ok || strings.ContainsFunc(line, func(r rune) bool { return !textsafe.Visible(r) || r == unicode.ReplacementChar && !structured }) {
					t.Errorf("the line is %q", out.String())
				}
				var decoded map[string]any
				if err := json.Unmarshal(out.Bytes(), &decoded); structured && (err != nil || decoded["level"] != "INFO") {
					t.Errorf("%v: the line is %s", err, line)
				}
				if !structured && !strings.Contains(line, "level=INFO msg=\"") {
					t.Errorf("the line is %s", line)
				}
			})
		}
	}
}

func TestAStructuredLineKeepsWhatItSays(t *testing.T) {
	for name, s := range hostile {
		var out bytes.Buffer
		telemetry.NewLogger(&out, slog.LevelInfo, true).Info("m", "value", s)
		var line struct{ Value string }
		if err := json.Unmarshal(out.Bytes(), &line); err != nil || line.Value != strings.ToValidUTF8(s, "\ufffd") && name != "what is not UTF-8" {
			t.Errorf("%s: %q came back as %q, %v", name, s, line.Value, err)
		}
	}
}

func TestALineSaysWhoseRequestItIs(t *testing.T) {
	ctx := telemetry.WithRequestID(t.Context(), "r-1")
	ctx = telemetry.WithClient(telemetry.WithSession(ctx, "s-1", "x-1"), "inspector")
	ctx = auth.With(ctx, &auth.Principal{ID: "token:1", Name: "ci"})
	ctx = telemetry.FromMeta(ctx, map[string]any{"traceparent": parentA})
	if telemetry.RequestID(ctx) != "r-1" || telemetry.Client(ctx) != "inspector" {
		t.Errorf("the context says %q, %q", telemetry.RequestID(ctx), telemetry.Client(ctx))
	}
	for _, test := range []struct {
		name string
		log  func(*slog.Logger, context.Context)
		want string
	}{
		{"all that the context knows", func(l *slog.Logger, ctx context.Context) { l.InfoContext(ctx, "m", "a", 1) },
			"level=INFO msg=m a=1 request_id=r-1 session=s-1 execution=x-1 principal=token:1 trace_id=" + traceA + " span_id=" + spanA},
		{"not what the record says itself", func(l *slog.Logger, ctx context.Context) { l.InfoContext(ctx, "m", "session", "s-2") },
			"level=INFO msg=m session=s-2 request_id=r-1 execution=x-1 principal=token:1 trace_id=" + traceA + " span_id=" + spanA},
		{"not what the logger says", func(l *slog.Logger, ctx context.Context) {
			l.With("request_id", "r-2", "execution", "x-2").InfoContext(ctx, "m")
		}, "level=INFO msg=m request_id=r-2 execution=x-2 session=s-1 principal=token:1 trace_id=" + traceA + " span_id=" + spanA},
		{"nothing without a context", func(l *slog.Logger, _ context.Context) { l.Info("m") }, "level=INFO msg=m"},
	} {
		var out bytes.Buffer
		test.log(telemetry.NewLogger(&out, slog.LevelInfo, false), ctx)
		if _, got, _ := strings.Cut(strings.TrimSpace(out.String()), " "); got != test.want {
			t.Errorf("%s:\n%s\nwant\n%s", test.name, got, test.want)
		}
	}
}
