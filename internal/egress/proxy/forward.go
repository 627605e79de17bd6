package proxy

import (
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/netip"
	"sync"

	"paddock/internal/egress"
	"paddock/internal/fault"
)

// exchangeKey is where the context of a request on its way out has its exchange.
type exchangeKey struct{}

// copied is how many bytes of an answer are copied at once. Where its length is not known
// beforehand so many are a chunk, which the program has to read by itself.
const copied = 128 << 10

// buffers are what answers are copied with.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, copied)
}

func (b *buffers) Put(p []byte) { b.pool.Put(&p) }

// ours are headers of the proxy's own answers, which nobody else's may have, and those
// that say where else a host is to be found.
var ours = []string{deniedHeader, failedHeader, "Alt-Svc"}

// newReverseProxy makes what copies requests and answers.
func (p *Proxy) newReverseProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			e := r.In.Context().Value(exchangeKey{}).(*exchange)
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = e.at.scheme, e.at.authority(), ""
			r.Out.URL.RawQuery, r.Out.URL.ForceQuery = r.In.URL.RawQuery, r.In.URL.ForceQuery
			r.Out.Trailer = nil // nobody has looked at what comes after the body
		},
		Transport:     roundTripper(p.roundTrip),
		FlushInterval: -1,
		BufferPool:    &buffers{},
		ErrorLog:      noLog,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			p.answerError(w, r, r.Context().Value(exchangeKey{}).(*exchange), err)
		},
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// forward sends a request that may go, and copies its answer.
func (p *Proxy) forward(w http.ResponseWriter, r *http.Request, e *exchange) {
	e.decision = Allowed
	_ = http.NewResponseController(w).EnableFullDuplex() // an answer may begin before its request has ended
	p.proxy.ServeHTTP(w, r.WithContext(context.WithValue(e.ctx, exchangeKey{}, e)))
}

// roundTrip sends a request on its way.
func (p *Proxy) roundTrip(out *http.Request) (*http.Response, error) {
	e := out.Context().Value(exchangeKey{}).(*exchange)
	// With the exchange's own context, answers before the answer (103) do not go past the
	// secrets to the program: the copier has asked for them in the one that it made.
	out = out.WithContext(httptrace.WithClientTrace(e.ctx, &httptrace.ClientTrace{
		GotConn: func(c httptrace.GotConnInfo) {
			if to, err := netip.ParseAddrPort(c.Conn.RemoteAddr().String()); err == nil {
				e.dialled(to.Addr())
			}
		},
	}))
	if err := p.fillIn(out, e); err != nil {
		return nil, err
	}
	if err := e.count(out.Header, len(out.Method)+len(out.URL.RequestURI())+len(out.URL.Host), &e.sent, p.budget.sent); err != nil {
		return nil, err
	}
	if out.Body != nil && out.Body != http.NoBody {
		out.Body = &metered{ReadCloser: out.Body, e: e, n: &e.sent, account: p.budget.sent}
		out.GetBody = nil
	}
	resp, err := e.route.transport.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	if err := p.takeIn(resp, e); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// fillIn puts the secrets in. What was decided upon stays as it is.
func (p *Proxy) fillIn(out *http.Request, e *exchange) error {
	if p.config.Secrets == nil {
		return nil
	}
	if err := p.config.Secrets.Request(out); err != nil {
		return because(reasonSecret, err)
	}
	scheme, host, port, err := egress.Origin(out.URL)
	if err != nil || (origin{scheme, host, port}) != e.at || out.Method != e.method || out.URL.EscapedPath() != e.path {
		return because(reasonInternal, fault.New(fault.Internal, "a secret changed where a request goes"))
	}
	return nil
}

// takeIn looks at an answer's header, and puts what counts and redacts around its body.
func (p *Proxy) takeIn(resp *http.Response, e *exchange) error {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return because(reasonProtocol, fault.New(fault.Denied, "%s wants to speak another protocol than HTTP", e.at.host))
	}
	for _, name := range ours {
		resp.Header.Del(name)
	}
	if err := e.count(resp.Header, len(resp.Status), &e.received, p.budget.received); err != nil {
		return err
	}
	if resp.Body != http.NoBody {
		resp.Body = &metered{ReadCloser: resp.Body, e: e, n: &e.received, account: p.budget.received}
	}
	if p.config.Secrets != nil {
		if err := p.config.Secrets.Response(resp); err != nil {
			return because(reasonSecret, err)
		}
		resp.Body = &trailed{ReadCloser: resp.Body, resp: resp, secrets: p.config.Secrets}
	}
	e.status = resp.StatusCode
	e.answering.Store(true)
	return nil
}

