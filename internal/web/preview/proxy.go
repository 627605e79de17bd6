package preview

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"

	"paddock/internal/fault"
	"paddock/internal/web"
)

// visit is a request that was let in.
type visit struct {
	ctx     context.Context // the request's
	preview Preview
	lane    *limiter
}

type visitKey struct{}

func visitOf(ctx context.Context) *visit { return ctx.Value(visitKey{}).(*visit) }

// maxAnswerHeader bounds the headers of a program's answer, in bytes.
const maxAnswerHeader = 64 << 10

// proxy passes requests on to the sessions' programs, each over a connection of its own:
// what a program sends beyond its answer is read by nobody.
func (h *Handler) proxy() http.Handler {
	transport := &http.Transport{
		DialContext: h.dial, DisableKeepAlives: true, DisableCompression: true,
		MaxResponseHeaderBytes: maxAnswerHeader, ResponseHeaderTimeout: h.config.AnswerTimeout,
		Protocols: new(http.Protocols),
	}
	transport.Protocols.SetHTTP1(true)
	return &httputil.ReverseProxy{
		Transport: bare{transport},
		Rewrite:   rewrite, ModifyResponse: cleanAnswer,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) { h.fail(w, r, h.explain(r, err)) },
		ErrorLog:     slog.NewLogLogger(h.config.Log.Handler(), slog.LevelDebug),
	}
}

// dial connects to the port of the request's preview.
func (h *Handler) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	v := visitOf(ctx)
	if v.lane.bytes.Load() > h.config.MaxBytes {
		return nil, errSpent
	}
	// The transport's own goes on when the request has ended.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(v.ctx, cancel)()
	s, err := h.config.Sessions.Dial(ctx, v.preview.Owner, v.preview.Session, v.preview.Port)
	if err != nil {
		return nil, err
	}
	return &conn{s, v.lane, h.config.MaxBytes}, nil
}

// explain says why a program gave no answer.
func (h *Handler) explain(r *http.Request, err error) error {
	var f *fault.Error
	switch cause := context.Cause(r.Context()); {
	case errors.Is(cause, errClosed), errors.Is(cause, errExpired):
		return cause
	case errors.As(err, &f):
		return err
	case r.Context().Err() != nil:
		return cause
	}
	return fault.New(fault.Unavailable, "the program at port %d gave no answer that can be passed on", visitOf(r.Context()).preview.Port).
		WithHint("it has to speak HTTP there, and to answer within %v", h.config.AnswerTimeout).WithCause(err)
}

// rewrite makes a request what the program is to see of it: as it came, at the address
// that the browser knows, without what lets anybody in.
func rewrite(p *httputil.ProxyRequest) {
	v := visitOf(p.In.Context())
	p.Out.URL.Scheme, p.Out.URL.Host = "http", net.JoinHostPort(v.preview.ID, strconv.Itoa(int(v.preview.Port)))
	p.Out.URL.RawQuery = p.In.URL.RawQuery // also what Go finds odd
	base, _ := url.Parse(web.BaseURL(p.In.Context()))
	if base == nil || base.Host == "" {
		base = &url.URL{Scheme: "http", Host: p.In.Host}
	}
	p.Out.Host = base.Host
	cleanRequest(p.Out.Header)
	p.Out.Header.Set("X-Forwarded-Host", base.Host)
	p.Out.Header.Set("X-Forwarded-Proto", base.Scheme)
	if from := web.ClientAddr(p.In.Context()); from.IsValid() {
		p.Out.Header.Set("X-Forwarded-For", from.String())
	}
}

// bare gives answers without trailers, which nobody has looked at, and without statuses
// that net/http would not write.
type bare struct{ http.RoundTripper }

func (b bare) RoundTrip(r *http.Request) (*http.Response, error) {
	got, err := b.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if got.StatusCode < http.StatusOK && got.StatusCode != http.StatusSwitchingProtocols {
		_ = got.Body.Close()
		return nil, fmt.Errorf("preview: the program answers with the status %d", got.StatusCode)
	}
	answer := *got // what its body ends with is put into got
	answer.Trailer = nil
	return &answer, nil
}

// finals leaves away what comes before an answer: nobody has looked at its headers.
type finals struct{ http.ResponseWriter }

// Unwrap is for [http.ResponseController].
func (w finals) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w finals) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.ResponseWriter.WriteHeader(status)
	}
}

// isWebSocket reports whether an upgrade is to what browsers upgrade to.
func isWebSocket(upgrade string) bool { return strings.EqualFold(upgrade, "websocket") }
