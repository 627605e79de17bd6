package transport

import (
	"context"
	"log/slog"
	"slices"
)

// SDKLog is the logger for the SDK: its chatter is kept out of the log.
func SDKLog(log *slog.Logger) *slog.Logger { return slog.New(ofSDK{log.Handler()}) }

// ofSDK keeps the SDK's chatter out of the log, and a client's mistakes too
// unless everything is logged.
type ofSDK struct{ slog.Handler }

// clientMistakes are what the SDK calls errors and a client can bring about.
var clientMistakes = []string{
	"method invalid during initialization", "initialized before initialize", "duplicate initialized notification",
	"duplicate initialize request", "method removed in the new protocol",
}

func (h ofSDK) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelError && h.Handler.Enabled(ctx, l)
}

func (h ofSDK) Handle(ctx context.Context, r slog.Record) error {
	if slices.Contains(clientMistakes, r.Message) {
		if !h.Handler.Enabled(ctx, slog.LevelDebug) {
			return nil
		}
		r.Level = slog.LevelDebug
	}
	return h.Handler.Handle(ctx, r)
}
