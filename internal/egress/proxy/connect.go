package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"paddock/internal/egress"
	"paddock/internal/fault"
)

// connect answers CONNECT: what comes after it is HTTP in TLS that ends here, or plain
// HTTP, to that host.
func (p *Proxy) connect(w http.ResponseWriter, r *http.Request, l *link) {
	at, reason, err := p.connectTarget(r, l)
	conn, rw, hijackErr := http.NewResponseController(w).Hijack()
	if hijackErr != nil {
		panic(http.ErrAbortHandler)
	}
	defer l.finish()
	defer conn.Close()
	if err != nil {
		if at == nil {
			at = &origin{}
		}
		f := p.refuse(at, r.Method, reason, err)
		p.writeRefusal(conn, r, reason, f)
		return
	}
	_ = conn.SetDeadline(time.Now().Add(p.header()))
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	p.tunnel(r.Context(), &buffered{conn, rw.Reader}, l, at)
}

// header is how long a program may take to say what it wants.
func (p *Proxy) header() time.Duration {
	if p.config.Budgets.Header < 0 {
		return 365 * 24 * time.Hour
	}
	return p.config.Budgets.Header
}

// connectTarget is whom a program wants to be connected to.
func (p *Proxy) connectTarget(r *http.Request, l *link) (*origin, string, error) {
	if l.refused != nil {
		return nil, reasonCrowd, l.refused
	}
	if l.origin != nil {
		return l.origin, reasonMethod, fault.New(fault.Denied, "a connection to %s is not a proxy: CONNECT is not let out", l.origin.authority())
	}
	if r.URL.Host == "" || r.URL.Port() == "" || r.URL.Path != "" || r.URL.RawQuery != "" || r.URL.User != nil || r.ContentLength != 0 || len(r.TransferEncoding) > 0 {
		return nil, reasonProtocol, fault.New(fault.Invalid, "CONNECT names a host and a port, and has no body")
	}
	_, host, port, err := egress.Origin(&url.URL{Scheme: "https", Host: r.URL.Host})
	at := &origin{host: host, port: port}
	if err != nil {
		return at, reasonHost, err
	}
	if err := p.budget.requests.take(1); err != nil {
		return at, reasonBudget, err
	}
	if err := p.budget.spent(); err != nil && p.local[host] == nil {
		return at, reasonBudget, err
	}
	if p.isLocal(host, port) {
		return at, "", nil
	}
	policy := p.Policy()
	if err := policy.Reach(host, port); err != nil {
		return at, whyDenied(policy, *at, err), err
	}
	return at, "", nil
}

// writeRefusal answers CONNECT with what was refused. The reason stands in the first line
// as well: it is all that most programs show.
func (p *Proxy) writeRefusal(conn net.Conn, r *http.Request, reason string, f *fault.Error) {
	status := statusOf(f, reason, f)
	contentType, body := problemBody(r.Header.Get("Accept"), reason, f)
	name := failedHeader
	if refusal(f) {
		name = deniedHeader
	}
	resp := &http.Response{
		Status: http.StatusText(status) + " by paddock: " + headerSafe(f.Message), StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Close: true,
		Header:        http.Header{"Content-Type": {contentType}, name: {headerSafe(reason + ": " + f.Message)}},
		Body:          io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
	}
	_ = conn.SetDeadline(time.Now().Add(p.header()))
	_ = resp.Write(conn) // who went away is told nothing
}

// tunnel serves what is within a connection after CONNECT.
func (p *Proxy) tunnel(ctx context.Context, conn *buffered, l *link, at *origin) {
	first, err := conn.r.Peek(1)
	if err != nil {
		p.recordTunnel(at, reasonGone, fault.New(fault.Cancelled, "the program said nothing"))
		return
	}
	inner := &link{Conn: conn, raw: l.raw, proxy: p, origin: at, tunnel: true, began: now(), ended: make(chan struct{})}
	switch {
	case first[0] == 0x16: // a TLS handshake
		at.scheme = "https"
		secure, reason, err := p.greet(ctx, conn, at)
		if err != nil {
			p.recordTunnel(at, reason, err)
			return
		}
		inner.Conn = secure
	case 'A' <= first[0] && first[0] <= 'Z':
		at.scheme = "http"
	default:
		at.scheme = "http"
		f := p.refuse(at, http.MethodConnect, reasonProtocol, fault.New(fault.Denied, "what was sent to %s is neither TLS nor HTTP, and was not let out", at.authority()).
			WithHint("only HTTP leaves a sandbox"))
		p.writeRefusal(conn, &http.Request{}, reasonProtocol, f)
		return
	}
	_ = inner.SetDeadline(time.Time{})
	p.run(inner)
}

// recordTunnel records a tunnel that came to nothing.
func (p *Proxy) recordTunnel(at *origin, reason string, err error) {
	p.refuse(at, http.MethodConnect, reason, err)
}

// greet ends TLS for a host: with a certificate for it, and for a client that says no
// other name.
func (p *Proxy) greet(ctx context.Context, conn net.Conn, at *origin) (net.Conn, string, error) {
	var mismatch error
	secure := tls.Server(conn, &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if name, err := egress.Host(hello.ServerName); hello.ServerName != "" && (err != nil || name != at.host) {
				mismatch = fault.New(fault.Denied, "a connection to %s asks for the certificate of %.100q", at.host, hello.ServerName).
					WithHint("open a connection to the host that it is for")
				return nil, mismatch
			}
			return p.ca.certificate(at.host)
		},
	})
	ctx, cancel := context.WithTimeout(ctx, p.header())
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		if mismatch != nil {
			return nil, reasonMismatch, mismatch
		}
		var alert tls.AlertError
		if errors.As(err, &alert) {
			err = fault.New(fault.Unavailable, "the program ended the TLS handshake: it may not trust the session's certificate").WithCause(err)
		}
		return nil, reasonTLS, err
	}
	return secure, "", nil
}
