package image

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote"

	"paddock/internal/fault"
	"paddock/internal/localhost"
)

// maxRedirects bounds where a registry may send us on, one after the other.
const maxRedirects = 10

// guard lets requests out that may go: with TLS, or without to loopback addresses
// and to registries that are named for it, wherever a redirect or a token's realm
// points. It ends those that nothing comes of.
type guard struct {
	inner    http.RoundTripper
	insecure []string
	stall    time.Duration
}

func (s *Store) guard() *guard {
	inner := s.config.Transport
	if inner == nil {
		inner = remote.DefaultTransport
	}
	return &guard{inner: inner, insecure: s.config.Insecure, stall: s.config.stall}
}

// RoundTrip implements [http.RoundTripper].
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" && !g.mayBePlain(r.URL.Host) {
		return nil, fault.New(fault.Denied, "the registry redirects to plain HTTP at %s", r.URL.Host).
			WithHint("if its network is to be trusted, name it in registries.insecure")
	}
	n := 0
	for via := r.Response; via != nil; via = via.Request.Response {
		if n++; n > maxRedirects {
			return nil, fault.New(fault.Unavailable, "the registry sends us on and on").WithHint("tell who runs it")
		}
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	timer := time.AfterFunc(g.stall, func() { cancel(errStalled) })
	resp, err := g.inner.RoundTrip(r.WithContext(ctx))
	if err != nil {
		timer.Stop()
		defer cancel(nil)
		if context.Cause(ctx) == errStalled {
			return nil, errStalled
		}
		return nil, err
	}
	resp.Body = &patient{in: resp.Body, ctx: ctx, cancel: cancel, timer: timer, stall: g.stall}
	return resp, nil
}

// errStalled ends a request of which nothing comes.
var errStalled = fault.New(fault.Unavailable, "nothing came from the registry for too long").WithHint("try again: layers that are whole are kept")

// mayBePlain tells whether a host may be spoken to without TLS.
func (g *guard) mayBePlain(host string) bool {
	if slices.Contains(g.insecure, host) {
		return true
	}
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return localhost.Is(host)
}

// patient is a body that has to bring something from time to time.
type patient struct {
	in     io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	stall  time.Duration
}

// Read implements [io.Reader].
func (p *patient) Read(b []byte) (int, error) {
	n, err := p.in.Read(b)
	if n > 0 {
		p.timer.Reset(p.stall)
	}
	if err != nil && err != io.EOF && context.Cause(p.ctx) == errStalled {
		err = errStalled
	}
	return n, err
}

// Close implements [io.Closer].
func (p *patient) Close() error {
	p.timer.Stop()
	p.cancel(nil) // first, so that a Read that waits ends
	return p.in.Close()
}
