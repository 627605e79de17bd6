package web

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/netip"
	"strings"

	"paddock/internal/textsafe"
)

type senderKey struct{}

// RequestID gives the id of the request that ctx belongs to; empty: none.
func RequestID(ctx context.Context) string {
	if from, ok := ctx.Value(senderKey{}).(*sender); ok {
		return from.id
	}
	return ""
}

// ClientAddr gives the address that the request of ctx comes from, as far as
// trusted proxies tell; the zero Addr: not known.
func ClientAddr(ctx context.Context) netip.Addr {
	if from, ok := ctx.Value(senderKey{}).(*sender); ok {
		return from.client
	}
	return netip.Addr{}
}

// BaseURL gives scheme://host[:port] that the client of ctx's request calls
// this server by, which has been checked; empty: not known.
func BaseURL(ctx context.Context) string {
	if from, ok := ctx.Value(senderKey{}).(*sender); ok {
		return from.base
	}
	return ""
}

// Attr is the request's id for a line of the log.
func Attr(ctx context.Context) slog.Attr { return slog.String("request_id", RequestID(ctx)) }

func newID() string { return strings.ToLower(rand.Text()) }

// saneID reports whether a proxy's request id may go into logs and headers.
func saneID(id string) bool {
	return id != "" && len(id) <= 128 && strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == ""
}

// printable makes a stranger's text fit for a line of a log or a terminal.
func printable(s string) string { return textsafe.Mask(textsafe.Shorten(s, 200)) }