// metered counts a body as it is read.
type metered struct {
	io.ReadCloser
	e       *exchange
	n       interface{ Add(int64) int64 }
	account *account
}

func (m *metered) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	m.e.touch()
	m.n.Add(int64(n))
	if over := m.account.take(int64(n)); over != nil {
		m.e.fail(reasonBudget, over)
		return 0, over
	}
	if err != nil && err != io.EOF {
		m.e.broken(err)
	}
	return n, err
}

// broken notes that a body ended before its end, unless it is known why.
func (e *exchange) broken(err error) {
	if e.ctx.Err() != nil {
		e.fail(reasonGone, err)
		return
	}
	if fault.KindOf(err) == fault.Denied { // a placeholder is in what is streamed
		e.fail(reasonSecret, err)
		return
	}
	e.fail(reasonDown, fault.New(fault.Unavailable, "the connection broke within a body").WithCause(err))
}

// trailed redacts an answer's trailer, which is there when its body has ended.
type trailed struct {
	io.ReadCloser
	resp    *http.Response
	secrets Secrets
	done    bool
}

func (t *trailed) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if err == io.EOF && !t.done && len(t.resp.Trailer) > 0 {
		t.done = true
		if e := t.secrets.Response(&http.Response{StatusCode: t.resp.StatusCode, Header: t.resp.Trailer, Body: http.NoBody, Request: t.resp.Request}); e != nil {
			clear(t.resp.Trailer)
		}
	}
	return n, err
}

// count counts a header.
func (e *exchange) count(h http.Header, more int, n interface{ Add(int64) int64 }, a *account) error {
	size := int64(more)
	for name, values := range h {
		for _, v := range values {
			size += int64(len(name) + len(v) + 4)
		}
	}
	n.Add(size)
	if err := a.take(size); err != nil {
		return because(reasonBudget, err)
	}
	return nil
}

// serveLocal has one of paddock's own hosts answer.
func (e *exchange) serveLocal(w http.ResponseWriter, r *http.Request, handler http.Handler) {
	in := r.Clone(e.ctx)
	in.URL.Scheme, in.URL.Host, in.Host = e.at.scheme, e.at.authority(), e.at.authority()
	if in.Body != nil && in.Body != http.NoBody {
		in.Body = &metered{ReadCloser: in.Body, e: e, n: &e.sent, account: &account{bound: -1}}
	}
	handler.ServeHTTP(&meter{ResponseWriter: w, e: e}, in)
	if _, why := e.failed(); e.status == 0 && why != nil {
		e.proxy.answerError(w, r, e, why)
	}
	if e.status == 0 {
		e.status = http.StatusOK
	}
}

// meter counts what a local handler answers.
type meter struct {
	http.ResponseWriter
	e *exchange
}

// Unwrap is for [http.ResponseController].
func (m *meter) Unwrap() http.ResponseWriter { return m.ResponseWriter }

func (m *meter) WriteHeader(status int) {
	if m.e.status == 0 && status >= 200 {
		m.e.status = status
		m.e.answering.Store(true)
	}
	m.ResponseWriter.WriteHeader(status)
}

func (m *meter) Write(p []byte) (int, error) {
	if m.e.status == 0 {
		m.e.status = http.StatusOK
		m.e.answering.Store(true)
	}
	n, err := m.ResponseWriter.Write(p)
	m.e.touch()
	m.e.received.Add(int64(n))
	return n, err
}
