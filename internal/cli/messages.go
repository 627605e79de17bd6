package cli

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"paddock/internal/telemetry"
)

// newLog makes the log of a command. Servers have one of lines, and so has whoever asks for
// it by logging.level; everyone else reads warnings as messages among the others.
func (cl *cli) newLog(c *cobra.Command) *slog.Logger {
	served := c.Name() == "mcp" || c.Name() == "serve"
	if served || cl.Config.IsSet("logging.level") || cl.Config.Logging.Structured {
		return telemetry.NewLogger(cl.stderr, cl.Config.Logging.Level, cl.Config.Logging.Structured)
	}
	return slog.New(&messages{cl: cl})
}

// messages is a [slog.Handler] that says to a person what is logged as a warning or an error.
type messages struct {
	cl    *cli
	attrs []slog.Attr
}

// Enabled implements [slog.Handler].
func (*messages) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle implements [slog.Handler]. A cause follows the message, what else is known is in
// parentheses.
func (m *messages) Handle(_ context.Context, r slog.Record) error {
	kind, text := "warning", r.Message
	if r.Level >= slog.LevelError {
		kind = "error"
	}
	var known []string
	add := func(a slog.Attr) bool {
		switch value := a.Value.Resolve().String(); {
		case value == "":
		case a.Key == "cause" || a.Key == "error":
			text += ": " + value
		default:
			known = append(known, a.Key+" "+value)
		}
		return true
	}
	for _, a := range m.attrs {
		add(a)
	}
	r.Attrs(add)
	if len(known) > 0 {
		text += fmt.Sprintf(" (%s)", strings.Join(known, ", "))
	}
	m.cl.say(kind, text)
	return nil
}

// WithAttrs implements [slog.Handler].
func (m *messages) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &messages{cl: m.cl, attrs: append(m.attrs[:len(m.attrs):len(m.attrs)], attrs...)}
}

// WithGroup implements [slog.Handler]; people need no groups.
func (m *messages) WithGroup(string) slog.Handler { return m }
