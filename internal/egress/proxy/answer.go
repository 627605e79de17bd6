package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"paddock/internal/egress"
	"paddock/internal/fault"
)

// The headers by which a program tells an answer of the proxy's from one of a host's:
// "X-Paddock-Denied: host: evil.example:443 is not among ...". Before the first colon
// stands the cause, as in [Record].
const (
	deniedHeader = "X-Paddock-Denied" // it was refused; status 403, or 503 for too many connections
	failedHeader = "X-Paddock-Failed" // it was allowed, and failed; status 400, 502 or 504
)

// caused is an error with its cause as records have it.
type caused struct {
	reason string
	error
}

func (c *caused) Unwrap() error { return c.error }

func because(reason string, err error) error { return &caused{reason, err} }

// reasonOf finds an error's cause.
func reasonOf(err error) string {
	var c *caused
	var dns *net.DNSError
	switch {
	case errors.As(err, &c):
		return c.reason
	case errors.Is(err, egress.ErrAddress):
		return reasonAddress
	case errors.As(err, &dns):
		return reasonDNS
	case isTLS(err):
		return reasonTLS
	case errors.Is(err, context.Canceled):
		return reasonGone
	}
	switch fault.KindOf(err) {
	case fault.Denied:
		return reasonRequest
	case fault.Exhausted:
		return reasonBudget
	case fault.Unavailable, fault.Invalid:
		return reasonDown
	}
	return reasonInternal
}

// isTLS tells whether a host could not be greeted over TLS.
func isTLS(err error) bool {
	var verification *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	var host x509.HostnameError
	return errors.As(err, &verification) || errors.As(err, &record) || errors.As(err, &alert) || errors.As(err, &host)
}

// answerError tells a program why it gets nothing, and notes it.
func (p *Proxy) answerError(w http.ResponseWriter, r *http.Request, e *exchange, err error) {
	if reason, why := e.failed(); why != nil { // what happened first says more
		err = because(reason, why)
	}
	reason := reasonOf(err)
	f := p.explain(reason, e.at, err)
	e.fail(reason, f)
	status := statusOf(f, reason, err)
	if refusal(f) {
		p.denials.add(denialOf(e.at, e.method, reason, f))
		p.config.Log.Debug("a request was refused", "session", p.config.Session, "host", e.at.host, "port", e.at.port, "cause", reason)
	} else {
		p.config.Log.Debug("a request failed", "session", p.config.Session, "host", e.at.host, "port", e.at.port, "cause", reason) // and not the error: it may quote what the host said
	}
	e.status = status
	if e.ctx.Err() != nil { // it was cut: nothing more is read from the connection
		w.Header().Set("Connection", "close")
	}
	writeProblem(w, r, status, reason, f)
}

func refusal(f *fault.Error) bool { return f.Kind == fault.Denied || f.Kind == fault.Exhausted }

func denialOf(at origin, method, reason string, f *fault.Error) Denial {
	return Denial{Host: at.host, Port: at.port, Method: shortMethod(method), Cause: reason, Message: f.Message, Hint: f.Hint}
}

// explain makes of an error what a program, a model and a person can do something with.
func (p *Proxy) explain(reason string, at origin, err error) *fault.Error {
	f := fault.Of(err)
	switch reason {
	case reasonHost, reasonRequest, reasonAddress, reasonPolicy:
		if f.Kind == fault.Denied && f.Hint != "" && !errors.Is(err, egress.ErrSpelling) {
			f = f.WithHint("%s, %s", f.Hint, p.config.Allow)
		}
	case reasonTLS:
		return fault.New(fault.Unavailable, "%s showed no certificate that this host trusts, or spoke no TLS", at.host).
			WithHint("certificates are verified outside of the sandbox: options of the program, such as verify=False, change nothing").WithCause(err)
	}
	return f
}

// statusOf is the status of an answer of the proxy's.
func statusOf(f *fault.Error, reason string, err error) int {
	var timeout net.Error
	switch {
	case reason == reasonCrowd:
		return http.StatusServiceUnavailable
	case refusal(f):
		return http.StatusForbidden
	case f.Kind == fault.Invalid:
		return http.StatusBadRequest
	case reason == reasonIdle || errors.As(err, &timeout) && timeout.Timeout():
		return http.StatusGatewayTimeout
	case f.Kind == fault.Internal:
		return http.StatusInternalServerError
	}
	return http.StatusBadGateway
}

// writeProblem answers with a fault: as JSON to who asks for that, else as text.
func writeProblem(w http.ResponseWriter, r *http.Request, status int, reason string, f *fault.Error) {
	h := w.Header()
	name := failedHeader
	if refusal(f) {
		name = deniedHeader
	}
	h.Set(name, headerSafe(reason+": "+f.Message))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	contentType, body := problemBody(r.Header.Get("Accept"), reason, f)
	h.Set("Content-Type", contentType)
	if status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
		h.Set("Connection", "close")
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // who went away is told nothing
}

// problemBody says it in the form that is asked for.
func problemBody(accept, reason string, f *fault.Error) (contentType string, body []byte) {
	if !strings.Contains(accept, "json") {
		text := "paddock: " + f.Message + ".\n"
		if f.Hint != "" {
			text += f.Hint + ".\n"
		}
		return "text/plain; charset=utf-8", []byte(text)
	}
	problem := struct {
		fault.Problem
		Cause string `json:"cause"`
	}{fault.ProblemOf(f), reason}
	body, err := json.Marshal(map[string]any{"error": problem})
	if err != nil {
		body = []byte(`{"error":{"code":"internal"}}`)
	}
	return "application/json", append(body, '\n')
}

// headerSafe is a text as a header may have it.
func headerSafe(text string) string {
	safe := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
	return safe[:min(len(safe), 400)]
}

// refuse records a refusal for which there is no request.
func (p *Proxy) refuse(at *origin, method, reason string, err error) *fault.Error {
	f := p.explain(reason, *at, err)
	decision := Denied
	switch {
	case f.Kind == fault.Exhausted:
		decision = Exhausted
	case !refusal(f):
		decision = Allowed // and came to nothing
	}
	if refusal(f) {
		p.denials.add(denialOf(*at, method, reason, f))
	}
	p.tell(Record{
		Session: p.config.Session, Time: now(), Scheme: at.scheme, Host: at.host, Port: at.port, Method: shortMethod(method),
		Decision: decision, Cause: reason,
	})
	return f
}

// recordSilence records a link on which no request was made.
func (p *Proxy) recordSilence(l *link) {
	if l.requests.Load() > 0 {
		return
	}
	at := l.origin
	if at == nil {
		at = &origin{}
	}
	_ = p.budget.requests.take(1) // it costs a record like a request
	if l.read.Load() > 0 {
		p.refuse(at, "", reasonProtocol, fault.New(fault.Denied, "what was sent to %s is not HTTP request, and was not let out", showHost(*at)).
			WithHint("only HTTP leaves a sandbox"))
		return
	}
	if l.origin == nil {
		return // somebody looked whether a proxy is there
	}
	p.tell(Record{
		Session: p.config.Session, Time: l.began, Scheme: at.scheme, Host: at.host, Port: at.port,
		Decision: Allowed, Duration: time.Since(l.began), Cause: reasonGone,
	})
}

func showHost(at origin) string {
	if at.host == "" {
		return "the proxy"
	}
	return at.authority()
}
